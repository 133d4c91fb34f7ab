"""The device flow: a program without a browser shows a short code, and its user types that code elsewhere.

The device holds a long code and asks with it until the user has answered. A code lives ten minutes; asking more often
than told is refused. All functions are parts of a transaction.
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
_EARLY_MS = 500  # a device that waits just as long as told must not be late by its own clock
# No vowels, so that no words come about, and nothing that looks like something else.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_CODE_LENGTH = 8

PENDING, APPROVED, DENIED = "pending", "approved", "denied"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One device that waits, or has been answered."""

    client_id: str
    scopes: frozenset[str]
    user_id: str
    answer: str
    expires_ms: int


def begin_device(
    tx: Transaction, org_id: str, client_id: str, scopes: frozenset[str], now_ms: int
) -> tuple[str, str]:
    """The device's code and its user's. Raises LimitExceeded if too many devices wait."""
    tx.execute("DELETE FROM device_codes WHERE expires_ms < ?", (now_ms - _LIFE_MS,))
    ((waiting,),) = tx.execute("SELECT COUNT(*) FROM device_codes")
    if waiting >= _MAX_OPEN:
        raise LimitExceeded("too many devices wait for an answer", limit=_MAX_OPEN)
    device_code = draw_code(org_id)
    user_code = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LENGTH))
    tx.execute(
        "INSERT INTO device_codes (code_hash, user_code, client_id, scopes, user_id, answer, expires_ms, polled_ms)"
        " VALUES (?, ?, ?, ?, '', ?, ?, 0)",
        (hash_token(device_code), user_code, client_id, render_scopes(scopes), PENDING, now_ms + _LIFE_MS),
    )
    return device_code, user_code


def normalise_user_code(text: str) -> str:
    """A code as a person typed it, without what they added."""
    return "".join(c for c in text.upper()[:40] if c in _LETTERS)


def try_read_by_user_code(reader: Reader | Transaction, user_code: str, now_ms: int) -> DeviceRequest | None:
    """The device that shows this code and still waits."""
    rows = reader.execute(
        "SELECT client_id, scopes, user_id, answer, expires_ms FROM device_codes"
        " WHERE user_code = ? AND answer = ? AND expires_ms > ?",
        (user_code, PENDING, now_ms),
    )
    return _request(rows[0]) if rows else None


def answer_device(tx: Transaction, user_code: str, user_id: str, answer: str, now_ms: int) -> bool:
    """Store what the user decided; returns whether the device still waited."""
    if try_read_by_user_code(tx, user_code, now_ms) is None:
        return False
    tx.execute(
        "UPDATE device_codes SET user_id = ?, answer = ? WHERE user_code = ?", (user_id, answer, user_code)
    )
    return True


def poll_device(tx: Transaction, device_code: str, now_ms: int) -> tuple[DeviceRequest | None, bool]:
    """What became of a device's request, and whether it asked again too soon."""
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
    """Use an answered request up; returns whether it was still there."""
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
