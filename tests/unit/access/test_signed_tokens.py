"""Signed tokens: which assertions are accepted, and that id tokens verify without the library that signs them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tidewire.access.signed_tokens import (
    MAX_ASSERTION_LENGTH,
    ensure_signing_key,
    parse_assertion,
    verify_assertion,
)
from tidewire.errors import GrantInvalid

NOW_S = 1_800_000_000
AUDIENCE = "https://login.salesforce.com"
HEADER = '{"alg": "RS256"}'
CLAIMS = f'{{"iss": "app", "sub": "a@b.c", "aud": "{AUDIENCE}", "exp": {NOW_S + 60}}}'
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def sign(header: str = HEADER, claims: str = CLAIMS) -> str:
    signed = f"{encode(header.encode())}.{encode(claims.encode())}"
    return f"{signed}.{encode(KEY.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def verify(text: str) -> None:
    verify_assertion(parse_assertion(text), KEY.public_key(), frozenset({AUDIENCE}), NOW_S)


def test_assertion_signed_by_hand_is_accepted() -> None:
    verify(sign())


@pytest.mark.parametrize(
    "header",
    [
        '{"alg": "none"}',
        '{"alg": "HS256"}',
        '{"alg": "RS512"}',
        '{"alg": "rs256"}',
        '{"alg": ["RS256"]}',
        "{}",
        '{"alg": "RS256", "crit": []}',
        '{"alg": "RS256", "crit": ["x"], "x": 1}',
    ],
)
def test_assertion_with_another_algorithm_or_critical_header_is_rejected(header: str) -> None:
    with pytest.raises(GrantInvalid, match=r"^invalid assertion: the algorithm must be RS256$"):
        parse_assertion(sign(header))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        sign() + ".x",
        sign(claims="[]"),
        sign(claims="{" * 3000),
        sign(claims='{"iss": NaNN}'),
        sign(header='{"alg": "RS256", "b64": false}'),
        f"é{sign()}",
        "x" * (MAX_ASSERTION_LENGTH + 1),
    ],
)
def test_malformed_assertion_is_rejected(text: str) -> None:
    with pytest.raises(GrantInvalid, match=r"^invalid assertion$"):
        parse_assertion(text)


def test_assertion_with_a_changed_signature_is_rejected() -> None:
    signed, _, signature = sign().rpartition(".")
    changed = ("A" if signature[0] != "A" else "B") + signature[1:]
    for each in (f"{signed}.{changed}", f"{signed}.", f"{signed}.{signature[:-4]}"):
        with pytest.raises(GrantInvalid, match=r"^invalid assertion$"):
            verify(each)


def test_repeated_claim_counts_with_its_last_value() -> None:
    assert parse_assertion(sign(claims=CLAIMS[:-1] + ', "iss": "other"}')).issuer == "other"


def test_digest_follows_the_token_id_or_else_the_signed_bytes() -> None:
    plain = parse_assertion(sign())
    assert plain.digest() == parse_assertion(sign()).digest()
    assert plain.digest() != parse_assertion(sign(claims=CLAIMS.replace("a@b.c", "x@b.c"))).digest()
    named = [CLAIMS[:-1] + f', "jti": "1", "extra": {extra}}}' for extra in (1, 2)]
    first, second = (parse_assertion(sign(claims=each)).digest() for each in named)
    assert first == second


def test_id_token_verifies_by_the_published_key(tmp_path: Path) -> None:
    key = ensure_signing_key(tmp_path / "key.pem")
    header, claims, signature = key.sign({"iss": "https://x", "n": 1}).split(".")
    assert json.loads(decode(header)) == {"alg": "RS256", "typ": "JWT", "kid": key.key_id}
    assert json.loads(decode(claims)) == {"iss": "https://x", "n": 1}
    jwk = key.render_jwk()
    assert set(jwk) == {"kty", "use", "alg", "kid", "n", "e"}
    modulus, exponent = (int.from_bytes(decode(jwk[name]), "big") for name in ("n", "e"))
    rsa.RSAPublicNumbers(exponent, modulus).public_key().verify(
        decode(signature), f"{header}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
    )
