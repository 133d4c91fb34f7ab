"""OAuth resources around tokens: userinfo, identity URL, introspection, revocation and discovery."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

from tidewire.access.logins import Logins
from tidewire.access.oauth import OAuth, oauth_error_of
from tidewire.access.principal import Principal
from tidewire.access.scopes import KNOWN, render_scopes
from tidewire.access.sessions import SessionEntry
from tidewire.clock import Clock
from tidewire.errors import AuthHeaderInvalid, GrantInvalid, SessionInvalid
from tidewire.frontends.rest.identity import (
    identity_url,
    render_identity,
    render_userinfo,
)
from tidewire.frontends.rest.oauth.token import DEVICE_PATH
from tidewire.frontends.rest.oauth.wire import (
    client_credentials,
    given_parameters,
    refuse,
)
from tidewire.frontends.rest.wire import (
    NO_STORE,
    parse_form,
    parse_token,
    render_json,
    render_text,
)
from tidewire.frontends.rest.xml_bodies import CONTENT_TYPE, render_xml
from tidewire.gate.gate import Gate
from tidewire.ids import try_normalise_id
from tidewire.names import MAX_API_VERSION
from tidewire.transport.http import HttpRequest, HttpResponse

_VERSION = re.compile(r"[1-9][0-9]\.0")
_CALLBACK_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,63}(?:\.[A-Za-z_$][A-Za-z0-9_$]{0,63}){0,5}")


class TokenResources:
    """Answers the OAuth resources that take a token, and discovery."""

    def __init__(self, oauth: OAuth, logins: Logins, gate: Gate, clock: Clock) -> None:
        self._oauth = oauth
        self._logins = logins
        self._gate = gate
        self._clock = clock

    async def answer_userinfo(self, request: HttpRequest) -> HttpResponse:
        """GET or POST /services/oauth2/userinfo."""
        entry = await self._try_session(request)
        if isinstance(entry, HttpResponse):
            return entry
        info = await self._logins.try_user_info(entry.user_id)
        if info is None:
            return render_text(403, "Bad_OAuth_Token")
        body = render_userinfo(request.base_url, info, self._clock.now_ms())
        return render_json(request, 200, body, (NO_STORE,))

    async def answer_identity(self, request: HttpRequest, org_id: str, user_id: str) -> HttpResponse:
        """GET /id/{org}/{user}: the caller's identity, or any user's with View All Users or Manage Users."""
        entry = await self._try_session(request)
        if isinstance(entry, HttpResponse):
            return entry
        if try_normalise_id(org_id) != try_normalise_id(self._logins.org_id):
            return render_text(403, "Wrong_Org")
        wanted = try_normalise_id(user_id) or ""
        if wanted != entry.user_id and not await self._sees_users(entry):
            return render_text(404, "Bad_Id")
        info = await self._logins.try_user_info(wanted)
        if info is None:
            return render_text(404, "Bad_Id")
        version = request.query.get("version", "")
        if version == "latest":
            version = f"{MAX_API_VERSION}.0"
        if not _VERSION.fullmatch(version):
            version = ""
        body = render_identity(request.base_url, info, self._clock.now_ms(), version)
        if _wants_xml(request):
            return HttpResponse(200, render_xml(body, "user"), CONTENT_TYPE, (NO_STORE,))
        callback = request.query.get("callback", "")
        if callback:
            return _jsonp(callback, body)
        return render_json(request, 200, body, (NO_STORE,))

    async def revoke(self, request: HttpRequest) -> HttpResponse:
        """GET or POST /services/oauth2/revoke."""
        given = given_parameters(request)
        callback = given.get("callback", "")
        token = given.get("token", "")
        if token and await self._oauth.revoke(token):
            return _jsonp(callback, {}) if callback else HttpResponse(200, b"", "", (NO_STORE,))
        error = {"error": "invalid_token", "error_description": "invalid token"}
        if not token:
            error = {
                "error": "unsupported_token_type",
                "error_description": "this token type is not supported",
            }
        if callback:
            return _jsonp(callback, error)
        # Clients parse this error as a form, not as JSON.
        return HttpResponse(400, urlencode(error).encode(), "application/x-www-form-urlencoded", (NO_STORE,))

    async def introspect(self, request: HttpRequest) -> HttpResponse:
        """POST /services/oauth2/introspect: an app inspects one of its tokens."""
        form = parse_form(request) or {}
        client_id, secret = client_credentials(request, form)
        try:
            app = await self._oauth.check_app(client_id, secret)
        except GrantInvalid as err:
            return refuse(request, *oauth_error_of(err))
        if not form.get("token"):
            return refuse(request, "invalid_request", "missing required input parameters: token")
        found = await self._oauth.inspect(app, form["token"])
        if found is None:
            return render_json(request, 200, {"active": False}, (NO_STORE,))
        body: dict[str, object] = {"active": True, "client_id": app.client_id}
        if isinstance(found, SessionEntry):
            started_s = found.started_ms // 1000
            body |= {
                "scope": render_scopes(found.origin.scopes),
                "username": found.username,
                "token_type": "access_token",
                "exp": found.used_ms // 1000 + self._logins.seconds_valid,
                "iat": started_s,
                "nbf": started_s,
            }
        else:
            info = await self._logins.try_user_info(found.user_id)
            if info is None or not info.is_active:
                return render_json(request, 200, {"active": False}, (NO_STORE,))
            body |= {
                "scope": render_scopes(found.scopes),
                "username": info.username,
                "token_type": "refresh_token",
            }
        body["sub"] = identity_url(request.base_url, self._logins.org_id, found.user_id)
        return render_json(request, 200, body, (NO_STORE,))

    async def answer_keys(self, request: HttpRequest) -> HttpResponse:
        """GET /id/keys: the public key of id tokens."""
        key = await self._oauth.signing_key()
        return render_json(request, 200, {"keys": [key.render_jwk()]}, (NO_STORE,))

    async def answer_configuration(self, request: HttpRequest) -> HttpResponse:
        """GET /.well-known/openid-configuration."""
        base = request.base_url
        oauth = f"{base}/services/oauth2"
        body = {
            "issuer": base,
            "authorization_endpoint": f"{oauth}/authorize",
            "token_endpoint": f"{oauth}/token",
            "revocation_endpoint": f"{oauth}/revoke",
            "userinfo_endpoint": f"{oauth}/userinfo",
            "introspection_endpoint": f"{oauth}/introspect",
            "device_authorization_endpoint": f"{oauth}/token",
            "jwks_uri": f"{base}/id/keys",
            "scopes_supported": sorted(KNOWN),
            "response_types_supported": ["code", "token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "display_values_supported": ["page"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        }
        return render_json(request, 200, body)

    async def answer_login_settings(self, request: HttpRequest) -> HttpResponse:
        """GET /.well-known/auth-configuration."""
        base = request.base_url
        body = {
            "OrgId": self._logins.org_id,
            "Url": base,
            "LoginPage": {"LoginPageType": "Standard", "LoginPageUrl": f"{base}{DEVICE_PATH}"},
            "AuthProviders": [],
            "SamlProviders": [],
            "MobileSDK": {
                "UseiOSNativeBrowserForAuthentication": False,
                "UseAndroidNativeBrowserForAuthentication": False,
            },
        }
        return render_json(request, 200, body)

    async def _sees_users(self, entry: SessionEntry) -> bool:
        caller = Principal(self._logins.org_id, entry.user_id, entry.username, entry.session_id)
        grants = await self._gate.grants(caller)
        return grants.has("ViewAllUsers") or grants.has("ManageUsers")

    async def _try_session(self, request: HttpRequest) -> SessionEntry | HttpResponse:
        """Return the session of the request's token, or the error response."""
        try:
            token = parse_token(request)
        except AuthHeaderInvalid:
            given = given_parameters(request)
            token = given.get("oauth_token") or given.get("access_token", "")
        if not token:
            return render_text(403, "Missing_OAuth_Token")
        try:
            return await self._logins.sessions.identify(token)
        except SessionInvalid:
            return render_text(403, "Bad_OAuth_Token")


def _wants_xml(request: HttpRequest) -> bool:
    asked = request.query.get("format", "")
    accept = request.headers.get("accept", "")
    return asked == "xml" or (not asked and "xml" in accept and "json" not in accept and "*/*" not in accept)


def _jsonp(callback: str, body: object) -> HttpResponse:
    """Render JSONP: a script that calls the caller's function. Rejects anything but a plain function name."""
    if not _CALLBACK_NAME.fullmatch(callback):
        return render_text(400, "Invalid_Callback")
    # Escaped so that the body cannot end the script or start markup, however a browser interprets it.
    text = json.dumps(body).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    headers = (NO_STORE, ("X-Content-Type-Options", "nosniff"))
    return HttpResponse(200, f"/**/{callback}({text});".encode(), "text/javascript;charset=UTF-8", headers)
