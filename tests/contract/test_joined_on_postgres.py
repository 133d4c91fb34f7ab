"""Several calls in one transaction, in PostgreSQL: the scenarios that the unit tests run on SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tests.unit.gate.test_shared_transaction import *  # noqa: F403  # the tests


@pytest.fixture
async def org(tmp_path: Path, postgres: PostgresServer) -> AsyncIterator[TestOrg]:
    """An org in a PostgreSQL schema of this test's own."""
    async with open_org(tmp_path / "org", store=postgres.make_url()) as opened:
        yield opened
