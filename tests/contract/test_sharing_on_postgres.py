"""Who sees which records, in PostgreSQL: the scenarios that the unit tests run on SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.orgs import Template, TestOrg, open_postgres_copy
from tests.postgres import PostgresServer
from tests.unit.access.test_derived_shares import *  # noqa: F403  # the tests
from tests.unit.access.test_sharing import *  # noqa: F403  # the tests
from tests.unit.access.test_user_record_access import *  # noqa: F403  # the tests


@pytest.fixture
async def org(
    tmp_path: Path, postgres: PostgresServer, postgres_template: Template
) -> AsyncIterator[TestOrg]:
    """An org in a PostgreSQL schema of this test's own."""
    async with open_postgres_copy(postgres_template, postgres, tmp_path / "org") as opened:
        yield opened
