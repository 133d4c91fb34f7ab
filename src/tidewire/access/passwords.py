"""Passwords and tokens: argon2id for what people choose, SHA-256 for what we draw at random."""

from __future__ import annotations

import hashlib
import secrets
import string

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from tidewire.ids import short_id

_TOKEN_LETTERS = string.ascii_letters + string.digits + "_"
_hasher = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)  # OWASP's minimum for argon2id
_DECOY = _hasher.hash(secrets.token_hex(16))


def hash_password(password: str) -> str:
    """The form in which a password is stored. Slow on purpose: call it off the loop."""
    return _hasher.hash(password)


def is_password(stored: str | None, password: str) -> bool:
    """Whether `password` fits. Takes as long for an unknown user (`stored` None) as for a wrong password."""
    try:
        _hasher.verify(stored or _DECOY, password)
    except (VerifyMismatchError, InvalidHashError):
        return False
    return stored is not None


def draw_token(org_id: str) -> str:
    """A new session token: the org's 15-character id, `!`, and about 570 random bits that XML and URLs leave
    alone.
    """
    return f"{short_id(org_id)}!" + "".join(secrets.choice(_TOKEN_LETTERS) for _ in range(96))


def hash_token(token: str) -> str:
    """The form in which a token or an app secret is stored; it has enough randomness not to need a slow hash."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
