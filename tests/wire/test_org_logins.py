"""Every way of signing in finds the second org of a server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests

from tests.oauth import Browser, landed
from tests.two_orgs import API, B_ADMIN, B_CLIENT, Pair, running_pair
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME

CALLBACK = "https://app.example.org/callback?kind=web"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("pair") / "data") as running:
        yield running


def ask_token(pair: Pair, **form: str) -> requests.Response:
    credentials = {"client_id": B_CLIENT, "client_secret": pair.b_secret}
    return requests.post(f"{pair.b.server.http}/services/oauth2/token", data=credentials | form, timeout=120)


def assert_of_b(pair: Pair, answer: requests.Response) -> dict[str, str]:
    """The token is org B's and opens it."""
    body: dict[str, str] = answer.json()
    assert answer.status_code == 200, body
    assert body["access_token"].startswith(pair.b.org_id[:15] + "!")
    assert pair.b.org_id in body["id"]
    headers = {"Authorization": f"Bearer {body['access_token']}"}
    url = f"{pair.b.server.http}{API}/query?q=SELECT+Id+FROM+Organization"
    assert requests.get(url, headers=headers, timeout=120).json()["records"][0]["Id"] == pair.b.org_id
    return body


def test_password_and_client_credentials(pair: Pair) -> None:
    assert_of_b(pair, ask_token(pair, grant_type="password", username=B_ADMIN, password=pair.b.password))
    assert_of_b(pair, ask_token(pair, grant_type="client_credentials"))


def test_web_server_flow_with_code_refresh_and_revocation(pair: Pair) -> None:
    app = {"client_id": B_CLIENT}
    browser = Browser(pair.b.server)
    page = browser.sign_in(browser.authorize(app, scope="api refresh_token"), B_ADMIN, pair.b.password)
    code = landed(browser.send(page, action="allow"))["code"]
    issued = assert_of_b(
        pair, ask_token(pair, grant_type="authorization_code", code=code, redirect_uri=CALLBACK)
    )
    refresh = issued["refresh_token"]
    assert_of_b(pair, ask_token(pair, grant_type="refresh_token", refresh_token=refresh))
    url = f"{pair.b.server.http}/services/oauth2"
    form = {"client_id": B_CLIENT, "client_secret": pair.b_secret, "token": refresh}
    assert requests.post(f"{url}/introspect", data=form, timeout=120).json()["username"] == B_ADMIN
    assert requests.post(f"{url}/revoke", data={"token": refresh}, timeout=120).status_code == 200
    assert requests.post(f"{url}/introspect", data=form, timeout=120).json() == {"active": False}


def test_browser_signed_in_to_one_org_is_asked_again_for_an_app_of_the_other(pair: Pair) -> None:
    browser = Browser(pair.b.server)
    app = {"client_id": B_CLIENT}
    browser.sign_in(browser.authorize(app, scope="api"), B_ADMIN, pair.b.password)
    dev = {"client_id": DEV_CLIENT_ID, "redirect_uri": "http://localhost/callback", "scope": "api"}
    page = browser.authorize(app, **dev)
    assert 'name="password"' in page.text
    assert 'name="password"' in browser.sign_in(page, B_ADMIN, pair.b.password).text  # not that org's user
    assert 'value="allow"' in browser.sign_in(page, DEV_USERNAME, DEV_PASSWORD).text


def test_device_flow(pair: Pair) -> None:
    begun = ask_token(pair, response_type="device_code", scope="api").json()
    browser = Browser(pair.b.server)
    page = browser.sign_in(browser.get("/setup/connect"), B_ADMIN, pair.b.password)
    asked = browser.send(page, action="code", user_code=begun["user_code"])
    browser.send(asked, action="allow")
    assert_of_b(pair, ask_token(pair, grant_type="device", code=begun["device_code"]))


def test_device_code_of_one_org_is_unknown_to_the_users_of_the_other(pair: Pair) -> None:
    begun = ask_token(pair, response_type="device_code", scope="api").json()
    browser = Browser(pair.a.server)
    page = browser.sign_in(browser.get("/setup/connect"), DEV_USERNAME, DEV_PASSWORD)
    asked = browser.send(page, action="code", user_code=begun["user_code"])
    assert "No device is waiting with this code" in asked.text


def test_app_id_that_two_orgs_use_is_told_apart_by_its_secret(pair: Pair) -> None:
    app = {"label": "Twin", "client_id": DEV_CLIENT_ID, "flows": ["client_credentials"], "scopes": ["api"]}
    made = pair.b.done("POST", "/services/tidewire/v1/apps", {**app, "run_as": B_ADMIN})
    twin = {"client_id": DEV_CLIENT_ID, "client_secret": made["client_secret"]}
    assert_of_b(pair, ask_token(pair, grant_type="client_credentials", **twin))
    form = {"grant_type": "password", "username": DEV_USERNAME, "password": DEV_PASSWORD}
    own = ask_token(pair, client_id=DEV_CLIENT_ID, client_secret=DEV_CLIENT_SECRET, **form)
    assert own.json()["access_token"].startswith(pair.a.org_id[:15] + "!")
    # Other tests, which run in any order, ask for the app of the first org by this id.
    pair.b.done("POST", "/services/tidewire/v1/apply", {"remove": {"connected_apps": [DEV_CLIENT_ID]}})


def test_user_name_of_another_org_cannot_be_taken(pair: Pair) -> None:
    spec: dict[str, object] = {"users": {B_ADMIN.upper(): {}}}
    refused = pair.a.call("POST", "/services/tidewire/v1/apply", spec)
    assert refused.status_code == 400
    assert re.search("DUPLICATE", refused.text)
