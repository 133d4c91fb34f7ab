"""The token endpoint: accepts every grant type and answers in JSON."""

from __future__ import annotations

import base64
import hashlib

from tidewire.access.device_flow import INTERVAL_S
from tidewire.access.logins import Logins, UserInfo
from tidewire.access.oauth import Issued, OAuth, oauth_error_of
from tidewire.access.scopes import OPENID, render_scopes
from tidewire.clock import Clock
from tidewire.errors import GrantInvalid, LimitExceeded, LoginFailed
from tidewire.frontends.rest.identity import identity_url, render_token
from tidewire.frontends.rest.oauth.wire import client_credentials, refuse
from tidewire.frontends.rest.wire import NO_STORE, parse_form, render_json
from tidewire.transport.http import HttpRequest, HttpResponse

DEVICE_PATH = "/setup/connect"
_JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_SHARED_HOSTS = frozenset({"login.salesforce.com", "test.salesforce.com"})
_ID_TOKEN_LIFE_S = 120


class TokenEndpoint:
    """Answers `/services/oauth2/token`."""

    def __init__(self, oauth: OAuth, logins: Logins, clock: Clock) -> None:
        self._oauth = oauth
        self._logins = logins
        self._clock = clock

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """POST /services/oauth2/token."""
        try:
            body = await self._answer(request)
        except (GrantInvalid, LoginFailed) as err:
            return refuse(request, *oauth_error_of(err))
        except LimitExceeded as err:
            return refuse(request, "rate_limit_exceeded", err.message)
        return render_json(request, 200, body, (NO_STORE,))

    async def _answer(self, request: HttpRequest) -> dict[str, object]:
        form = parse_form(request)
        if form is not None and form.get("response_type") == "device_code":
            return await self._begin_device(request, form)
        grant_type = "" if form is None else form.get("grant_type", "")
        if form is None or grant_type not in _NEEDED:
            raise GrantInvalid("grant type not supported", oauth_error="unsupported_grant_type")
        client_id, secret = client_credentials(request, form)
        if not client_id and grant_type != _JWT:
            raise GrantInvalid("client identifier invalid", oauth_error="invalid_client_id")
        issued = await self._grant(request, grant_type, client_id, secret, form)
        # The password flow returns only the token, as the original does: its clients know the user and the scopes.
        return await self.render(request, issued, secret, is_bare=grant_type == "password")

    async def _grant(
        self, request: HttpRequest, grant_type: str, client_id: str, secret: str, form: dict[str, str]
    ) -> Issued:
        oauth, peer, scope = self._oauth, request.peer, form.get("scope", "")
        if grant_type == "password":
            await self._oauth.check_app(client_id, secret)
        for name in _NEEDED[grant_type]:
            if not form.get(name):
                raise GrantInvalid(
                    f"missing required input parameters: {name}", oauth_error="invalid_request"
                )
        match grant_type:
            case "password":
                return await oauth.grant_for_password(
                    client_id, secret, form["username"], form["password"], peer
                )
            case "client_credentials":
                if request.headers.get("host", "").lower() in _SHARED_HOSTS:
                    raise GrantInvalid("request not supported on this domain", oauth_error="invalid_grant")
                return await oauth.grant_for_credentials(client_id, secret, scope, peer)
            case "authorization_code":
                verifier = form.get("code_verifier", "")
                return await oauth.grant_for_code(
                    client_id, secret, form["code"], form["redirect_uri"], verifier, peer
                )
            case "refresh_token":
                return await oauth.grant_for_refresh(client_id, secret, form["refresh_token"], scope, peer)
            case "device":
                return await oauth.grant_for_device(client_id, secret, form["code"], peer)
            case _:
                audiences = oauth.audiences(request.base_url)
                return await oauth.grant_for_assertion(form["assertion"], audiences, scope, peer)

    async def _begin_device(self, request: HttpRequest, form: dict[str, str]) -> dict[str, object]:
        client_id, _ = client_credentials(request, form)
        device_code, user_code = await self._oauth.begin_device(client_id, form.get("scope", ""))
        return {
            "device_code": device_code,
            "user_code": user_code,
            "verification_uri": request.base_url + DEVICE_PATH,
            "interval": INTERVAL_S,
        }

    async def render(
        self, request: HttpRequest, issued: Issued, secret: str, *, is_bare: bool = False
    ) -> dict[str, object]:
        """Render the response with a new token."""
        principal = issued.login.principal
        body: dict[str, object] = dict(
            render_token(
                request.base_url,
                issued.login.token,
                principal.org_id,
                principal.user_id,
                secret,
                self._clock.now_ms(),
            )
        )
        if is_bare:
            return body
        body["scope"] = render_scopes(issued.scopes)
        body["api_instance_url"] = request.base_url
        if issued.refresh_token:
            body["refresh_token"] = issued.refresh_token
        if OPENID in issued.scopes:
            body["id_token"] = await self._id_token(request, issued)
        return body

    async def _id_token(self, request: HttpRequest, issued: Issued) -> str:
        principal = issued.login.principal
        info = await self._logins.user_info(principal)
        now_s = self._clock.now_ms() // 1000
        claims: dict[str, object] = {
            "iss": request.base_url,
            "sub": identity_url(request.base_url, principal.org_id, principal.user_id),
            "aud": issued.client_id,
            "iat": now_s,
            "exp": now_s + _ID_TOKEN_LIFE_S,
            "at_hash": _at_hash(issued.login.token),
            **_profile_claims(info, issued.scopes),
        }
        if issued.nonce:
            claims["nonce"] = issued.nonce
        return (await self._oauth.signing_key()).sign(claims)


def _at_hash(token: str) -> str:
    """Return OpenID's `at_hash` of an access token: the first half of its SHA-256, in base64url."""
    return base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()[:16]).rstrip(b"=").decode()


def _profile_claims(info: UserInfo, scopes: frozenset[str]) -> dict[str, object]:
    claims: dict[str, object] = {}
    if scopes & {"profile", "full"}:
        claims |= {
            "name": info.full_name,
            "given_name": info.first_name or None,
            "family_name": info.last_name,
            "preferred_username": info.username,
            "zoneinfo": info.time_zone,
            "locale": info.locale,
        }
    if scopes & {"email", "full"}:
        claims |= {"email": info.email, "email_verified": True}
    return claims


_NEEDED: dict[str, tuple[str, ...]] = {
    "password": ("username", "password"),
    "client_credentials": (),
    "authorization_code": ("code", "redirect_uri"),
    "refresh_token": ("refresh_token",),
    "device": ("code",),
    _JWT: ("assertion",),
}
