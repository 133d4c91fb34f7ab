"""Roll-ups, as on SQLite."""

from tests.unit.records.test_rollups import *  # noqa: F403  # the tests and their fixtures
