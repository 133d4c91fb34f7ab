"""Fields that follow from other records, as on SQLite."""

from tests.unit.crm.test_copied_fields import *  # noqa: F403  # the tests and their fixtures
