"""JSON Web Tokens, RS256 only: assertions that apps sign, taken apart; `signatures` says whether to believe them. Pure.

The algorithm is ours to say, never the token's: an assertion whose header names any other is refused before a key
is touched.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tidewire.errors import GrantInvalid

MAX_ASSERTION_LENGTH = 10_000
MAX_LIFE_S = 300
_MILLISECONDS_FROM = 1e11
_MILLISECONDS_END = 1e14


@dataclass(frozen=True, slots=True)
class Assertion:
    """A parsed assertion. Nothing in it may be believed before `signatures.verify`."""

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    expires_s: float
    not_before_s: float
    token_id: str
    signed: bytes
    signature: bytes

    def digest(self) -> str:
        """What tells this assertion from every other: its id if the issuer gave one, else all of it."""
        text = f"{self.issuer}\n{self.token_id}".encode() if self.token_id else self.signed
        return hashlib.sha256(text).hexdigest()


def parse_assertion(text: str) -> Assertion:
    """Take an assertion apart. Raises GrantInvalid."""
    parts = text.split(".") if len(text) <= MAX_ASSERTION_LENGTH and text.isascii() else []
    if len(parts) != 3:
        refuse("invalid assertion")
    header, claims = _decode_json(parts[0]), _decode_json(parts[1])
    if header.get("alg") != "RS256" or "crit" in header:
        refuse("invalid assertion: the algorithm must be RS256")
    audience = claims.get("aud", ())
    audiences = (audience,) if isinstance(audience, str) else audience
    if not isinstance(audiences, list | tuple) or not all(isinstance(a, str) for a in audiences):
        refuse("audience is invalid")
    return Assertion(
        issuer=_text(claims, "iss"),
        subject=_text(claims, "sub") or _text(claims, "prn"),
        audiences=tuple(audiences),
        expires_s=_expiry(claims.get("exp")),
        not_before_s=_seconds(claims.get("nbf", 0)),
        token_id=_text(claims, "jti"),
        signed=f"{parts[0]}.{parts[1]}".encode(),
        signature=_decode(parts[2]),
    )


def token_digest(token: str) -> str:
    """The `at_hash` of an access token: half of its SHA-256."""
    return encode_part(hashlib.sha256(token.encode()).digest()[:16])


def refuse(description: str) -> NoReturn:
    """Raise GrantInvalid."""
    raise GrantInvalid(description, oauth_error="invalid_grant")


def encode_part(data: bytes) -> str:
    """One part of a token: base64 as URLs may hold it, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        refuse("invalid assertion")


def _decode_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(_decode(text))
    except (ValueError, RecursionError):
        refuse("invalid assertion")
    if not isinstance(value, dict):
        refuse("invalid assertion")
    return value


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name, "")
    if not isinstance(value, str):
        refuse("invalid assertion")
    return value


def _expiry(value: object) -> float:
    """When an assertion expires. The platform's own command line adds 300 to a clock that counts milliseconds, so
    an expiry in milliseconds is when the assertion was made, and it lives for as long as one may from there.
    """
    moment = _number(value)
    return moment if moment < _MILLISECONDS_FROM else moment / 1000 + MAX_LIFE_S


def _seconds(value: object) -> float:
    """A moment of our times."""
    seconds = _number(value)
    if seconds >= _MILLISECONDS_FROM:
        refuse("invalid assertion: exp is not a moment")
    return seconds


def _number(value: object) -> float:
    """A moment; some clients send it as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        refuse("invalid assertion: exp is missing")
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        refuse("invalid assertion: exp is not a number")
    if not 0 <= seconds < _MILLISECONDS_END:
        refuse("invalid assertion: exp is not a moment")
    return seconds
