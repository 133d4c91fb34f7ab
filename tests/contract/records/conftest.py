"""Records in PostgreSQL. The modules beside this one run the scenarios that tests/unit/records runs on SQLite."""

from __future__ import annotations

import pytest

from tests.postgres import PostgresServer
from tests.stores import OpenStore, postgres_place


@pytest.fixture
def place(postgres: PostgresServer) -> OpenStore:
    """A schema of this test's own."""
    return postgres_place(postgres)
