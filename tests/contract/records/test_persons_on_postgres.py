"""Person accounts, as on SQLite."""

from tests.unit.records.test_persons import *  # noqa: F403  # the tests and their fixtures
