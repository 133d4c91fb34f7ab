"""Fields that follow from other records, as on SQLite."""

from tests.unit.records.test_copies import *  # noqa: F403  # the tests and their fixtures
