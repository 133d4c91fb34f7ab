"""Recurring activities and invitations, as on SQLite."""

from tests.unit.records.test_activities import *  # noqa: F403  # the tests and their fixtures
