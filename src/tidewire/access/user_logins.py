"""Frozen and locked-out users: the object UserLogin, and the counts of failed logins behind its lock.

UserLogin has one row per user, made in the transaction that makes the user. Administrators freeze users there, and see
or lift the lock that too many failed logins cause. Freezing ends the user's sessions with its own commit.

Failures are counted under a hash of the user name as it compares. Unknown names are counted too, so that a failed login
does the same work and takes the same time whether or not the user exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidewire.access.passwords import hash_token
from tidewire.access.sessions import end_sessions
from tidewire.errors import FieldsInconsistent
from tidewire.events import Change, Value
from tidewire.ids import case_suffix
from tidewire.records.settings import OrgSettings
from tidewire.records.table import insert_row, read_all_rows, read_rows, try_read_row, update_row
from tidewire.records.touched import changes_of
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.text_keys import fold_key
from tidewire.storage.store import Transaction

NAME = "UserLogin"
_FOREVER_MS = 1 << 52
_MINUTE_MS = 60_000


def user_login_id(catalog: Catalog, user_id: str) -> str:
    """Return the id of a user's row: the user's id with another prefix."""
    own = catalog.object(NAME).key_prefix + user_id[3:15]
    return own + case_suffix(own)


def follow_users(unit: UnitOfWork, changes: Sequence[Change]) -> None:
    """Insert rows for new users, and end the sessions of users who were deactivated or frozen.

    Called inside the transaction of the changes.
    """
    for change in changes_of(changes, "User", NAME):
        after = change.after
        if after is None:
            continue
        if change.entity == "User":
            if change.before is None:
                _insert(unit.tx, unit.catalog, change.record_id, unit.user_id, unit.now_ms)
            if not after["IsActive"]:
                end_sessions(unit.tx, "user_id", change.record_id)
            continue
        user_id = str(after["UserId"])
        if after["IsFrozen"]:
            end_sessions(unit.tx, "user_id", user_id)
        if change.before is not None and change.before["IsPasswordLocked"] and not after["IsPasswordLocked"]:
            clear_failures(unit.tx, _username(unit.tx, unit.catalog, user_id))


def ensure_user_logins(tx: Transaction, catalog: Catalog, now_ms: int) -> None:
    """Insert missing rows: those of users older than the object UserLogin."""
    users = read_all_rows(tx, catalog.object("User"))
    known = {row["UserId"] for row in read_all_rows(tx, catalog.object(NAME))}
    for user in users:
        if user["Id"] not in known:
            _insert(tx, catalog, str(user["Id"]), str(user["CreatedById"]), now_ms)


def is_frozen(tx: Transaction, catalog: Catalog, user_id: str) -> bool:
    """Whether an administrator has frozen the user."""
    row = try_read_row(tx, catalog.object(NAME), user_login_id(catalog, user_id))
    return row is not None and bool(row["IsFrozen"])


def note_lock(tx: Transaction, catalog: Catalog, user_id: str, username: str, now_ms: int) -> None:
    """Update IsPasswordLocked in a user's row."""
    obj, row_id = catalog.object(NAME), user_login_id(catalog, user_id)
    row = try_read_row(tx, obj, row_id)
    locked = is_locked(tx, username, now_ms)
    # Written past the unit of work on purpose: a lock must not cause events or change LastModifiedDate.
    if row is not None and bool(row["IsPasswordLocked"]) != locked:
        update_row(tx, obj, row_id, {"IsPasswordLocked": locked})


def note_ended_locks(tx: Transaction, catalog: Catalog, now_ms: int) -> None:
    """Clear IsPasswordLocked in rows whose lock has expired."""
    for row in read_all_rows(tx, catalog.object(NAME)):
        if row["IsPasswordLocked"]:
            user_id = str(row["UserId"])
            note_lock(tx, catalog, user_id, _username(tx, catalog, user_id), now_ms)


def unlock(tx: Transaction, catalog: Catalog, user_id: str, username: str, now_ms: int) -> None:
    """Delete a user's failure count and lock."""
    clear_failures(tx, username)
    note_lock(tx, catalog, user_id, username, now_ms)


def store_password(tx: Transaction, catalog: Catalog, user_id: str, password_hash: str, now_ms: int) -> None:
    """Store the hash of a user's password, and the date of the change."""
    tx.execute(
        "INSERT INTO passwords (user_id, hash) VALUES (?, ?) ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash",
        (user_id, password_hash),
    )
    moment: dict[str, Value] = {"LastPasswordChangeDate": now_ms - now_ms % 1000}
    update_row(tx, catalog.object("User"), user_id, moment)


def check_user_login(
    unit: UnitOfWork, obj: ObjectType, record_id: str | None, row: Mapping[str, object]
) -> None:
    """Raise FieldsInconsistent if users would freeze themselves, or set a lock, which only failed logins do."""
    before: Mapping[str, Value] = try_read_row(unit.tx, obj, record_id or "") or {}
    if _is_on(row.get("IsFrozen")) and before.get("UserId") == unit.user_id:
        raise FieldsInconsistent("You cannot freeze yourself", fields=["IsFrozen"])
    if _is_on(row.get("IsPasswordLocked")) and not before.get("IsPasswordLocked"):
        raise FieldsInconsistent("IsPasswordLocked can only be set to false", fields=["IsPasswordLocked"])


def is_locked(tx: Transaction, username: str, now_ms: int) -> bool:
    """Whether the name is locked out now."""
    rows = tx.execute(
        "SELECT locked_until_ms FROM failed_logins WHERE name_hash = ?", (_name_hash(username),)
    )
    return bool(rows) and int(rows[0][0]) > now_ms


def note_failure(tx: Transaction, username: str, settings: OrgSettings, now_ms: int) -> None:
    """Count a failed login, and lock the name at the limit. An existing lock is not extended."""
    key = _name_hash(username)
    rows = tx.execute(
        "SELECT failures, last_ms, locked_until_ms FROM failed_logins WHERE name_hash = ?", (key,)
    )
    failures, last_ms, locked_until_ms = rows[0] if rows else (0, now_ms, 0)
    if locked_until_ms > now_ms:
        return
    window_ms = (settings.lockout_minutes or 24 * 60) * _MINUTE_MS
    failures = 1 if locked_until_ms or now_ms - last_ms > window_ms else failures + 1
    locks = 0 < settings.lockout_attempts <= failures
    lock_ms = settings.lockout_minutes * _MINUTE_MS if settings.lockout_minutes else _FOREVER_MS
    tx.execute(
        "INSERT INTO failed_logins (name_hash, failures, last_ms, locked_until_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (name_hash) DO UPDATE SET failures = excluded.failures, last_ms = excluded.last_ms,"
        " locked_until_ms = excluded.locked_until_ms",
        (key, failures, now_ms, now_ms + lock_ms if locks else 0),
    )


def clear_failures(tx: Transaction, username: str) -> None:
    """Delete the failure count and lock of a name."""
    tx.execute("DELETE FROM failed_logins WHERE name_hash = ?", (_name_hash(username),))


def purge_failures(tx: Transaction, settings: OrgSettings, now_ms: int) -> None:
    """Delete expired counts and locks."""
    window_ms = (settings.lockout_minutes or 24 * 60) * _MINUTE_MS
    tx.execute(
        "DELETE FROM failed_logins WHERE last_ms < ? AND locked_until_ms < ?", (now_ms - window_ms, now_ms)
    )


def _is_on(value: object) -> bool:
    return str(value).lower() in ("true", "1")


def _insert(tx: Transaction, catalog: Catalog, user_id: str, by: str, now_ms: int) -> None:
    second_ms = now_ms - now_ms % 1000
    row: dict[str, Value] = {
        "Id": user_login_id(catalog, user_id),
        "UserId": user_id,
        "IsFrozen": False,
        "IsPasswordLocked": False,
    }
    row |= dict.fromkeys(("CreatedDate", "LastModifiedDate", "SystemModstamp"), second_ms)
    row |= dict.fromkeys(("CreatedById", "LastModifiedById"), by)
    insert_row(tx, catalog.object(NAME), row)


def _username(tx: Transaction, catalog: Catalog, user_id: str) -> str:
    """Return a user's name; empty if the user no longer exists."""
    rows = read_rows(tx, catalog.object("User"), "Id", [user_id])
    return str(rows[0]["Username"]) if rows else ""


def _name_hash(username: str) -> str:
    return hash_token(fold_key(username))
