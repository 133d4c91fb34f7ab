"""Deletes, undeletes and the recycle bin, as on SQLite."""

from tests.unit.records.test_cascade import *  # noqa: F403  # the tests and their fixtures
