"""OAuth: a token for a password, the user behind a token, and the end of a token.

Errors here have OAuth's own form, `{error, error_description}` with status 400, not the data API's array. A
refused login never says what was wrong with it.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import urlencode

from tidewire.access.logins import Logins
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import (
    AuthHeaderInvalid,
    GrantInvalid,
    LimitExceeded,
    LoginFailed,
    MediaTypeUnsupported,
    SessionInvalid,
)
from tidewire.frontends.rest.identity import render_identity, render_token, render_userinfo
from tidewire.frontends.rest.wire import (
    MAX_VERSION,
    NO_STORE,
    parse_form,
    parse_token,
    render_json,
    render_text,
)
from tidewire.ids import try_normalise_id
from tidewire.transport.http import HttpRequest, HttpResponse

_VERSION = re.compile(r"[1-9][0-9]\.0")


class OAuthApi:
    """Answers the sign-in resources."""

    def __init__(self, logins: Logins, clock: Clock) -> None:
        self._logins = logins
        self._clock = clock

    async def give_token(self, request: HttpRequest) -> HttpResponse:
        """POST /services/oauth2/token."""
        try:
            body = await self._grant(request)
        except GrantInvalid as err:
            return _refuse(request, str(err.details.get("oauth_error", "invalid_grant")), err.message)
        except LoginFailed:
            return _refuse(request, "invalid_grant", "authentication failure")
        except LimitExceeded as err:
            return _refuse(request, "rate_limit_exceeded", err.message)
        return render_json(request, 200, body, (NO_STORE,))

    async def _grant(self, request: HttpRequest) -> dict[str, str]:
        form = parse_form(request)
        if form is None or form.get("grant_type") != "password":
            raise GrantInvalid("grant type not supported", oauth_error="unsupported_grant_type")
        client_id, client_secret = _client_credentials(request, form)
        if not client_id:
            raise GrantInvalid("client identifier invalid", oauth_error="invalid_client_id")
        await self._logins.check_client(client_id, client_secret)
        for name in ("username", "password"):
            if not form.get(name):
                raise GrantInvalid(
                    f"missing required input parameters: {name}", oauth_error="invalid_request"
                )
        login = await self._logins.login(form["username"], form["password"], request.peer)
        return render_token(
            request.base_url,
            login.token,
            login.principal.org_id,
            login.principal.user_id,
            client_secret,
            self._clock.now_ms(),
        )

    async def tell_userinfo(self, request: HttpRequest) -> HttpResponse:
        """GET or POST /services/oauth2/userinfo."""
        principal = await self._try_principal(request)
        if isinstance(principal, HttpResponse):
            return principal
        info = await self._logins.user_info(principal)
        body = render_userinfo(request.base_url, info, self._clock.now_ms())
        return render_json(request, 200, body, (NO_STORE,))

    async def tell_identity(self, request: HttpRequest, org_id: str, user_id: str) -> HttpResponse:
        """GET /id/{org}/{user}: only the caller's own identity."""
        if request.query.get("format", "json") != "json":
            raise MediaTypeUnsupported("Only JSON responses are supported: ask for format=json", accept="xml")
        principal = await self._try_principal(request)
        if isinstance(principal, HttpResponse):
            return principal
        if try_normalise_id(org_id) != try_normalise_id(principal.org_id):
            return render_text(403, "Wrong_Org")
        if try_normalise_id(user_id) != principal.user_id:
            return render_text(404, "Bad_Id")
        info = await self._logins.user_info(principal)
        version = request.query.get("version", "")
        if version == "latest":
            version = f"{MAX_VERSION}.0"
        if not _VERSION.fullmatch(version):
            version = ""
        body = render_identity(request.base_url, info, self._clock.now_ms(), version)
        return render_json(request, 200, body, (NO_STORE,))

    async def revoke(self, request: HttpRequest) -> HttpResponse:
        """GET or POST /services/oauth2/revoke."""
        form = parse_form(request) if request.method == "POST" else None
        token = (form or {}).get("token") or request.query.get("token", "")
        try:
            principal = await self._logins.authenticate(token)
        except SessionInvalid:
            # Clients read this one answer as a form.
            body = urlencode({"error": "invalid_token", "error_description": "invalid token"})
            return HttpResponse(400, body.encode(), "application/x-www-form-urlencoded", (NO_STORE,))
        await self._logins.logout(principal)
        return HttpResponse(200, b"", "", (NO_STORE,))

    async def _try_principal(self, request: HttpRequest) -> Principal | HttpResponse:
        """The user behind the request's token, or the refusal."""
        try:
            token = parse_token(request)
        except AuthHeaderInvalid:
            form = (parse_form(request) if request.method == "POST" else None) or {}
            given = request.query | form
            token = given.get("oauth_token") or given.get("access_token", "")
        if not token:
            return render_text(403, "Missing_OAuth_Token")
        try:
            return await self._logins.authenticate(token)
        except SessionInvalid:
            return render_text(403, "Bad_OAuth_Token")


def _client_credentials(request: HttpRequest, form: dict[str, str]) -> tuple[str, str]:
    """Client id and secret from the form, else from HTTP Basic."""
    if "client_id" in form:
        return form["client_id"], form.get("client_secret", "")
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    client_id, _, client_secret = text.partition(":")
    return client_id, client_secret


def _refuse(request: HttpRequest, error: str, description: str) -> HttpResponse:
    return render_json(request, 400, {"error": error, "error_description": description}, (NO_STORE,))
