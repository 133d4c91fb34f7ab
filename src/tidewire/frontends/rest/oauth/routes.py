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


class OAuthApi:
    """Answers `/services/oauth2`, `/id`, `/setup/connect` and `/.well-known`."""

    def __init__(self, oauth: OAuth, logins: Logins, gate: Gate, clock: Clock) -> None:
        login_form = LoginForm(oauth)
        self._tokens = TokenEndpoint(oauth, logins, clock)
        self._authorize = AuthorizeEndpoint(oauth, login_form, self._tokens)
        self._device = DevicePage(oauth, login_form)
        self._resources = TokenResources(oauth, logins, gate, clock)

    async def try_answer(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse | None:
        """Answer an OAuth path; None for any other path. Raises MethodNotAllowed."""
        resources = self._resources
        answer: Callable[[HttpRequest], Awaitable[HttpResponse]]
        allowed: tuple[str, ...]
        match segments:
            case ("services", "oauth2", "token"):
                answer, allowed = self._tokens.answer, ("POST",)
            case ("services", "oauth2", "authorize"):
                answer, allowed = self._authorize.answer, ("GET", "POST")
            case ("services", "oauth2", "userinfo"):
                answer, allowed = resources.answer_userinfo, ("GET", "POST")
            case ("services", "oauth2", "revoke"):
                answer, allowed = resources.revoke, ("GET", "POST")
            case ("services", "oauth2", "introspect"):
                answer, allowed = resources.introspect, ("POST",)
            case ("setup", "connect"):
                answer, allowed = self._device.answer, ("GET", "POST")
            case ("id", "keys"):
                answer, allowed = resources.answer_keys, ("GET",)
            case (".well-known", "openid-configuration"):
                require_method(request, "GET")
                return resources.answer_configuration(request)
            case (".well-known", "auth-configuration"):
                require_method(request, "GET")
                return resources.answer_login_settings(request)
            case ("id", org_id, user_id):
                require_method(request, "GET")
                return await resources.answer_identity(request, org_id, user_id)
            case _:
                return None
        require_method(request, *allowed)
        return await answer(request)
