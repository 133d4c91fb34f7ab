"""The web server and user-agent flows against a live server: pages, codes, refresh tokens and their errors."""

from __future__ import annotations

from urllib.parse import urlencode

import jwt
import pytest
import requests

from tests.oauth import CALLBACK, PASSWORD, Admin, Browser, landed, pkce, reads_data, refused, token
from tidewire.config import DEV_USERNAME
from tidewire.testing import READER_USERNAME, ServerProcess


@pytest.fixture(scope="module")
def admin(server: ServerProcess) -> Admin:
    return Admin(server)


@pytest.fixture
def app(admin: Admin) -> dict[str, str]:
    return admin.make_web_app()


def get_code(server: ServerProcess, app: dict[str, str], username: str = DEV_USERNAME, **values: str) -> str:
    browser = Browser(server)
    consent = browser.sign_in(browser.authorize(app, **values), username)
    return landed(browser.send(consent, action="allow"))["code"]


def exchange(server: ServerProcess, app: dict[str, str], code: str, **changes: str) -> requests.Response:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, **changes}
    return token(server, app, **form)


def test_user_signs_in_allows_and_the_app_gets_tokens(server: ServerProcess, app: dict[str, str]) -> None:
    verifier, challenge = pkce()
    browser = Browser(server)
    login = browser.authorize(app, state="a&b=c d", code_challenge=challenge, nonce="n-1")
    assert login.status_code == 200
    consent = browser.sign_in(login, DEV_USERNAME)
    assert "Test app" in consent.text
    assert DEV_USERNAME in consent.text
    back = landed(browser.send(consent, action="allow"))
    assert back["state"] == "a&b=c d"
    answer = exchange(server, app, back["code"], code_verifier=verifier)
    body = answer.json()
    assert answer.status_code == 200, answer.text
    assert set(body["scope"].split()) == {"api", "refresh_token", "openid", "id", "profile", "email"}
    assert reads_data(server, body["access_token"]).status_code == 200
    key = jwt.PyJWKClient(f"{server.http}/id/keys").get_signing_key_from_jwt(body["id_token"])
    told = jwt.decode(
        body["id_token"], key, algorithms=["RS256"], audience=app["client_id"], issuer=server.http
    )
    assert (told["sub"], told["nonce"], told["preferred_username"]) == (body["id"], "n-1", DEV_USERNAME)


def test_second_visit_needs_neither_login_nor_consent(server: ServerProcess, app: dict[str, str]) -> None:
    browser = Browser(server)
    consent = browser.sign_in(browser.authorize(app), READER_USERNAME)
    landed(browser.send(consent, action="allow"))
    assert "code" in landed(browser.authorize(app, state="s"))
    assert "Allow access?" in browser.authorize(app, prompt="consent").text
    assert "Sign in" in browser.authorize(app, prompt="login").text
    assert "code" in landed(browser.authorize(app, prompt="none"))


def test_prompt_none_never_shows_a_page(server: ServerProcess, app: dict[str, str]) -> None:
    browser = Browser(server)
    assert landed(browser.authorize(app, prompt="none"))["error"] == "login_required"
    browser.sign_in(browser.authorize(app), DEV_USERNAME)
    assert landed(browser.authorize(app, immediate="true"))["error"] == "immediate_unsuccessful"


def test_denied_consent_is_told_to_the_app(server: ServerProcess, app: dict[str, str]) -> None:
    browser = Browser(server)
    consent = browser.sign_in(browser.authorize(app, state="s1"), DEV_USERNAME)
    back = landed(browser.send(consent, action="deny"))
    assert back == {
        "kind": "web",
        "error": "access_denied",
        "error_description": "end-user denied authorization",
        "state": "s1",
    }


@pytest.mark.parametrize(
    "values",
    [
        {"redirect_uri": "https://evil.example.org/callback"},
        {"redirect_uri": CALLBACK + "&more=1"},
        {"redirect_uri": CALLBACK.upper()},
        {"redirect_uri": "https://app.example.org/callback"},
        {"redirect_uri": "javascript:alert(1)"},
        {"redirect_uri": ""},
        {"client_id": "nobody"},
        {"client_id": "<script>alert(1)</script>"},
    ],
)
def test_wrong_app_or_address_is_never_redirected(
    server: ServerProcess, app: dict[str, str], values: dict[str, str]
) -> None:
    answer = Browser(server).authorize(app, **values)
    assert answer.status_code == 400
    assert "Location" not in answer.headers
    assert "<script" not in answer.text


@pytest.mark.parametrize(
    "values, error",
    [
        ({"response_type": "magic"}, "unsupported_response_type"),
        ({"response_type": ""}, "unsupported_response_type"),
        ({"scope": "api nonsense"}, "invalid_scope"),
        ({"scope": "full"}, "invalid_scope"),
        ({"code_challenge": "A" * 43, "code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
    ],
)
def test_other_mistakes_travel_back_to_the_app(
    server: ServerProcess, app: dict[str, str], values: dict[str, str], error: str
) -> None:
    back = landed(Browser(server).authorize(app, state="s2", **values))
    assert (back["error"], back["state"]) == (error, "s2")


def test_public_app_has_to_use_pkce(server: ServerProcess, admin: Admin) -> None:
    app = admin.make_web_app(public=True)
    assert landed(Browser(server).authorize(app))["error"] == "invalid_request"
    verifier, challenge = pkce()
    code = get_code(server, app, code_challenge=challenge)
    assert refused(exchange(server, app, code)) == ("invalid_grant", "invalid code verifier")
    assert exchange(server, app, code, code_verifier=verifier).status_code == 200


def test_code_serves_once_and_its_second_use_takes_the_tokens_back(
    server: ServerProcess, app: dict[str, str]
) -> None:
    code = get_code(server, app)
    body = exchange(server, app, code).json()
    assert refused(exchange(server, app, code)) == ("invalid_grant", "expired authorization code")
    assert reads_data(server, body["access_token"]).status_code == 401
    again = token(server, app, grant_type="refresh_token", refresh_token=body["refresh_token"])
    assert refused(again) == ("invalid_grant", "expired access/refresh token")


def test_code_is_bound_to_app_address_verifier_and_secret(
    server: ServerProcess, app: dict[str, str], admin: Admin
) -> None:
    verifier, challenge = pkce()
    code = get_code(server, app, code_challenge=challenge)
    good = {"code_verifier": verifier}
    assert refused(exchange(server, admin.make_web_app(), code, **good)) == (
        "invalid_grant",
        "invalid authorization code",
    )
    assert (
        refused(exchange(server, app, code, redirect_uri="https://x", **good))[0] == "redirect_uri_mismatch"
    )
    for wrong in ("", "x" * 43, pkce()[0]):
        assert refused(exchange(server, app, code, code_verifier=wrong))[0] == "invalid_grant"
    assert refused(exchange(server, app, code, client_secret="wrong", **good))[0] == "invalid_client"
    assert refused(exchange(server, app, code, client_secret="", **good))[0] == "invalid_client"
    assert refused(exchange(server, app, "nonsense", **good))[0] == "invalid_grant"
    assert refused(exchange(server, app, "", **good))[0] == "invalid_request"
    assert exchange(server, app, code, **good).status_code == 200


def test_verifier_without_a_challenge_is_refused(server: ServerProcess, app: dict[str, str]) -> None:
    code = get_code(server, app)
    assert refused(exchange(server, app, code, code_verifier=pkce()[0]))[0] == "invalid_grant"


def test_refresh_token_gives_new_access_tokens_until_revoked(
    server: ServerProcess, app: dict[str, str]
) -> None:
    body = exchange(server, app, get_code(server, app)).json()
    refresh = body["refresh_token"]
    renewed = token(server, app, grant_type="refresh_token", refresh_token=refresh).json()
    assert "refresh_token" not in renewed
    assert renewed["id"] == body["id"]
    narrow = token(server, app, grant_type="refresh_token", refresh_token=refresh, scope="id").json()
    assert narrow["scope"] == "id"
    answer = reads_data(server, narrow["access_token"])
    assert answer.status_code == 401
    assert answer.json() == [
        {
            "message": "This session is not valid for use with the REST API",
            "errorCode": "INVALID_SESSION_ID",
        }
    ]
    wide = token(server, app, grant_type="refresh_token", refresh_token=refresh, scope="full")
    assert refused(wide)[0] == "invalid_scope"
    revoke = f"{server.http}/services/oauth2/revoke"
    assert requests.post(revoke, data={"token": refresh}, timeout=120).status_code == 200
    for access in (body["access_token"], renewed["access_token"]):
        assert reads_data(server, access).status_code == 401
    gone = token(server, app, grant_type="refresh_token", refresh_token=refresh)
    assert refused(gone) == ("invalid_grant", "expired access/refresh token")


def test_refresh_token_of_another_app_is_refused(
    server: ServerProcess, app: dict[str, str], admin: Admin
) -> None:
    refresh = exchange(server, app, get_code(server, app)).json()["refresh_token"]
    answer = token(server, admin.make_web_app(), grant_type="refresh_token", refresh_token=refresh)
    assert refused(answer)[0] == "invalid_grant"
    assert token(server, app, grant_type="refresh_token", refresh_token=refresh).status_code == 200


def test_rotated_refresh_token_is_dead_and_its_reuse_ends_the_grant(
    server: ServerProcess, admin: Admin
) -> None:
    app = admin.make_web_app(rotates_refresh=True)
    first = exchange(server, app, get_code(server, app)).json()["refresh_token"]
    second = token(server, app, grant_type="refresh_token", refresh_token=first).json()
    assert second["refresh_token"] != first
    stolen = token(server, app, grant_type="refresh_token", refresh_token=first)
    assert refused(stolen)[0] == "invalid_grant"
    heir = token(server, app, grant_type="refresh_token", refresh_token=second["refresh_token"])
    assert refused(heir)[0] == "invalid_grant"
    assert reads_data(server, second["access_token"]).status_code == 401


def test_deactivated_user_cannot_refresh(server: ServerProcess, app: dict[str, str], admin: Admin) -> None:
    name = admin.make_user()
    browser = Browser(server)
    consent = browser.sign_in(browser.authorize(app), name, PASSWORD)
    code = landed(browser.send(consent, action="allow"))["code"]
    body = exchange(server, app, code).json()
    admin.apply(users={name: {"active": False}})
    assert reads_data(server, body["access_token"]).status_code == 401
    answer = token(server, app, grant_type="refresh_token", refresh_token=body["refresh_token"])
    assert refused(answer)[0] == "inactive_user"
    assert "Sign in" in browser.authorize(app).text


def test_user_agent_flow_puts_the_token_behind_the_hash(server: ServerProcess, app: dict[str, str]) -> None:
    browser = Browser(server)
    consent = browser.sign_in(
        browser.authorize(app, response_type="token", scope="api id", state="s"), DEV_USERNAME
    )
    answer = browser.send(consent, action="allow")
    assert answer.headers["Location"].startswith(CALLBACK + "#")
    back = landed(answer)
    assert (back["token_type"], back["state"]) == ("Bearer", "s")
    assert "refresh_token" not in back
    assert reads_data(server, back["access_token"]).status_code == 200
    denied = landed(browser.authorize(app, response_type="token", scope="nope"))
    assert denied["error"] == "invalid_scope"


def test_app_without_the_flow_gets_an_error(server: ServerProcess, admin: Admin) -> None:
    app = admin.make_web_app(flows=["web_server"])
    assert landed(Browser(server).authorize(app, response_type="token"))["error"] == "invalid_app_access"


def test_pages_forbid_scripts_and_frames(server: ServerProcess, app: dict[str, str]) -> None:
    page = Browser(server).authorize(app, login_hint='"><script>alert(1)</script>')
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' https://app.example.org;" in policy
    assert "unsafe" not in policy
    assert page.headers["X-Frame-Options"] == "DENY"
    assert "no-store" in page.headers["Cache-Control"]
    assert "<script" not in page.text
    cookie = page.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


def test_login_form_of_another_site_is_refused(server: ServerProcess, app: dict[str, str]) -> None:
    browser = Browser(server)
    page = browser.authorize(app)
    for values, headers in (
        ({"form": "0" * 64}, {}),
        ({"form": ""}, {}),
        ({}, {"Origin": "https://evil.example.org"}),
        ({}, {"Origin": "null"}),
        ({}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        answer = browser.send(page, headers, username=DEV_USERNAME, password="tidewire", **values)
        assert answer.status_code == 401
        assert "sid=" not in answer.headers["Set-Cookie"]
    # A form that was given to one browser is of no use in another.
    other = Browser(server)
    other.authorize(app)
    assert other.send(page, username=DEV_USERNAME, password="tidewire").status_code == 401


def test_consent_of_another_request_or_user_is_refused(server: ServerProcess, app: dict[str, str]) -> None:
    browser = Browser(server)
    consent = browser.sign_in(browser.authorize(app, scope="id"), DEV_USERNAME)
    asked = urlencode(
        {
            "response_type": "code",
            "client_id": app["client_id"],
            "redirect_uri": CALLBACK,
            "scope": "api refresh_token",
        }
    )
    assert "Allow access?" in browser.send(consent, action="allow", request=asked).text
    other = Browser(server)
    other.sign_in(other.authorize(app, scope="id"), READER_USERNAME)
    assert "Allow access?" in other.send(consent, action="allow").text
    assert "Sign in" in Browser(server).send(consent, action="allow").text


def test_page_refuses_wrong_passwords_and_locks_like_every_login(
    server: ServerProcess, app: dict[str, str], admin: Admin
) -> None:
    name = admin.make_user()
    browser = Browser(server)
    page = browser.authorize(app)
    wrong = [browser.sign_in(page, name, "wrong password") for _ in range(10)]
    assert {answer.status_code for answer in wrong} == {401}
    assert 'role="alert"' in wrong[0].text
    locked = browser.sign_in(page, name, PASSWORD)
    assert locked.status_code == 401
    assert locked.text.partition("<form")[0] == wrong[0].text.partition("<form")[0]
    admin.call("POST", f"/services/tidewire/v1/users/{admin.user_id(name)}/unlock")
    assert "Allow access?" in browser.sign_in(page, name, PASSWORD).text


def test_browser_session_is_none_for_the_api(server: ServerProcess, app: dict[str, str]) -> None:
    browser = Browser(server)
    browser.sign_in(browser.authorize(app), DEV_USERNAME)
    sid = browser.session.cookies["sid"]
    assert reads_data(server, sid).status_code == 401
    # Nor is an API token a browser session.
    thief = Browser(server)
    thief.session.cookies.set("sid", server.login())
    assert "Sign in" in thief.authorize(app).text


def test_user_without_api_gets_no_api_token(server: ServerProcess, app: dict[str, str], admin: Admin) -> None:
    admin.apply(profiles={"No_API": {"permissions": []}})
    name = admin.make_user(profile="No_API")
    browser = Browser(server)
    consent = browser.sign_in(browser.authorize(app, scope="openid id"), name, PASSWORD)
    code = landed(browser.send(consent, action="allow"))["code"]
    assert exchange(server, app, code).status_code == 200
    consent = browser.authorize(app, scope="api")
    code = landed(browser.send(consent, action="allow"))["code"]
    assert refused(exchange(server, app, code))[0] == "invalid_app_access"
