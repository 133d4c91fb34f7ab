"""JSON Web Tokens, RS256 only: assertions that apps sign, and id tokens that we sign. Pure, but for the key file.

The algorithm is ours to say, never the token's: an assertion whose header names any other is refused before a key
is touched.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tidewire.errors import GrantInvalid

MAX_ASSERTION_LENGTH = 10_000
_MAX_LIFE_S = 300
_SKEW_S = 180
_KEY_BITS = 2048
_MILLISECONDS_FROM = 1e11
_MILLISECONDS_END = 1e14


@dataclass(frozen=True, slots=True)
class Assertion:
    """A parsed assertion. Nothing in it may be believed before `verify`."""

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
        _refuse("invalid assertion")
    header, claims = _decode_json(parts[0]), _decode_json(parts[1])
    if header.get("alg") != "RS256" or "crit" in header:
        _refuse("invalid assertion: the algorithm must be RS256")
    audience = claims.get("aud", ())
    audiences = (audience,) if isinstance(audience, str) else audience
    if not isinstance(audiences, list | tuple) or not all(isinstance(a, str) for a in audiences):
        _refuse("audience is invalid")
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


def verify(assertion: Assertion, key: rsa.RSAPublicKey, audiences: frozenset[str], now_s: float) -> None:
    """Raises GrantInvalid unless the key's owner signed it, for us, for now."""
    try:
        key.verify(assertion.signature, assertion.signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        _refuse("invalid assertion")
    if not audiences.intersection(a.rstrip("/") for a in assertion.audiences):
        _refuse("audience is invalid")
    if assertion.expires_s <= now_s:
        _refuse("assertion has expired")
    if assertion.expires_s > now_s + _MAX_LIFE_S + _SKEW_S:
        _refuse("assertion expires too far in the future")
    if assertion.not_before_s > now_s + _SKEW_S:
        _refuse("assertion is not valid yet")


class SigningKey:
    """The server's own key, for id tokens."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        spki = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.key_id = hashlib.sha256(spki).hexdigest()[:16]

    def sign(self, claims: Mapping[str, object]) -> str:
        """The claims as a signed token."""
        head = _encode(json.dumps({"alg": "RS256", "typ": "JWT", "kid": self.key_id}).encode())
        signed = f"{head}.{_encode(json.dumps(claims).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encode(signature)}"

    def render_jwk(self) -> dict[str, str]:
        """The public half as a JSON Web Key."""
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.key_id,
            "n": _encode(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
            "e": _encode(numbers.e.to_bytes((numbers.e.bit_length() + 7) // 8, "big")),
        }


def ensure_signing_key(path: Path) -> SigningKey:
    """The key in this file, made if there is none. Takes a moment then: call it off the loop."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if isinstance(key, rsa.RSAPrivateKey):
            return SigningKey(key)
    except (FileNotFoundError, ValueError):
        pass
    made = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    pem = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    return SigningKey(made)


def token_digest(token: str) -> str:
    """The `at_hash` of an access token: half of its SHA-256."""
    return _encode(hashlib.sha256(token.encode()).digest()[:16])


def _refuse(description: str) -> NoReturn:
    raise GrantInvalid(description, oauth_error="invalid_grant")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        _refuse("invalid assertion")


def _decode_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(_decode(text))
    except (ValueError, RecursionError):
        _refuse("invalid assertion")
    if not isinstance(value, dict):
        _refuse("invalid assertion")
    return value


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name, "")
    if not isinstance(value, str):
        _refuse("invalid assertion")
    return value


def _expiry(value: object) -> float:
    """When an assertion expires. The platform's own command line adds 300 to a clock that counts milliseconds, so
    an expiry in milliseconds is when the assertion was made, and it lives for as long as one may from there.
    """
    moment = _number(value)
    return moment if moment < _MILLISECONDS_FROM else moment / 1000 + _MAX_LIFE_S


def _seconds(value: object) -> float:
    """A moment of our times."""
    seconds = _number(value)
    if seconds >= _MILLISECONDS_FROM:
        _refuse("invalid assertion: exp is not a moment")
    return seconds


def _number(value: object) -> float:
    """A moment; some clients send it as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        _refuse("invalid assertion: exp is missing")
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        _refuse("invalid assertion: exp is not a number")
    if not 0 <= seconds < _MILLISECONDS_END:
        _refuse("invalid assertion: exp is not a moment")
    return seconds
