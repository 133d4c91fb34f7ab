"""Every kind of store, on a place of a test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.postgres import PostgresServer
from tidewire.storage.postgres import PostgresStore
from tidewire.storage.sqlite import SqliteStore
from tidewire.storage.store import Store

STORES = ("sqlite", "postgres")
LOCK_WAIT_S = 5.0  # long enough for a session that has just been closed, on a busy machine too

OpenStore = Callable[[int], Store]
"""Opens the same, at first empty, database again and again; takes the first position of its log."""


def sqlite_place(directory: Path) -> OpenStore:
    """A database file."""
    return lambda first_position: SqliteStore(directory / "org.db", first_position)


def postgres_place(server: PostgresServer) -> OpenStore:
    """A schema."""
    url = server.make_url()
    return lambda first_position: PostgresStore(url, first_position, lock_wait_s=LOCK_WAIT_S)
