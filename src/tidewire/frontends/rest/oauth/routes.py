"""Routes OAuth paths to the endpoints that answer them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidewire.access.logins import Logins
from tidewire.access.oauth import OAuth
from tidewire.clock import Clock
from tidewire.frontends.rest.oauth.authorize import AuthorizeEndpoint
from tidewire.frontends.rest.oauth.device_page import DevicePage
from tidewire.frontends.rest.oauth.login_form import LoginForm
from tidewire.frontends.rest.oauth.resources import TokenResources
from tidewire.frontends.rest.oauth.token import TokenEndpoint
from tidewire.frontends.rest.wire import require_method
from tidewire.gate.gate import Gate
from tidewire.transport.http import HttpRequest, HttpResponse

Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]


class OAuthApi:
    """Answers `/services/oauth2`, `/id`, `/setup/connect` and `/.well-known`."""

    def __init__(self, oauth: OAuth, logins: Logins, gate: Gate, clock: Clock) -> None:
        login_form = LoginForm(oauth)
        tokens = TokenEndpoint(oauth, logins, clock)
        self._resources = resources = TokenResources(oauth, logins, gate, clock)
        authorize = AuthorizeEndpoint(oauth, login_form, tokens)
        self._answers: dict[tuple[str, ...], tuple[Answer, tuple[str, ...]]] = {
            ("services", "oauth2", "token"): (tokens.answer, ("POST",)),
            ("services", "oauth2", "authorize"): (authorize.answer, ("GET", "POST")),
            ("services", "oauth2", "userinfo"): (resources.answer_userinfo, ("GET", "POST")),
            ("services", "oauth2", "revoke"): (resources.revoke, ("GET", "POST")),
            ("services", "oauth2", "introspect"): (resources.introspect, ("POST",)),
            ("setup", "connect"): (DevicePage(oauth, login_form).answer, ("GET", "POST")),
            ("id", "keys"): (resources.answer_keys, ("GET",)),
            (".well-known", "openid-configuration"): (resources.answer_configuration, ("GET",)),
            (".well-known", "auth-configuration"): (resources.answer_login_settings, ("GET",)),
        }

    async def try_answer(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse | None:
        """Answer an OAuth path; None for any other path. Raises MethodNotAllowed."""
        if segments in self._answers:
            answer, allowed = self._answers[segments]
            require_method(request, *allowed)
            return await answer(request)
        if len(segments) == 3 and segments[0] == "id":
            require_method(request, "GET")
            return await self._resources.answer_identity(request, *segments[1:])
        return None
