"""Failed logins, counted for every user name alike, and the lock that too many of them bring.

The count stands under a hash of the name as it compares. Names that nobody has are counted too, so that a
refused login does the same work and takes the same time whether or not there is such a user.
"""

from __future__ import annotations

from tidewire.access.passwords import hash_token
from tidewire.records.settings import OrgSettings
from tidewire.schema.text_keys import fold_key
from tidewire.storage.store import Transaction

_FOR_EVER_MS = 1 << 52
_MINUTE_MS = 60_000


def is_locked(tx: Transaction, username: str, now_ms: int) -> bool:
    """Whether this name may not sign in now, whatever the password."""
    rows = tx.execute("SELECT locked_until_ms FROM failed_logins WHERE name_hash = ?", (_key(username),))
    return bool(rows) and int(rows[0][0]) > now_ms


def note_failure(tx: Transaction, username: str, settings: OrgSettings, now_ms: int) -> None:
    """Count a failed login; the last one allowed locks. A lock that holds already is not made longer."""
    key = _key(username)
    rows = tx.execute(
        "SELECT failures, last_ms, locked_until_ms FROM failed_logins WHERE name_hash = ?", (key,)
    )
    failures, last_ms, locked_until_ms = rows[0] if rows else (0, now_ms, 0)
    if locked_until_ms > now_ms:
        return
    window_ms = (settings.lockout_minutes or 24 * 60) * _MINUTE_MS
    failures = 1 if locked_until_ms or now_ms - last_ms > window_ms else failures + 1
    locks = 0 < settings.lockout_attempts <= failures
    lock_ms = settings.lockout_minutes * _MINUTE_MS if settings.lockout_minutes else _FOR_EVER_MS
    tx.execute(
        "INSERT INTO failed_logins (name_hash, failures, last_ms, locked_until_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (name_hash) DO UPDATE SET failures = excluded.failures, last_ms = excluded.last_ms,"
        " locked_until_ms = excluded.locked_until_ms",
        (key, failures, now_ms, now_ms + lock_ms if locks else 0),
    )


def clear_failures(tx: Transaction, username: str) -> None:
    """Forget the failures of a name, and its lock."""
    tx.execute("DELETE FROM failed_logins WHERE name_hash = ?", (_key(username),))


def purge_failures(tx: Transaction, settings: OrgSettings, now_ms: int) -> None:
    """Drop the counts that no longer matter."""
    window_ms = (settings.lockout_minutes or 24 * 60) * _MINUTE_MS
    tx.execute(
        "DELETE FROM failed_logins WHERE last_ms < ? AND locked_until_ms < ?", (now_ms - window_ms, now_ms)
    )


def _key(username: str) -> str:
    return hash_token(fold_key(username))
