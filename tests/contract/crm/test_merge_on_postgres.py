"""Merges, as on SQLite."""

from tests.unit.crm.test_merge import *  # noqa: F403  # the tests and their fixtures
