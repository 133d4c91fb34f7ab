"""Find the org that a REST or OAuth request is for.

A token names its org: it begins with the org's id. A login names it by the user name, an app by its client
id. Nothing is verified here, see `OrgDirectory`.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from tidewire.access.oauth import read_assertion
from tidewire.delivery.front_end import OrgDirectory
from tidewire.errors import AuthHeaderInvalid, GrantInvalid
from tidewire.frontends.rest.oauth.login_form import SESSION_COOKIE, read_cookie
from tidewire.frontends.rest.oauth.wire import client_credentials, given_parameters
from tidewire.frontends.rest.wire import parse_form, parse_segments, parse_token
from tidewire.transport.http import HttpRequest, cached_by_head


@cached_by_head
def try_find_token(request: HttpRequest) -> str | None:
    """Return the bearer token of a request to the data API, None if it has none or is for something else."""
    if (parse_segments(request.raw_path) or ())[:2] != ("services", "data"):
        return None
    try:
        return parse_token(request)
    except AuthHeaderInvalid:
        return None


async def find_org(request: HttpRequest, orgs: OrgDirectory) -> str:
    """Return the id of the org that any other request is for."""
    match parse_segments(request.raw_path) or ():
        case ("services", "oauth2", "token"):
            return await _find_for_grant(request, orgs)
        case ("services", "oauth2", "authorize") | ("setup", "connect"):
            return await _find_for_page(request, orgs)
        case ("services", "oauth2", "revoke" | "introspect"):
            given = given_parameters(request)
            return await _find_by_code(given.get("token", ""), client_credentials(request, given)[0], orgs)
        case _:
            return await orgs.find_by_token(_find_any_token(request))


async def _find_for_grant(request: HttpRequest, orgs: OrgDirectory) -> str:
    """The token endpoint: the credentials to be exchanged decide."""
    form = parse_form(request) or {}
    client_id, secret = client_credentials(request, form)
    match form.get("grant_type", ""):
        case "password":
            return await orgs.find_by_login(form.get("username", ""), client_id)
        case "authorization_code" | "device":
            return await _find_by_code(form.get("code", ""), client_id, orgs)
        case "refresh_token":
            return await _find_by_code(form.get("refresh_token", ""), client_id, orgs)
        case "urn:ietf:params:oauth:grant-type:jwt-bearer":
            try:
                assertion = await read_assertion(form.get("assertion", ""))
            except GrantInvalid:
                return orgs.first_id
            return await orgs.find_by_login(assertion.subject, assertion.issuer)
        case _:
            return await orgs.find_by_client(client_id, secret)


async def _find_for_page(request: HttpRequest, orgs: OrgDirectory) -> str:
    """The login pages: the user who signs in decides, then the one who is signed in, then the app."""
    form = (parse_form(request) or {}) if request.method == "POST" else {}
    asked = _original_parameters(form) if "action" in form else given_parameters(request)
    client_id = asked.get("client_id")
    if form.get("action") == "login":
        return await orgs.find_by_login(form.get("username", ""), client_id)
    cookie = read_cookie(request, SESSION_COOKIE)
    signed_in = await orgs.find_by_token(cookie) if cookie else None
    if client_id is None:
        return signed_in or orgs.first_id
    return await orgs.find_by_client(client_id, prefers=signed_in)


async def _find_by_code(code: str, client_id: str, orgs: OrgDirectory) -> str:
    """A token or code that was issued before names its org; if it does not, its app decides."""
    if code[15:16] in ("!", "."):
        return await orgs.find_by_token(code)
    return await orgs.find_by_client(client_id)


def _find_any_token(request: HttpRequest) -> str:
    """Return the session token from wherever this kind of request carries it."""
    try:
        return parse_token(request)
    except AuthHeaderInvalid:
        pass
    if "x-sfdc-session" in request.headers:
        return request.headers["x-sfdc-session"].strip()
    given = given_parameters(request)
    return given.get("oauth_token") or given.get("access_token") or read_cookie(request, SESSION_COOKIE)


def _original_parameters(form: dict[str, str]) -> dict[str, str]:
    """Return the parameters of the request that made us show the form which the browser sends now."""
    return dict(parse_qsl(form.get("request", ""), keep_blank_values=True))
