"""Deletes and undeletes of more records than memory holds, as on SQLite."""

from tests.unit.records.test_large_delete import *  # noqa: F403  # the tests and their fixtures
