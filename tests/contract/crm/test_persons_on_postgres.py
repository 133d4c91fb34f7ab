"""Person accounts, as on SQLite."""

from tests.unit.crm.test_persons import *  # noqa: F403  # the tests and their fixtures
