"""The login form, wherever it is needed: shown, checked, and turned into a browser session.

Its failures count towards the same lock as those of every other login.
"""

from __future__ import annotations

from tidewire.access.oauth import OAuth
from tidewire.access.sessions import SessionEntry
from tidewire.errors import LoginFailed
from tidewire.frontends.rest.oauth.browser import (
    FORM_COOKIE,
    SESSION_COOKIE,
    FormGuard,
    cookie_header,
    draw_form_cookie,
    is_own_page,
    read_cookie,
)
from tidewire.frontends.rest.oauth.forms import redirect_to
from tidewire.frontends.rest.oauth.pages import render_login
from tidewire.transport.http import HttpRequest, HttpResponse

_STALE = "This page was too old, or cookies are off. Please try again."
_FAILED = "Please check your username and password. If you still can't log in, contact your administrator."


class SigningIn:
    """Shared by all pages that need to know who is there."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self.guard = FormGuard()

    async def try_user(self, request: HttpRequest) -> SessionEntry | None:
        """Who is signed in at this browser."""
        token = read_cookie(request, SESSION_COOKIE)
        return await self._oauth.try_browser_user(token) if token else None

    def show(
        self,
        request: HttpRequest,
        action: str,
        asked: str,
        *,
        username: str = "",
        problem: str = "",
        leads_to: str = "",
    ) -> HttpResponse:
        """The login form; `asked` is what the browser wanted, and comes back with it."""
        cookie = read_cookie(request, FORM_COOKIE) or draw_form_cookie()
        hidden = {"request": asked, "form": self.guard.render("login", cookie)}
        page = render_login(action, hidden, username=username, problem=problem, leads_to=leads_to)
        headers = (*page.headers, cookie_header(request, FORM_COOKIE, cookie))
        return HttpResponse(page.status, page.body, page.content_type, headers)

    async def take(
        self, request: HttpRequest, action: str, form: dict[str, str], target: str, leads_to: str = ""
    ) -> HttpResponse:
        """Take a filled-in login form: on to `target`, or the form again."""
        asked, username = form.get("request", ""), form.get("username", "")
        cookie = read_cookie(request, FORM_COOKIE)
        is_ours = bool(cookie) and self.guard.is_ours(form.get("form", ""), "login", cookie)
        if not is_ours or not is_own_page(request):
            return self.show(request, action, asked, username=username, problem=_STALE, leads_to=leads_to)
        try:
            login = await self._oauth.sign_in(username, form.get("password", ""), request.peer)
        except LoginFailed:
            return self.show(request, action, asked, username=username, problem=_FAILED, leads_to=leads_to)
        return redirect_to(target, cookie_header(request, SESSION_COOKIE, login.token), status=303)
