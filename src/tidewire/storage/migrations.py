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
    (
        # what a connected app may do; the three lists are JSON. The app of an older layout signs in with passwords.
        "ALTER TABLE connected_apps ADD COLUMN callback_urls TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE connected_apps ADD COLUMN scopes TEXT NOT NULL DEFAULT '[\"api\"]'",
        "ALTER TABLE connected_apps ADD COLUMN flows TEXT NOT NULL DEFAULT '[\"password\"]'",
        # PEM text of a certificate or public key, for JWT bearer
        "ALTER TABLE connected_apps ADD COLUMN certificate TEXT NOT NULL DEFAULT ''",
        # the user on whose behalf client credentials sign in; empty for none
        "ALTER TABLE connected_apps ADD COLUMN run_as_user_id TEXT NOT NULL DEFAULT ''",
    ),
    (
        # where a login session came from and what it may do: scopes are words separated by spaces
        "ALTER TABLE login_sessions ADD COLUMN kind TEXT NOT NULL DEFAULT 'API'",
        "ALTER TABLE login_sessions ADD COLUMN client_id TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE login_sessions ADD COLUMN scopes TEXT NOT NULL DEFAULT 'full'",
        "ALTER TABLE login_sessions ADD COLUMN peer TEXT NOT NULL DEFAULT ''",
        # the authorization that a refresh token and its sessions share; empty for none
        "ALTER TABLE login_sessions ADD COLUMN grant_id TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX login_sessions_user ON login_sessions (user_id)",
        "CREATE INDEX login_sessions_grant ON login_sessions (grant_id)",
        "CREATE INDEX login_sessions_used ON login_sessions (used_ms)",
        "CREATE TABLE security_tokens (user_id TEXT PRIMARY KEY, token_hash TEXT NOT NULL)",
        # by a hash of the user name as it compares, so that names nobody has look like any other
        "CREATE TABLE failed_logins (name_hash TEXT PRIMARY KEY, failures INTEGER NOT NULL,"
        " last_ms INTEGER NOT NULL, locked_until_ms INTEGER NOT NULL)",
        # what OAuth hands out, all of it as hashes; see access.codes
        "ALTER TABLE connected_apps ADD COLUMN options TEXT NOT NULL DEFAULT '{}'",
        "CREATE TABLE app_approvals (client_id TEXT NOT NULL, user_id TEXT NOT NULL, scopes TEXT NOT NULL,"
        " approved_ms INTEGER NOT NULL, PRIMARY KEY (client_id, user_id))",
        "CREATE TABLE refresh_tokens (token_hash TEXT PRIMARY KEY, grant_id TEXT NOT NULL,"
        " client_id TEXT NOT NULL, user_id TEXT NOT NULL, scopes TEXT NOT NULL, issued_ms INTEGER NOT NULL,"
        " replaced_ms INTEGER NOT NULL)",
        "CREATE INDEX refresh_tokens_grant ON refresh_tokens (grant_id)",
        "CREATE TABLE authorization_codes (code_hash TEXT PRIMARY KEY, client_id TEXT NOT NULL,"
        " user_id TEXT NOT NULL, redirect_uri TEXT NOT NULL, scopes TEXT NOT NULL, challenge TEXT NOT NULL,"
        " nonce TEXT NOT NULL, grant_id TEXT NOT NULL, expires_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL)",
        "CREATE TABLE device_codes (code_hash TEXT PRIMARY KEY, user_code TEXT NOT NULL UNIQUE,"
        " client_id TEXT NOT NULL, scopes TEXT NOT NULL, user_id TEXT NOT NULL, answer TEXT NOT NULL,"
        " expires_ms INTEGER NOT NULL, polled_ms INTEGER NOT NULL)",
        "CREATE TABLE used_assertions (digest TEXT PRIMARY KEY, expires_ms INTEGER NOT NULL)",
    ),
    (
        # bulk jobs: what was asked (JSON), their batches, what was uploaded, and what became of it; see access.jobs
        "CREATE TABLE bulk_jobs (job_id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, kind TEXT NOT NULL,"
        " state TEXT NOT NULL, user_id TEXT NOT NULL, request TEXT NOT NULL, error TEXT NOT NULL,"
        " created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL)",
        "CREATE INDEX bulk_jobs_modified ON bulk_jobs (modified_ms)",
        "CREATE TABLE bulk_batches (batch_id TEXT PRIMARY KEY, job_id TEXT NOT NULL, number INTEGER NOT NULL UNIQUE,"
        " state TEXT NOT NULL, size_bytes INTEGER NOT NULL, rows_done INTEGER NOT NULL, rows_failed INTEGER NOT NULL,"
        " work_ms INTEGER NOT NULL, columns TEXT NOT NULL, error TEXT NOT NULL, created_ms INTEGER NOT NULL,"
        " modified_ms INTEGER NOT NULL)",
        "CREATE INDEX bulk_batches_job ON bulk_batches (job_id, number)",
        "CREATE INDEX bulk_batches_state ON bulk_batches (state, number)",
        "CREATE TABLE bulk_parts (batch_id TEXT NOT NULL, part INTEGER NOT NULL, data BLOB NOT NULL,"
        " PRIMARY KEY (batch_id, part))",
        "CREATE TABLE bulk_results (batch_id TEXT NOT NULL, first_row INTEGER NOT NULL, row_count INTEGER NOT NULL,"
        " data BLOB NOT NULL, PRIMARY KEY (batch_id, first_row))",
    ),
    (
        # deploys and retrieves: the result is JSON, the data a retrieve's archive; see access.metadata.requests
        "CREATE TABLE metadata_requests (request_id TEXT PRIMARY KEY, kind TEXT NOT NULL, user_id TEXT NOT NULL,"
        " created_ms INTEGER NOT NULL, result TEXT NOT NULL, data BLOB NOT NULL)",
        "CREATE INDEX metadata_requests_created ON metadata_requests (created_ms)",
    ),
    (
        # what was taken out of the recycle bin for good, as long as the bin would have kept it; see records.bin
        "CREATE TABLE purged_records (record_id TEXT PRIMARY KEY, key_prefix TEXT NOT NULL, owner_id TEXT NOT NULL,"
        " deleted_ms INTEGER NOT NULL)",
        "CREATE INDEX purged_records_deleted ON purged_records (key_prefix, deleted_ms)",
    ),
    (
        # events delivered and published, by hour since 1970; see access.allocations
        "CREATE TABLE event_usage (hour INTEGER NOT NULL, is_durable INTEGER NOT NULL, family INTEGER NOT NULL,"
        " events INTEGER NOT NULL, PRIMARY KEY (hour, is_durable, family))",
        # streaming clients that outlive a restart, as JSON; see access.kept_clients
        "CREATE TABLE kept_clients (client_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, data TEXT NOT NULL,"
        " seen_ms INTEGER NOT NULL)",
    ),
    (
        # when each user used a record last; see gate/recent_items.py
        "CREATE TABLE record_uses (user_id TEXT NOT NULL, record_id TEXT NOT NULL, entity TEXT NOT NULL,"
        " used_ms INTEGER NOT NULL, viewed_ms INTEGER, referenced_ms INTEGER, PRIMARY KEY (user_id, record_id))",
        "CREATE INDEX record_uses_used ON record_uses (user_id, used_ms)",
    ),
    (
        # how far each managed subscription has been committed; see access.managed
        "CREATE TABLE managed_positions (name TEXT PRIMARY KEY, position INTEGER NOT NULL,"
        " is_broken INTEGER NOT NULL)",
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
