"""Client credentials, introspection, revocation, identity and discovery against a live server."""

from __future__ import annotations

import json
from urllib.parse import parse_qs
from xml.etree.ElementTree import fromstring

import pytest
import requests

from tests.oauth import PASSWORD, Admin, reads_data, refused, token
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import READER_USERNAME, ServerProcess

DEV_APP = {"client_id": DEV_CLIENT_ID, "client_secret": DEV_CLIENT_SECRET}


@pytest.fixture(scope="module")
def admin(server: ServerProcess) -> Admin:
    return Admin(server)


def sign_in(server: ServerProcess, username: str = DEV_USERNAME) -> dict[str, str]:
    answer = token(server, DEV_APP, grant_type="password", username=username, password=DEV_PASSWORD)
    assert answer.status_code == 200, answer.text
    body: dict[str, str] = answer.json()
    return body


def bearer(body: dict[str, str]) -> dict[str, str]:
    return {"Authorization": f"Bearer {body['access_token']}"}


def test_client_credentials_act_as_the_apps_user(server: ServerProcess, admin: Admin) -> None:
    app = admin.make_app(flows=["client_credentials"], scopes=["api", "id"], run_as=READER_USERNAME)
    url = f"{server.http}/services/oauth2/token"
    form = {"grant_type": "client_credentials"}
    basic = requests.post(url, data=form, auth=(app["client_id"], app["client_secret"]), timeout=120)
    for answer in (token(server, app, **form), basic):
        assert answer.status_code == 200, answer.text
        assert answer.json()["id"].endswith(admin.user_id(READER_USERNAME))
        assert reads_data(server, answer.json()["access_token"]).status_code == 200
    narrow = token(server, app, scope="id", **form).json()
    assert narrow["scope"] == "id"
    assert refused(token(server, app, scope="web", **form))[0] == "invalid_scope"
    wrong = token(server, {**app, "client_secret": "x"}, **form)
    assert refused(wrong) == ("invalid_client", "invalid client credentials")
    shared = requests.post(url, data={**app, **form}, headers={"Host": "login.salesforce.com"}, timeout=120)
    assert refused(shared) == ("invalid_grant", "request not supported on this domain")


def test_client_credentials_without_a_user_are_refused(server: ServerProcess) -> None:
    answer = token(server, DEV_APP, grant_type="client_credentials")
    assert refused(answer) == ("invalid_grant", "no client credentials user enabled")


def test_rotated_secret_replaces_the_old_one(server: ServerProcess, admin: Admin) -> None:
    app = admin.make_app(flows=["client_credentials"], run_as=READER_USERNAME)
    path = f"/services/tidewire/v1/apps/{app['client_id']}"
    fresh = admin.call("POST", f"{path}/secret").json()
    form = {"grant_type": "client_credentials"}
    assert refused(token(server, app, **form))[0] == "invalid_client"
    access = token(server, fresh, **form).json()["access_token"]
    assert admin.call("DELETE", path).status_code == 204
    assert refused(token(server, fresh, **form))[0] == "invalid_client_id"
    assert reads_data(server, access).status_code == 401


@pytest.mark.parametrize(
    "values",
    [
        {"flows": ["magic"]},
        {"scopes": ["nonsense"]},
        {"flows": ["web_server"]},
        {"flows": ["web_server"], "callback_urls": ["javascript:alert(1)"]},
        {"flows": ["web_server"], "callback_urls": ["https://a.example.org/#x"]},
        {"flows": ["jwt_bearer"]},
        {"flows": ["jwt_bearer"], "certificate": "no PEM"},
        {"flows": ["client_credentials"]},
        {"flows": ["client_credentials"], "run_as": "nobody@example.org"},
        {"flows": "password"},
        {"client_id": "has space"},
        {"colour": "red"},
        {"public": "yes"},
    ],
)
def test_app_that_could_not_work_is_refused(admin: Admin, values: dict[str, object]) -> None:
    answer = admin.call("POST", "/services/tidewire/v1/apps", {"label": "Bad", **values})
    assert answer.status_code == 400, answer.text
    assert answer.json()[0]["errorCode"] == "INVALID_DEFINITION"


def test_only_administrators_reach_apps_sessions_and_other_users(server: ServerProcess, admin: Admin) -> None:
    headers = bearer(sign_in(server, READER_USERNAME))
    other = admin.user_id(DEV_USERNAME)
    for method, path in (
        ("GET", "apps"),
        ("POST", "apps"),
        ("DELETE", f"apps/{DEV_CLIENT_ID}"),
        ("POST", f"apps/{DEV_CLIENT_ID}/secret"),
        ("GET", "sessions"),
        ("DELETE", "sessions/x"),
        ("POST", f"users/{other}/password"),
        ("POST", f"users/{other}/unlock"),
        ("POST", f"users/{other}/security-token"),
        ("DELETE", f"users/{other}/security-token"),
    ):
        answer = requests.request(
            method,
            f"{server.http}/services/tidewire/v1/{path}",
            json={"label": "x"} if method == "POST" else None,
            headers=headers,
            timeout=120,
        )
        assert answer.status_code == 403, (method, path, answer.text)


def test_introspection_tells_an_app_about_its_own_tokens(server: ServerProcess, admin: Admin) -> None:
    url = f"{server.http}/services/oauth2/introspect"
    access = sign_in(server)["access_token"]
    told = requests.post(url, data={**DEV_APP, "token": access}, timeout=120).json()
    assert told["active"] is True
    assert (told["username"], told["client_id"], told["token_type"]) == (
        DEV_USERNAME,
        DEV_CLIENT_ID,
        "access_token",
    )
    assert told["exp"] - told["iat"] >= 7200
    other = admin.make_web_app()
    assert requests.post(url, data={**other, "token": access}, timeout=120).json() == {"active": False}
    assert requests.post(url, data={**DEV_APP, "token": "x"}, timeout=120).json() == {"active": False}
    wrong = {**DEV_APP, "client_secret": "x", "token": access}
    assert refused(requests.post(url, data=wrong, timeout=120))[0] == "invalid_client"
    assert refused(requests.post(url, data=DEV_APP, timeout=120))[0] == "invalid_request"


def test_revocation_answers_jsonp_only_for_a_plain_name(server: ServerProcess) -> None:
    url = f"{server.http}/services/oauth2/revoke"
    access = sign_in(server)["access_token"]
    bad = requests.get(url, params={"token": "x", "callback": "alert(1)//"}, timeout=120)
    assert bad.status_code == 400
    assert "alert" not in bad.text
    good = requests.get(url, params={"token": access, "callback": "app.done"}, timeout=120)
    assert (good.status_code, good.text) == (200, "/**/app.done({});")
    assert good.headers["X-Content-Type-Options"] == "nosniff"
    assert reads_data(server, access).status_code == 401
    again = requests.get(url, params={"token": access, "callback": "app.done"}, timeout=120)
    assert json.loads(again.text.removeprefix("/**/app.done(").removesuffix(");"))["error"] == "invalid_token"
    none = requests.post(url, timeout=120)
    assert none.status_code == 400
    assert parse_qs(none.text)["error"] == ["unsupported_token_type"]


def test_identity_comes_as_xml_too(server: ServerProcess) -> None:
    body = sign_in(server)
    answer = requests.get(body["id"], params={"format": "xml"}, headers=bearer(body), timeout=120)
    assert answer.headers["Content-Type"].startswith("application/xml")
    root = fromstring(answer.content)
    assert root.tag == "user"
    assert root.findtext("username") == DEV_USERNAME
    assert root.findtext("active") == "true"
    assert "{version}" in (root.findtext("urls/rest") or "")


def test_identity_of_others_is_for_administrators(server: ServerProcess, admin: Admin) -> None:
    boss, reader = sign_in(server), sign_in(server, READER_USERNAME)
    seen = requests.get(reader["id"], headers=bearer(boss), timeout=120)
    assert seen.json()["username"] == READER_USERNAME
    hidden = requests.get(boss["id"], headers=bearer(reader), timeout=120)
    assert (hidden.status_code, hidden.text) == (404, "Bad_Id")


def test_discovery_names_the_endpoints_by_the_callers_host(server: ServerProcess) -> None:
    told = requests.get(f"{server.http}/.well-known/openid-configuration", timeout=120).json()
    assert told["issuer"] == server.http
    assert told["token_endpoint"] == f"{server.http}/services/oauth2/token"
    keys = requests.get(told["jwks_uri"], timeout=120).json()["keys"]
    assert [(k["kty"], k["alg"]) for k in keys] == [("RSA", "RS256")]
    assert "d" not in keys[0]
    settings = requests.get(f"{server.http}/.well-known/auth-configuration", timeout=120).json()
    assert (settings["OrgId"], settings["Url"]) == (server.org_id, server.http)


def test_password_is_set_and_reset_over_rest(server: ServerProcess, admin: Admin) -> None:
    name = admin.make_user()
    path = f"/services/data/v59.0/sobjects/User/{admin.user_id(name)}/password"
    form = {"grant_type": "password", "username": name}
    old = token(server, DEV_APP, password=PASSWORD, **form).json()
    assert admin.call("GET", path).json() == {"isExpired": False}
    assert admin.call("POST", path, {"NewPassword": "another one 22"}).status_code == 204
    assert reads_data(server, old["access_token"]).status_code == 401
    assert refused(token(server, DEV_APP, password=PASSWORD, **form)) == (
        "invalid_grant",
        "authentication failure",
    )
    own = token(server, DEV_APP, password="another one 22", **form).json()
    # The user may do it too, and keeps the session that did it.
    url = server.http + path
    mine = requests.post(url, json={"NewPassword": "a third one 33"}, headers=bearer(own), timeout=120)
    assert mine.status_code == 204
    assert reads_data(server, own["access_token"]).status_code == 200
    short = requests.post(url, json={"NewPassword": "short"}, headers=bearer(own), timeout=120)
    assert short.json()[0]["errorCode"] == "INVALID_NEW_PASSWORD"
    assert requests.post(url, json={}, headers=bearer(own), timeout=120).status_code == 400
    reset = admin.call("DELETE", path).json()["NewPassword"]
    assert token(server, DEV_APP, password=reset, **form).status_code == 200
    others = f"{server.http}/services/data/v59.0/sobjects/User/{admin.user_id(DEV_USERNAME)}/password"
    intruder = token(server, DEV_APP, password=reset, **form).json()
    answer = requests.post(
        others, json={"NewPassword": "a fourth one"}, headers=bearer(intruder), timeout=120
    )
    assert answer.status_code == 403


def test_password_flow_needs_the_app_to_have_it(server: ServerProcess, admin: Admin) -> None:
    app = admin.make_web_app()
    answer = token(server, app, grant_type="password", username=DEV_USERNAME, password=DEV_PASSWORD)
    assert refused(answer)[0] == "invalid_app_access"
