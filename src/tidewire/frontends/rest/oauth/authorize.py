"""The authorization endpoint: a browser comes for an app, its user signs in and decides, and it is sent back.

Nothing is sent to an address that is not one of the app's own, letter for letter: a request that is wrong in its app
or its address gets a page, and only other mistakes travel back to the app.
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
from tidewire.frontends.rest.oauth.browser import is_own_page
from tidewire.frontends.rest.oauth.forms import redirect, redirect_to
from tidewire.frontends.rest.oauth.pages import render_consent, render_message
from tidewire.frontends.rest.oauth.signing_in import SigningIn
from tidewire.frontends.rest.oauth.token import TokenEndpoint
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
class _Ask:
    """A request whose app and address are good, so that errors may travel back."""

    app: ConnectedApp
    redirect_uri: str
    given: dict[str, str]

    @property
    def is_direct(self) -> bool:
        """Whether the tokens themselves are asked for, behind the `#`."""
        return "token" in self.given.get("response_type", "").split()

    @property
    def prompts(self) -> frozenset[str]:
        words = set(self.given.get("prompt", "").split())
        return frozenset(words | ({"none"} if self.given.get("immediate") == "true" else set()))

    def send(self, values: dict[str, str]) -> HttpResponse:
        """Back to the app."""
        state = {"state": self.given.get("state", "")}
        return redirect(self.redirect_uri, values | state, in_fragment=self.is_direct)

    def refuse(self, error: str, description: str) -> HttpResponse:
        """Back to the app with an error."""
        return self.send({"error": error, "error_description": description})


class AuthorizeEndpoint:
    """Answers `/services/oauth2/authorize`."""

    def __init__(self, oauth: OAuth, signing_in: SigningIn, tokens: TokenEndpoint) -> None:
        self._oauth = oauth
        self._signing_in = signing_in
        self._tokens = tokens

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """GET for a browser that arrives, POST for its forms."""
        form = (parse_form(request) or {}) if request.method == "POST" else {}
        is_page = "action" in form
        text = form.get("request", "") if is_page else ""
        given = dict(parse_qsl(text, keep_blank_values=True)) if is_page else request.query | form
        given = {name: given[name][:_MAX_LENGTH] for name in _PARAMETERS if given.get(name)}
        try:
            ask = await self._read(given)
        except GrantInvalid as err:
            error, description = oauth_error_of(err)
            return render_message("This request cannot be answered", f"{error}: {description}", 400)
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
            return ask.refuse(*oauth_error_of(err))

    async def _read(self, given: dict[str, str]) -> _Ask:
        app = await self._oauth.find_app(given.get("client_id", ""))
        uri = given.get("redirect_uri", "")
        if uri not in app.callback_urls:
            raise GrantInvalid("redirect_uri must match configuration", oauth_error="redirect_uri_mismatch")
        return _Ask(app, uri, given)

    def _check(self, ask: _Ask) -> frozenset[str]:
        """The scopes that the request would get. Raises GrantInvalid."""
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

    async def _show(self, request: HttpRequest, ask: _Ask, scopes: frozenset[str]) -> HttpResponse:
        user = await self._signing_in.try_user(request)
        if user is None or "login" in ask.prompts:
            if "none" in ask.prompts:
                return ask.refuse("login_required", "nobody is signed in")
            return self._signing_in.show(
                request,
                PATH,
                urlencode(ask.given),
                username=ask.given.get("login_hint", ""),
                leads_to=ask.redirect_uri,
            )
        if "consent" not in ask.prompts and await self._oauth.has_approved(ask.app, user.user_id, scopes):
            return await self._give(request, ask, scopes, user)
        if "none" in ask.prompts:
            return ask.refuse("immediate_unsuccessful", "the user has to be asked")
        text = urlencode(ask.given)
        proof = self._signing_in.guard.render("consent", user.session_id, text)
        return render_consent(
            PATH,
            {"request": text, "form": proof},
            app=ask.app.label,
            username=user.username,
            scopes=scopes,
            leads_to=ask.redirect_uri,
        )

    async def _login(self, request: HttpRequest, ask: _Ask, form: dict[str, str]) -> HttpResponse:
        # Asked once is enough: without this the next page would ask for a login again.
        prompt = " ".join(sorted(ask.prompts - {"login"}))
        target = f"{PATH}?{urlencode(ask.given | {'prompt': prompt})}"
        return await self._signing_in.take(request, PATH, form, target, ask.redirect_uri)

    async def _decide(
        self, request: HttpRequest, ask: _Ask, scopes: frozenset[str], form: dict[str, str], *, allows: bool
    ) -> HttpResponse:
        user = await self._signing_in.try_user(request)
        text = form.get("request", "")
        guard = self._signing_in.guard
        is_ours = user is not None and guard.is_ours(form.get("form", ""), "consent", user.session_id, text)
        if user is None or not is_ours or not is_own_page(request):
            return redirect_to(f"{PATH}?{urlencode(ask.given)}", status=303)
        if not allows:
            return ask.refuse("access_denied", "end-user denied authorization")
        await self._oauth.approve(ask.app, user.user_id, scopes)
        return await self._give(request, ask, scopes, user)

    async def _give(
        self, request: HttpRequest, ask: _Ask, scopes: frozenset[str], user: SessionEntry
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
