"""Accounts and last days of activities, as on SQLite."""

from tests.unit.crm.test_activity_accounts import *  # noqa: F403  # the tests and their fixtures
