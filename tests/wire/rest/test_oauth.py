"""Signing in by OAuth against a live server."""

from __future__ import annotations

import base64
from urllib.parse import parse_qs

import pytest
import requests

from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

GRANT = {
    "grant_type": "password",
    "client_id": DEV_CLIENT_ID,
    "client_secret": DEV_CLIENT_SECRET,
    "username": DEV_USERNAME,
    "password": DEV_PASSWORD,
}


def token_answer(server: ServerProcess, **changes: str) -> requests.Response:
    form = {name: value for name, value in (GRANT | changes).items() if value}
    return requests.post(f"{server.http}/services/oauth2/token", data=form, timeout=120)


def assert_refused(answer: requests.Response, error: str) -> None:
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error", "error_description"}
    assert answer.json()["error"] == error


def test_password_grant_gives_a_working_token(server: ServerProcess) -> None:
    answer = token_answer(server)
    body = answer.json()
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    assert body["token_type"] == "Bearer"
    assert body["instance_url"] == server.http
    assert body["id"].startswith(f"{server.http}/id/{server.org_id}/005")
    assert body["issued_at"].isdigit()
    headers = {"Authorization": f"OAuth {body['access_token']}"}
    assert requests.get(f"{server.http}/services/data/v59.0", headers=headers, timeout=120).status_code == 200


def test_instance_url_echoes_scheme_and_host(server: ServerProcess) -> None:
    url = server.https.replace("localhost", "127.0.0.1")
    answer = requests.post(
        f"{url}/services/oauth2/token", data=GRANT, timeout=120, verify=str(server.ca_path)
    )
    assert answer.json()["instance_url"] == url
    assert answer.json()["id"].startswith(f"{url}/id/")


def test_client_may_sign_in_by_basic_authentication(server: ServerProcess) -> None:
    form = {name: value for name, value in GRANT.items() if not name.startswith("client")}
    basic = base64.b64encode(f"{DEV_CLIENT_ID}:{DEV_CLIENT_SECRET}".encode()).decode()
    url = f"{server.http}/services/oauth2/token"
    good = requests.post(url, data=form, headers={"Authorization": f"Basic {basic}"}, timeout=120)
    assert good.status_code == 200
    bad = requests.post(url, data=form, headers={"Authorization": "Basic ???"}, timeout=120)
    assert_refused(bad, "invalid_client_id")


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"password": "wrong"}, "invalid_grant"),
        ({"username": "nobody@example.com"}, "invalid_grant"),
        ({"client_id": "nope"}, "invalid_client_id"),
        ({"client_id": ""}, "invalid_client_id"),
        ({"client_secret": "nope"}, "invalid_client"),
        ({"grant_type": "magic"}, "unsupported_grant_type"),
        ({"grant_type": ""}, "unsupported_grant_type"),
        ({"username": ""}, "invalid_request"),
    ],
)
def test_wrong_grant_is_refused(server: ServerProcess, changes: dict[str, str], error: str) -> None:
    assert_refused(token_answer(server, **changes), error)


def test_wrong_password_and_unknown_user_look_alike(server: ServerProcess) -> None:
    wrong = token_answer(server, password="wrong")
    unknown = token_answer(server, username="nobody@example.com")
    assert wrong.content == unknown.content


def test_body_that_is_no_form_is_refused(server: ServerProcess) -> None:
    answer = requests.post(f"{server.http}/services/oauth2/token", json=GRANT, timeout=120)
    assert_refused(answer, "unsupported_grant_type")


def test_userinfo_and_identity_tell_who_it_is(server: ServerProcess) -> None:
    body = token_answer(server).json()
    headers = {"Authorization": f"Bearer {body['access_token']}"}
    for method in ("GET", "POST"):
        info = requests.request(
            method, f"{server.http}/services/oauth2/userinfo", headers=headers, timeout=120
        ).json()
        assert info["organization_id"] == server.org_id
        assert info["preferred_username"] == DEV_USERNAME
        assert body["id"].endswith(info["user_id"])
    for identity in (
        requests.get(body["id"], headers=headers, timeout=120),
        requests.get(body["id"], params={"oauth_token": body["access_token"]}, timeout=120),
    ):
        assert identity.json()["username"] == DEV_USERNAME
        assert identity.json()["id"] == body["id"]


def test_identity_and_userinfo_refuse_bad_tokens_in_plain_text(server: ServerProcess) -> None:
    url = f"{server.http}/services/oauth2/userinfo"
    missing = requests.get(url, timeout=120)
    assert (missing.status_code, missing.text) == (403, "Missing_OAuth_Token")
    bad = requests.get(url, headers={"Authorization": "Bearer 00D!nope"}, timeout=120)
    assert (bad.status_code, bad.text) == (403, "Bad_OAuth_Token")


def test_identity_of_another_user_or_org_is_not_told(server: ServerProcess) -> None:
    body = token_answer(server).json()
    headers = {"Authorization": f"Bearer {body['access_token']}"}
    org_url, _, _ = body["id"].rpartition("/")
    other_user = requests.get(f"{org_url}/005000000000001AAA", headers=headers, timeout=120)
    assert other_user.status_code == 404
    other_org = requests.get(f"{server.http}/id/00D000000000001EAA/x", headers=headers, timeout=120)
    assert other_org.status_code == 403


def test_revoked_token_is_dead(server: ServerProcess) -> None:
    token = token_answer(server).json()["access_token"]
    url = f"{server.http}/services/oauth2/revoke"
    assert requests.post(url, data={"token": token}, timeout=120).status_code == 200
    headers = {"Authorization": f"Bearer {token}"}
    after = requests.get(f"{server.http}/services/data/v59.0", headers=headers, timeout=120)
    assert after.json()[0]["errorCode"] == "INVALID_SESSION_ID"
    again = requests.post(url, data={"token": token}, timeout=120)
    assert again.status_code == 400
    assert parse_qs(again.text)["error"] == ["invalid_token"]
