"""The rules of standard objects, as on SQLite."""

from tests.unit.records.test_rules import *  # noqa: F403  # the tests and their fixtures
