"""Recurring activities and invitations, as on SQLite."""

from tests.unit.crm.test_activities import *  # noqa: F403  # the tests and their fixtures
