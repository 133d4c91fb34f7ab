"""The layout of an org's database, as numbered steps. A step, once released, never changes."""

from __future__ import annotations

from tidewire.storage.store import Connection

_STEPS: tuple[tuple[str, ...], ...] = (
    (
        # one row; see store.Progress
        "CREATE TABLE progress (group_number INTEGER NOT NULL, next_position INTEGER NOT NULL,"
        " commit_number INTEGER NOT NULL, access_generation INTEGER NOT NULL, catalog_version INTEGER NOT NULL)",
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        # record numbers and auto numbers: the next one to give out
        "CREATE TABLE numbers (name TEXT PRIMARY KEY, next INTEGER NOT NULL)",
        # object and event types, one JSON document each
        "CREATE TABLE types (kind TEXT NOT NULL, name TEXT NOT NULL, definition TEXT NOT NULL,"
        " PRIMARY KEY (kind, name))",
        # the event log
        "CREATE TABLE topics (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, family INTEGER NOT NULL)",
        "CREATE TABLE partitions (family INTEGER NOT NULL, hour INTEGER NOT NULL, first_position INTEGER NOT NULL,"
        " PRIMARY KEY (family, hour))",
        "CREATE TABLE families (family INTEGER PRIMARY KEY, trimmed_through INTEGER NOT NULL)",
        "CREATE TABLE incarnations (first_position INTEGER PRIMARY KEY, last_position INTEGER)",
        "CREATE TABLE event_schemas (schema_id TEXT PRIMARY KEY, topic TEXT NOT NULL, definition TEXT NOT NULL)",
        # logins
        "CREATE TABLE passwords (user_id TEXT PRIMARY KEY, hash TEXT NOT NULL)",
        "CREATE TABLE login_sessions (session_id TEXT PRIMARY KEY, token_hash TEXT NOT NULL UNIQUE,"
        " user_id TEXT NOT NULL, started_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL)",
        "CREATE TABLE connected_apps (client_id TEXT PRIMARY KEY, secret_hash TEXT NOT NULL, label TEXT NOT NULL)",
    ),
    (
        # what each delete did, in order, so that it can be undone; see records.bin
        "CREATE TABLE recycle_bin (root_id TEXT NOT NULL, step INTEGER NOT NULL, record_id TEXT NOT NULL,"
        " entity TEXT NOT NULL, field TEXT NOT NULL, target_id TEXT NOT NULL, deleted_ms INTEGER NOT NULL,"
        " PRIMARY KEY (root_id, step))",
        "CREATE INDEX recycle_bin_record ON recycle_bin (record_id)",
        "CREATE INDEX recycle_bin_deleted ON recycle_bin (deleted_ms)",
    ),
)

LAYOUT_VERSION = len(_STEPS)


def migrate(connection: Connection, from_version: int, first_position: int) -> None:
    """Bring a database from `from_version` to the newest layout, inside the running transaction."""
    for step in _STEPS[from_version:]:
        for statement in step:
            connection.execute(statement)
    if from_version == 0:
        connection.execute("INSERT INTO progress VALUES (0, ?, 0, 1, 1)", (first_position,))
        connection.execute("INSERT INTO incarnations VALUES (?, NULL)", (first_position,))
