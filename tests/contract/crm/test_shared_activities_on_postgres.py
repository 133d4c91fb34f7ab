"""Shared Activities, as on SQLite."""

from tests.unit.crm.test_shared_activities import *  # noqa: F403  # the tests and their fixtures
