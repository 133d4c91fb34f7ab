"""The device flow against a live server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oauth import Admin, Browser, reads_data, refused, token
from tidewire.config import DEV_USERNAME
from tidewire.testing import READER_USERNAME, ServerProcess


@pytest.fixture(scope="module")
def admin(server: ServerProcess) -> Admin:
    return Admin(server)


@pytest.fixture(scope="module")
def app(admin: Admin) -> dict[str, str]:
    return admin.make_web_app()


def begin(server: ServerProcess, app: dict[str, str], **form: str) -> dict[str, Any]:
    answer = token(server, response_type="device_code", client_id=app["client_id"], **form)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def decide(server: ServerProcess, user_code: str, action: str, username: str = READER_USERNAME) -> str:
    browser = Browser(server)
    form = browser.sign_in(browser.get(f"/setup/connect?user_code={user_code}"), username)
    consent = browser.send(form, user_code=user_code.lower())
    assert "Test app" in consent.text
    return browser.send(consent, action=action).text


def poll(server: ServerProcess, app: dict[str, str], device_code: str) -> tuple[str, str]:
    return refused(token(server, grant_type="device", client_id=app["client_id"], code=device_code))


def test_allowed_device_gets_tokens_once(server: ServerProcess, app: dict[str, str], admin: Admin) -> None:
    started = begin(server, app, scope="api refresh_token")
    assert started["verification_uri"] == f"{server.http}/setup/connect"
    assert started["interval"] == 5
    assert "connected" in decide(server, started["user_code"], "allow")
    code = started["device_code"]
    answer = token(server, grant_type="device", client_id=app["client_id"], code=code)
    body = answer.json()
    assert answer.status_code == 200, answer.text
    assert body["id"].endswith(admin.user_id(READER_USERNAME))
    assert reads_data(server, body["access_token"]).status_code == 200
    refreshed = token(server, app, grant_type="refresh_token", refresh_token=body["refresh_token"])
    assert refreshed.status_code == 200
    assert poll(server, app, code)[0] == "invalid_grant"


def test_waiting_device_is_told_to_wait_and_a_hasty_one_to_slow_down(
    server: ServerProcess, app: dict[str, str]
) -> None:
    code = begin(server, app)["device_code"]
    assert poll(server, app, code)[0] == "authorization_pending"
    # A busy machine may take the few seconds between two polls that are allowed, but not every time.
    hasty = (poll(server, app, code)[0] for _ in range(10))
    assert next(error for error in hasty if error != "authorization_pending") == "slow_down"


def test_denied_device_is_told(server: ServerProcess, app: dict[str, str]) -> None:
    started = begin(server, app)
    assert "denied" in decide(server, started["user_code"], "deny", DEV_USERNAME)
    assert poll(server, app, started["device_code"])[0] == "access_denied"


def test_wrong_codes_are_refused(server: ServerProcess, app: dict[str, str], admin: Admin) -> None:
    assert poll(server, app, "nonsense")[0] == "invalid_grant"
    started = begin(server, app)
    other = admin.make_web_app()
    assert poll(server, other, started["device_code"])[0] == "invalid_grant"
    browser = Browser(server)
    form = browser.sign_in(browser.get("/setup/connect"), DEV_USERNAME)
    assert "No device is waiting" in browser.send(form, user_code="BBBBBBBB").text
    # The answer belongs to the code it was asked for.
    consent = browser.send(form, user_code=started["user_code"])
    swapped = begin(server, app)["user_code"]
    assert "Connect a device" in browser.send(consent, action="allow", user_code=swapped).text
    stranger = browser.send(consent, {"Origin": "https://evil.example.org"}, action="allow")
    assert "Connect a device" in stranger.text


@pytest.mark.parametrize(
    "form, error", [({"client_id": "nobody"}, "invalid_client_id"), ({"scope": "full"}, "invalid_scope")]
)
def test_wrong_start_is_refused(
    server: ServerProcess, app: dict[str, str], form: dict[str, str], error: str
) -> None:
    given = {"response_type": "device_code", "client_id": app["client_id"], **form}
    assert refused(token(server, **given))[0] == error


def test_app_without_the_flow_is_refused(server: ServerProcess, admin: Admin) -> None:
    app = admin.make_web_app(flows=["web_server"])
    answer = token(server, response_type="device_code", client_id=app["client_id"])
    assert refused(answer)[0] == "invalid_app_access"
