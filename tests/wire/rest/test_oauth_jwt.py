"""The JWT bearer flow against a live server: good assertions, forged ones, and those seen before."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.oauth import Admin, Browser, landed, reads_data, refused, token
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import READER_USERNAME, ServerProcess

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass(frozen=True)
class Signer:
    key: rsa.RSAPrivateKey
    public_pem: str

    def sign(self, claims: dict[str, object]) -> str:
        return jwt.encode(claims, self.key, algorithm="RS256")


def make_signer() -> Signer:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Signer(key, pem.decode())


@pytest.fixture(scope="module")
def signer() -> Signer:
    return make_signer()


@pytest.fixture(scope="module")
def admin(server: ServerProcess) -> Admin:
    return Admin(server)


@pytest.fixture(scope="module")
def app(admin: Admin, signer: Signer) -> dict[str, str]:
    return admin.make_app(
        flows=["jwt_bearer"], scopes=["api", "id"], certificate=signer.public_pem, preauthorized=True
    )


def claims(server: ServerProcess, app: dict[str, str], **changes: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "iss": app["client_id"],
        "sub": READER_USERNAME,
        "aud": server.http,
        "exp": int(time.time()) + 120,
        "jti": secrets.token_hex(8),
    }
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def test_assertion_gives_a_token_of_its_user(
    server: ServerProcess, signer: Signer, app: dict[str, str], admin: Admin
) -> None:
    answer = token(server, grant_type=GRANT, assertion=signer.sign(claims(server, app)))
    body = answer.json()
    assert answer.status_code == 200, answer.text
    assert body["id"].endswith(admin.user_id(READER_USERNAME))
    assert body["scope"] == "api id"
    assert "refresh_token" not in body
    assert reads_data(server, body["access_token"]).status_code == 200


@pytest.mark.parametrize("audience", ["https://login.salesforce.com", "https://test.salesforce.com/", "own"])
def test_usual_audiences_are_accepted(
    server: ServerProcess, signer: Signer, app: dict[str, str], audience: str
) -> None:
    aud = f"{server.http}/services/oauth2/token" if audience == "own" else audience
    answer = token(server, grant_type=GRANT, assertion=signer.sign(claims(server, app, aud=aud)))
    assert answer.status_code == 200, answer.text


def test_expiry_may_be_text(server: ServerProcess, signer: Signer, app: dict[str, str]) -> None:
    content = claims(server, app, exp=str(int(time.time()) + 100))
    assertion = jwt.api_jws.encode(json.dumps(content).encode(), signer.key, algorithm="RS256")
    assert token(server, grant_type=GRANT, assertion=assertion).status_code == 200


def test_expiry_of_the_command_line_in_milliseconds_is_when_it_was_made(
    server: ServerProcess, signer: Signer, app: dict[str, str]
) -> None:
    now_ms = int(time.time() * 1000)
    # It lives for five minutes; a minute of them is left to a busy machine.
    for exp, status in ((now_ms + 300, 200), (now_ms - 240_000, 200), (now_ms - 301_000, 400)):
        answer = token(server, grant_type=GRANT, assertion=signer.sign(claims(server, app, exp=exp)))
        assert answer.status_code == status, answer.text
    for exp in (now_ms + 1_000_000, 10**14, 10**30):
        answer = token(server, grant_type=GRANT, assertion=signer.sign(claims(server, app, exp=exp)))
        assert answer.json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "changes, error, text",
    [
        ({"aud": "https://elsewhere.example.org"}, "invalid_grant", "audience is invalid"),
        ({"aud": None}, "invalid_grant", "audience is invalid"),
        ({"exp": 1_000_000}, "invalid_grant", "assertion has expired"),
        ({"exp": None}, "invalid_grant", "invalid assertion: exp is missing"),
        ({"exp": 4_000_000_000}, "invalid_grant", "assertion expires too far in the future"),
        ({"nbf": 4_000_000_000}, "invalid_grant", "assertion is not valid yet"),
        ({"sub": "nobody@example.org"}, "invalid_grant", "user hasn't approved this consumer"),
        ({"sub": None}, "invalid_grant", "user hasn't approved this consumer"),
        ({"iss": "nope"}, "invalid_client_id", "client identifier invalid"),
        ({"iss": None}, "invalid_client_id", "client identifier invalid"),
        ({"sub": 7}, "invalid_grant", "invalid assertion"),
    ],
)
def test_wrong_claim_is_refused(
    server: ServerProcess,
    signer: Signer,
    app: dict[str, str],
    changes: dict[str, object],
    error: str,
    text: str,
) -> None:
    assertion = jwt.api_jws.encode(
        json.dumps(claims(server, app, **changes)).encode(), signer.key, algorithm="RS256"
    )
    assert refused(token(server, grant_type=GRANT, assertion=assertion)) == (error, text)


def test_forged_signatures_are_refused(server: ServerProcess, signer: Signer, app: dict[str, str]) -> None:
    content = json.dumps(claims(server, app)).encode()
    good = jwt.api_jws.encode(content, signer.key, algorithm="RS256")
    header, payload, signature = good.split(".")
    other = jwt.api_jws.encode(content, make_signer().key, algorithm="RS256")
    unsigned = jwt.utils.base64url_encode(b'{"alg":"none"}').decode()
    none = f"{unsigned}.{payload}."
    # The public key as the secret of a symmetric algorithm: what a careless verifier would believe.
    hs = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    hs_header = jwt.utils.base64url_encode(b'{"alg":"HS256","typ":"JWT"}').decode()
    hs_signature = hs.sign(f"{hs_header}.{payload}".encode(), signer.public_pem.encode())
    confused = f"{hs_header}.{payload}.{jwt.utils.base64url_encode(hs_signature).decode()}"
    for forged in (
        other,
        none,
        confused,
        f"{header}.{payload}.",
        f"{unsigned}.{payload}.{signature}",
        f"{header}.{payload}",
        f"{header}.{payload}.{signature}.x",
        f"{header}.{payload[:-4]}AAAA.{signature}",
        f"{header}.!!!.{signature}",
        f"{header}.W10.{signature}",
        "x" * 20_000,
    ):
        error, text = refused(token(server, grant_type=GRANT, assertion=forged))
        assert error == "invalid_grant"
        assert text.startswith("invalid assertion")
    assert token(server, grant_type=GRANT, assertion=good).status_code == 200


def test_assertion_serves_once(server: ServerProcess, signer: Signer, app: dict[str, str]) -> None:
    for changes in ({}, {"jti": None}):
        assertion = signer.sign(claims(server, app, **changes))
        assert token(server, grant_type=GRANT, assertion=assertion).status_code == 200
        error, text = refused(token(server, grant_type=GRANT, assertion=assertion))
        assert (error, text) == ("invalid_grant", "invalid assertion: it was used before")
    # The same id in another wrapping is the same assertion.
    first = claims(server, app)
    assert token(server, grant_type=GRANT, assertion=signer.sign(first)).status_code == 200
    again = signer.sign({**first, "extra": 1})
    assert refused(token(server, grant_type=GRANT, assertion=again))[0] == "invalid_grant"


def test_assertion_of_another_app_is_refused(
    server: ServerProcess, signer: Signer, app: dict[str, str], admin: Admin
) -> None:
    theirs = make_signer()
    admin.make_app(flows=["jwt_bearer"], certificate=theirs.public_pem, preauthorized=True)
    assertion = theirs.sign(claims(server, app))
    assert refused(token(server, grant_type=GRANT, assertion=assertion)) == (
        "invalid_grant",
        "invalid assertion",
    )


def test_app_without_the_flow_is_refused(server: ServerProcess, signer: Signer, admin: Admin) -> None:
    other = admin.make_web_app(certificate=signer.public_pem)
    assertion = signer.sign(claims(server, other))
    assert refused(token(server, grant_type=GRANT, assertion=assertion))[0] == "invalid_app_access"


def test_user_has_to_approve_once(server: ServerProcess, signer: Signer, admin: Admin) -> None:
    app = admin.make_web_app(flows=["jwt_bearer", "web_server"], certificate=signer.public_pem)
    assertion = signer.sign(claims(server, app, sub=DEV_USERNAME))
    assert refused(token(server, grant_type=GRANT, assertion=assertion)) == (
        "invalid_grant",
        "user hasn't approved this consumer",
    )
    browser = Browser(server)
    consent = browser.sign_in(browser.authorize(app, scope="api"), DEV_USERNAME, DEV_PASSWORD)
    assert "code" in landed(browser.send(consent, action="allow"))
    again = signer.sign(claims(server, app, sub=DEV_USERNAME))
    answer = token(server, grant_type=GRANT, assertion=again)
    assert answer.status_code == 200, answer.text
    assert answer.json()["scope"] == "api"
    # Another user has approved nothing by that.
    theirs = signer.sign(claims(server, app, sub=READER_USERNAME))
    assert refused(token(server, grant_type=GRANT, assertion=theirs))[0] == "invalid_grant"


def test_inactive_user_is_refused(
    server: ServerProcess, signer: Signer, app: dict[str, str], admin: Admin
) -> None:
    name = admin.make_user(active=False)
    assertion = signer.sign(claims(server, app, sub=name))
    assert refused(token(server, grant_type=GRANT, assertion=assertion))[0] == "inactive_user"
