"""OAuth's device flow: a program without a browser shows a short code, which its user types into a browser.

The device polls with a long code until the user has answered. Codes are valid for ten minutes; polling faster than the
given interval is rejected. All functions run in their caller's transaction.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tidewire.access.authorizations import draw_code
from tidewire.access.passwords import hash_token
from tidewire.access.scopes import parse_scopes, render_scopes
from tidewire.errors import LimitExceeded
from tidewire.storage.store import Reader, Transaction

INTERVAL_S = 5
_LIFE_MS = 600_000
_MAX_OPEN = 10_000
_EARLY_MS = 500  # tolerance, so that a device that waits exactly the interval is not rejected
# No vowels, so that codes do not spell words, and no characters that look alike.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_CODE_LENGTH = 8

PENDING, APPROVED, DENIED = "pending", "approved", "denied"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A device's request and the user's answer to it."""

    client_id: str
    scopes: frozenset[str]
    user_id: str
    answer: str
    expires_ms: int


def begin_device(
    tx: Transaction, org_id: str, client_id: str, scopes: frozenset[str], now_ms: int
) -> tuple[str, str]:
    """Store a request; return the device's code and the user's code. Raises LimitExceeded if too many wait."""
    tx.execute("DELETE FROM device_codes WHERE expires_ms < ?", (now_ms - _LIFE_MS,))
    ((waiting,),) = tx.execute("SELECT COUNT(*) FROM device_codes")
    if waiting >= _MAX_OPEN:
        raise LimitExceeded(
            "too many devices are waiting for approval; retry in a few minutes", limit=_MAX_OPEN
        )
    device_code = draw_code(org_id)
    user_code = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LENGTH))
    tx.execute(
        "INSERT INTO device_codes (code_hash, user_code, client_id, scopes, user_id, answer, expires_ms, polled_ms)"
        " VALUES (?, ?, ?, ?, '', ?, ?, 0)",
        (hash_token(device_code), user_code, client_id, render_scopes(scopes), PENDING, now_ms + _LIFE_MS),
    )
    return device_code, user_code


def normalise_user_code(text: str) -> str:
    """Remove blanks, dashes and other characters that a code cannot have."""
    return "".join(c for c in text.upper()[:40] if c in _LETTERS)


def try_read_by_user_code(reader: Reader | Transaction, user_code: str, now_ms: int) -> DeviceRequest | None:
    """Read the pending request with this user code."""
    rows = reader.execute(
        "SELECT client_id, scopes, user_id, answer, expires_ms FROM device_codes"
        " WHERE user_code = ? AND answer = ? AND expires_ms > ?",
        (user_code, PENDING, now_ms),
    )
    return _request(rows[0]) if rows else None


def answer_device(tx: Transaction, user_code: str, user_id: str, answer: str, now_ms: int) -> bool:
    """Store the user's answer; return whether the request was still pending."""
    if try_read_by_user_code(tx, user_code, now_ms) is None:
        return False
    tx.execute(
        "UPDATE device_codes SET user_id = ?, answer = ? WHERE user_code = ?", (user_id, answer, user_code)
    )
    return True


def poll_device(tx: Transaction, device_code: str, now_ms: int) -> tuple[DeviceRequest | None, bool]:
    """Read a device's request and whether the device polled too early; record the time of the poll."""
    rows = tx.execute(
        "SELECT client_id, scopes, user_id, answer, expires_ms, polled_ms FROM device_codes WHERE code_hash = ?",
        (hash_token(device_code),),
    )
    if not rows:
        return None, False
    polled_ms = rows[0][5]
    tx.execute("UPDATE device_codes SET polled_ms = ? WHERE code_hash = ?", (now_ms, hash_token(device_code)))
    return _request(rows[0][:5]), now_ms - polled_ms < INTERVAL_S * 1000 - _EARLY_MS


def take_device(tx: Transaction, device_code: str) -> bool:
    """Delete an answered request; return whether it existed."""
    key = (hash_token(device_code),)
    if not tx.execute("SELECT 1 FROM device_codes WHERE code_hash = ?", key):
        return False
    tx.execute("DELETE FROM device_codes WHERE code_hash = ?", key)
    return True


def _request(row: tuple[object, ...]) -> DeviceRequest:
    client_id, scopes, user_id, answer, expires_ms = row
    return DeviceRequest(
        str(client_id), parse_scopes(str(scopes)), str(user_id), str(answer), int(str(expires_ms))
    )
