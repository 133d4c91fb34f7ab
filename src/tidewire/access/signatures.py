"""Signatures by RSA keys: of apps under their assertions, and ours under id tokens. Pure, but for the key file.

Whoever needs this module imports it when it comes to that: the library behind it takes ten megabytes, and most servers
never see a signature.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tidewire.access.jwt import MAX_LIFE_S, Assertion, encode_part, refuse
from tidewire.errors import DefinitionInvalid

_SKEW_S = 180
_KEY_BITS = 2048
_MIN_KEY_BITS = 2048


def load_public_key(pem: str) -> rsa.RSAPublicKey:
    """The RSA key of a PEM certificate or public key. Raises DefinitionInvalid."""
    key: object
    try:
        if "BEGIN CERTIFICATE" in pem:
            key = x509.load_pem_x509_certificate(pem.encode()).public_key()
        else:
            key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, TypeError):
        _refuse_certificate("must be a PEM certificate or public key")
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < _MIN_KEY_BITS:
        _refuse_certificate(f"must hold an RSA key of at least {_MIN_KEY_BITS} bits")
    return key


def verify(assertion: Assertion, key: rsa.RSAPublicKey, audiences: frozenset[str], now_s: float) -> None:
    """Raises GrantInvalid unless the key's owner signed it, it is meant for us, and it has not expired."""
    try:
        key.verify(assertion.signature, assertion.signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        refuse("invalid assertion")
    if not audiences.intersection(a.rstrip("/") for a in assertion.audiences):
        refuse("audience is invalid")
    if assertion.expires_s <= now_s:
        refuse("assertion has expired")
    if assertion.expires_s > now_s + MAX_LIFE_S + _SKEW_S:
        refuse("assertion expires too far in the future")
    if assertion.not_before_s > now_s + _SKEW_S:
        refuse("assertion is not valid yet")


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
        head = encode_part(json.dumps({"alg": "RS256", "typ": "JWT", "kid": self.key_id}).encode())
        signed = f"{head}.{encode_part(json.dumps(claims).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{encode_part(signature)}"

    def render_jwk(self) -> dict[str, str]:
        """The public half as a JSON Web Key."""
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.key_id,
            "n": encode_part(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
            "e": encode_part(numbers.e.to_bytes((numbers.e.bit_length() + 7) // 8, "big")),
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


def _refuse_certificate(reason: str) -> NoReturn:
    raise DefinitionInvalid(f"certificate: {reason}", path="certificate")
