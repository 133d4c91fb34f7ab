"""Merges, as on SQLite."""

from tests.unit.records.test_merge import *  # noqa: F403  # the tests and their fixtures
