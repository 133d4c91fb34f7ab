"""Signed JSON Web Tokens: assertions that apps send, and id tokens that the server issues. RS256 only.

PyJWT parses, verifies and signs. The algorithm is fixed here and never taken from the token. Times and audiences are
checked here too, because they follow an injected clock and the original service's rules (an expiry may be text or
milliseconds). Import this module only when a token is handled, in a thread: the libraries behind it take ten megabytes
of memory that most servers never need.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tidewire.errors import DefinitionInvalid, GrantInvalid

MAX_ASSERTION_LENGTH = 10_000
MAX_LIFE_S = 300
_ALGORITHM = "RS256"
_SKEW_S = 180
_KEY_BITS = 2048
_MIN_KEY_BITS = 2048
_MILLISECONDS_FROM = 1e11
_MILLISECONDS_END = 1e14


@dataclass(frozen=True, slots=True)
class Assertion:
    """The claims of a parsed assertion. Untrusted until `verify_assertion` accepts it."""

    text: str
    issuer: str
    subject: str
    audiences: tuple[str, ...]
    expires_s: float
    not_before_s: float
    token_id: str

    def digest(self) -> str:
        """Return a hash that identifies the assertion: by its `jti` claim, or without one by all signed bytes."""
        key = f"{self.issuer}\n{self.token_id}" if self.token_id else self.text.rpartition(".")[0]
        return hashlib.sha256(key.encode()).hexdigest()


def parse_assertion(text: str) -> Assertion:
    """Parse an assertion without verifying it, to learn which app's key it needs. Raises GrantInvalid."""
    if len(text) > MAX_ASSERTION_LENGTH or not text.isascii():
        _reject("invalid assertion")
    try:
        token = jwt.decode_complete(text, options={"verify_signature": False})
    except jwt.DecodeError:
        _reject("invalid assertion")
    except jwt.InvalidTokenError:  # a header that PyJWT does not accept, such as any `crit`
        _reject("invalid assertion: the algorithm must be RS256")
    # Checked before any key is loaded, so that no token can choose how it is verified.
    if token["header"].get("alg") != _ALGORITHM or "crit" in token["header"]:
        _reject("invalid assertion: the algorithm must be RS256")
    claims = token["payload"]
    audience = claims.get("aud", ())
    audiences = (audience,) if isinstance(audience, str) else audience
    if not isinstance(audiences, list | tuple) or not all(isinstance(a, str) for a in audiences):
        _reject("audience is invalid")
    return Assertion(
        text=text,
        issuer=_text(claims, "iss"),
        subject=_text(claims, "sub") or _text(claims, "prn"),
        audiences=tuple(audiences),
        expires_s=_expiry(claims.get("exp")),
        not_before_s=_seconds(claims.get("nbf", 0)),
        token_id=_text(claims, "jti"),
    )


def verify_assertion(
    assertion: Assertion, key: rsa.RSAPublicKey, audiences: frozenset[str], now_s: float
) -> None:
    """Raise GrantInvalid unless `key` signed the assertion, one of `audiences` is meant, and it is valid now."""
    try:
        jwt.api_jws.decode(assertion.text, key, algorithms=[_ALGORITHM])
    except jwt.InvalidTokenError:
        _reject("invalid assertion")
    if not audiences.intersection(a.rstrip("/") for a in assertion.audiences):
        _reject("audience is invalid")
    if assertion.expires_s <= now_s:
        _reject("assertion has expired")
    if assertion.expires_s > now_s + MAX_LIFE_S + _SKEW_S:
        _reject("assertion expires too far in the future")
    if assertion.not_before_s > now_s + _SKEW_S:
        _reject("assertion is not valid yet")


def load_public_key(pem: str) -> rsa.RSAPublicKey:
    """Load the RSA key of a PEM certificate or public key. Raises DefinitionInvalid."""
    key: object
    try:
        if "BEGIN CERTIFICATE" in pem:
            key = x509.load_pem_x509_certificate(pem.encode()).public_key()
        else:
            key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, TypeError):
        _reject_certificate("must be a PEM certificate or public key")
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < _MIN_KEY_BITS:
        _reject_certificate(f"must hold an RSA key of at least {_MIN_KEY_BITS} bits")
    return key


class SigningKey:
    """The server's own key, which signs id tokens."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        spki = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.key_id = hashlib.sha256(spki).hexdigest()[:16]

    def sign(self, claims: Mapping[str, object]) -> str:
        """Return the claims as a signed token."""
        return jwt.encode(dict(claims), self._key, algorithm=_ALGORITHM, headers={"kid": self.key_id})

    def render_jwk(self) -> dict[str, str]:
        """Render the public half as a JSON Web Key."""
        numbers = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        named = {"kty": "RSA", "use": "sig", "alg": _ALGORITHM, "kid": self.key_id}
        return {**named, "n": numbers["n"], "e": numbers["e"]}


def ensure_signing_key(path: Path) -> SigningKey:
    """Load the key in this file, or create it. Creating takes a while: call it off the loop."""
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


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name, "")
    if not isinstance(value, str):
        _reject("invalid assertion")
    return value


def _expiry(value: object) -> float:
    """Return when an assertion expires, in seconds.

    The original's own command line adds 300 to a clock that counts milliseconds. So an expiry in milliseconds is read
    as the time of signing, and the assertion lives the longest allowed time from there.
    """
    expiry = _number(value)
    return expiry if expiry < _MILLISECONDS_FROM else expiry / 1000 + MAX_LIFE_S


def _seconds(value: object) -> float:
    seconds = _number(value)
    if seconds >= _MILLISECONDS_FROM:
        _reject("invalid assertion: exp is not a moment")
    return seconds


def _number(value: object) -> float:
    """Return a time claim as a number; some clients send it as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        _reject("invalid assertion: exp is missing")
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        _reject("invalid assertion: exp is not a number")
    if not 0 <= seconds < _MILLISECONDS_END:
        _reject("invalid assertion: exp is not a moment")
    return seconds


def _reject(description: str) -> NoReturn:
    raise GrantInvalid(description, oauth_error="invalid_grant")


def _reject_certificate(reason: str) -> NoReturn:
    raise DefinitionInvalid(f"certificate: {reason}", path="certificate")
