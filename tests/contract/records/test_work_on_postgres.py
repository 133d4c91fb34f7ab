"""Units of work, as on SQLite."""

from tests.unit.records.test_work import *  # noqa: F403  # the tests and their fixtures
