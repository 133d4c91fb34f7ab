"""Hashes passwords and tokens: argon2id for passwords that people choose, SHA-256 for random tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from tidewire.errors import PasswordInvalid
from tidewire.ids import short_id

MIN_LENGTH = 8
MAX_LENGTH = 1_000
SECURITY_TOKEN_LENGTH = 24
_TOKEN_LETTERS = string.ascii_letters + string.digits + "_"
# The hash of a discarded random text, with OWASP's minimum cost for argon2id. Its parameters are used for every hash.
_DECOY = "$argon2id$v=19$m=19456,t=2,p=1$yyK5bP1n7tjaKTlIpcQKDA$pEW4ki8qimYefqeQqm1Z28DVcMgrMhG2m5um/qpzPNE"
_hasher = PasswordHasher.from_parameters(extract_parameters(_DECOY))


def hash_password(password: str) -> str:
    """Hash a password for storage. Slow on purpose: call it off the loop."""
    return _hasher.hash(password)


def is_password(stored: str | None, password: str) -> bool:
    """Whether the password is right. Takes as long for an unknown user (`stored` None) as for a wrong password."""
    try:
        _hasher.verify(stored or _DECOY, password[: MAX_LENGTH + 1])
    except (VerifyMismatchError, InvalidHashError):
        return False
    return stored is not None


def draw_token(org_id: str) -> str:
    """Generate a session token: the org's 15-character id, `!`, and about 570 random bits that XML and URLs accept."""
    return f"{short_id(org_id)}!" + "".join(secrets.choice(_TOKEN_LETTERS) for _ in range(96))


def hash_token(token: str) -> str:
    """Hash a token or app secret for storage. Its randomness makes a slow hash unnecessary."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_new_password(password: str) -> None:
    """Raise PasswordInvalid for a password that is too short, too simple or cannot be stored."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise PasswordInvalid(f"Your password must be {MIN_LENGTH} to {MAX_LENGTH} characters long")
    if not password.strip() or len(set(password)) == 1:
        raise PasswordInvalid("Your password must not repeat one character")
    if any("\ud800" <= c <= "\udfff" or c == "\0" for c in password):
        raise PasswordInvalid("Your password contains a character that cannot be stored")


def draw_password() -> str:
    """Generate a random password."""
    return secrets.token_urlsafe(15)


def draw_security_token() -> str:
    """Generate a security token, which users append to their password at addresses that are not trusted."""
    return "".join(secrets.choice(_TOKEN_LETTERS[:-1]) for _ in range(SECURITY_TOKEN_LENGTH))


def split_security_token(submitted: str, token_hash: str) -> tuple[str, bool]:
    """Split a submitted password into the password and whether the user's security token followed it."""
    tail = submitted[-SECURITY_TOKEN_LENGTH:]
    if token_hash and is_same_hash(token_hash, hash_token(tail)):
        return submitted[:-SECURITY_TOKEN_LENGTH], True
    return submitted, False


def is_same_hash(stored: str, given: str) -> bool:
    """Compare two hashes in constant time."""
    return hmac.compare_digest(stored.encode(), given.encode())
