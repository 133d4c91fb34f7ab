"""The rules of standard objects, as on SQLite."""

from tests.unit.crm.test_checks import *  # noqa: F403  # the tests and their fixtures
