"""The authorization endpoint: the user signs in, approves an app, and the browser is redirected back to the app.

A browser is only redirected to one of the app's callback URLs, compared exactly. A request with an unknown app or
callback URL gets an error page; all other errors are sent back to the app.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from tidewire.access import apps
from tidewire.access.apps import ConnectedApp
from tidewire.access.authorizations import is_challenge
from tidewire.access.oauth import OAuth, oauth_error_of
from tidewire.access.scopes import granted_scopes
from tidewire.access.sessions import SessionEntry
from tidewire.errors import GrantInvalid
from tidewire.frontends.rest.oauth.login_form import (
    LoginForm,
    is_csrf_token,
    is_own_page,
    render_csrf_token,
)
from tidewire.frontends.rest.oauth.pages import render_consent, render_message
from tidewire.frontends.rest.oauth.token import TokenEndpoint
from tidewire.frontends.rest.oauth.wire import redirect, redirect_to
from tidewire.frontends.rest.wire import parse_form
from tidewire.transport.http import HttpRequest, HttpResponse

PATH = "/services/oauth2/authorize"
_PARAMETERS = (
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "prompt",
    "login_hint",
    "immediate",
    "code_challenge",
    "code_challenge_method",
    "display",
)
_MAX_LENGTH = 4_000


@dataclass(frozen=True, slots=True)
class _AuthRequest:
    """A request with a known app and callback URL, to which errors can be sent."""

    app: ConnectedApp
    redirect_uri: str
    given: dict[str, str]

    @property
    def is_direct(self) -> bool:
        """Whether tokens are requested, which are returned in the URL's fragment."""
        return "token" in self.given.get("response_type", "").split()

    @property
    def prompts(self) -> frozenset[str]:
        words = set(self.given.get("prompt", "").split())
        return frozenset(words | ({"none"} if self.given.get("immediate") == "true" else set()))

    def send(self, values: dict[str, str]) -> HttpResponse:
        """Redirect to the app with these values."""
        state = {"state": self.given.get("state", "")}
        return redirect(self.redirect_uri, values | state, in_fragment=self.is_direct)

    def reject(self, error: str, description: str) -> HttpResponse:
        """Redirect to the app with an error."""
        return self.send({"error": error, "error_description": description})


class AuthorizeEndpoint:
    """Answers `/services/oauth2/authorize`."""

    def __init__(self, oauth: OAuth, login_form: LoginForm, tokens: TokenEndpoint) -> None:
        self._oauth = oauth
        self._login_form = login_form
        self._tokens = tokens

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer GET with a page or a redirect, and POST of the page's forms."""
        form = (parse_form(request) or {}) if request.method == "POST" else {}
        is_page = "action" in form
        text = form.get("request", "") if is_page else ""
        given = dict(parse_qsl(text, keep_blank_values=True)) if is_page else request.query | form
        given = {name: given[name][:_MAX_LENGTH] for name in _PARAMETERS if given.get(name)}
        try:
            ask = await self._read(given)
        except GrantInvalid as err:
            error, description = oauth_error_of(err)
            return render_message("The app's request is invalid", f"{error}: {description}", 400)
        try:
            scopes = self._check(ask)
            match form.get("action") if is_page else None:
                case None:
                    return await self._show(request, ask, scopes)
                case "login":
                    return await self._login(request, ask, form)
                case action:
                    return await self._decide(request, ask, scopes, form, allows=action == "allow")
        except GrantInvalid as err:
            return ask.reject(*oauth_error_of(err))

    async def _read(self, given: dict[str, str]) -> _AuthRequest:
        app = await self._oauth.find_app(given.get("client_id", ""))
        uri = given.get("redirect_uri", "")
        if uri not in app.callback_urls:
            raise GrantInvalid("redirect_uri must match configuration", oauth_error="redirect_uri_mismatch")
        return _AuthRequest(app, uri, given)

    def _check(self, ask: _AuthRequest) -> frozenset[str]:
        """Check the request and return the scopes it would get. Raises GrantInvalid."""
        given, app = ask.given, ask.app
        kind = given.get("response_type", "")
        if kind not in ("code", "token"):
            raise GrantInvalid("response type not supported", oauth_error="unsupported_response_type")
        app.check_flow(apps.WEB_SERVER if kind == "code" else apps.USER_AGENT)
        challenge = given.get("code_challenge", "")
        method = given.get("code_challenge_method", "S256")
        if challenge and (method != "S256" or not is_challenge(challenge)):
            raise GrantInvalid("code challenge must be of method S256", oauth_error="invalid_request")
        if kind == "code" and not challenge and (app.is_public or app.requires_pkce):
            raise GrantInvalid("missing required code challenge", oauth_error="invalid_request")
        return granted_scopes(given.get("scope", ""), app.scopes)

    async def _show(self, request: HttpRequest, ask: _AuthRequest, scopes: frozenset[str]) -> HttpResponse:
        user = await self._login_form.try_user(request)
        if user is None or "login" in ask.prompts:
            if "none" in ask.prompts:
                return ask.reject("login_required", "nobody is signed in")
            return self._login_form.show(
                request,
                PATH,
                urlencode(ask.given),
                username=ask.given.get("login_hint", ""),
                leads_to=ask.redirect_uri,
            )
        if "consent" not in ask.prompts and await self._oauth.has_approved(ask.app, user.user_id, scopes):
            return await self._give(request, ask, scopes, user)
        if "none" in ask.prompts:
            return ask.reject("immediate_unsuccessful", "the user has to be asked")
        text = urlencode(ask.given)
        csrf_token = render_csrf_token("consent", user.session_id, text)
        return render_consent(
            PATH,
            {"request": text, "form": csrf_token},
            app=ask.app.label,
            username=user.username,
            scopes=scopes,
            leads_to=ask.redirect_uri,
        )

    async def _login(self, request: HttpRequest, ask: _AuthRequest, form: dict[str, str]) -> HttpResponse:
        # `prompt=login` was served by this login: the next page must not ask for another.
        prompt = " ".join(sorted(ask.prompts - {"login"}))
        target = f"{PATH}?{urlencode(ask.given | {'prompt': prompt})}"
        return await self._login_form.submit(request, PATH, form, target, ask.redirect_uri)

    async def _decide(
        self,
        request: HttpRequest,
        ask: _AuthRequest,
        scopes: frozenset[str],
        form: dict[str, str],
        *,
        allows: bool,
    ) -> HttpResponse:
        user = await self._login_form.try_user(request)
        text = form.get("request", "")
        is_valid = user is not None and is_csrf_token(form.get("form", ""), "consent", user.session_id, text)
        if user is None or not is_valid or not is_own_page(request):
            return redirect_to(f"{PATH}?{urlencode(ask.given)}", status=303)
        if not allows:
            return ask.reject("access_denied", "end-user denied authorization")
        await self._oauth.approve(ask.app, user.user_id, scopes)
        return await self._give(request, ask, scopes, user)

    async def _give(
        self, request: HttpRequest, ask: _AuthRequest, scopes: frozenset[str], user: SessionEntry
    ) -> HttpResponse:
        nonce = ask.given.get("nonce", "")
        if not ask.is_direct:
            code = await self._oauth.give_code(
                ask.app,
                user.user_id,
                scopes,
                ask.redirect_uri,
                challenge=ask.given.get("code_challenge", ""),
                nonce=nonce,
            )
            return ask.send({"code": code})
        issued = await self._oauth.grant_directly(ask.app, user.user_id, scopes, request.peer, nonce)
        body = await self._tokens.render(request, issued, "")
        return ask.send({name: str(value) for name, value in body.items()})
