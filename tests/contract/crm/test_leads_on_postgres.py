"""Lead conversion and upserts, as on SQLite."""

from tests.unit.crm.test_leads import *  # noqa: F403  # the tests and their fixtures
