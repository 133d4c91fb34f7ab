"""The login form of all pages: shows it, checks it, and signs the browser in. Also its cookies and CSRF tokens.

Every form carries a CSRF token: a keyed hash of what the form belongs to. Before the login that is a random cookie,
afterwards the login session and what is being approved. The key lives as long as the process; a form from before a
restart is shown again. Failed logins count towards the same lock as those of every other login.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256

from tidewire.access.oauth import OAuth
from tidewire.access.sessions import SessionEntry
from tidewire.errors import LoginFailed
from tidewire.frontends.rest.oauth.pages import render_login
from tidewire.frontends.rest.oauth.wire import redirect_to
from tidewire.transport.http import HttpRequest, HttpResponse

SESSION_COOKIE = "sid"
FORM_COOKIE = "tidewire_form"
_MAX_COOKIES = 100
# One key for all orgs: a login form is shown before the user's org is known.
_KEY = secrets.token_bytes(32)
_STALE = "This page has expired, or your browser blocks cookies. Please try again."
_FAILED = "Please check your username and password. If you still can't log in, contact your administrator."


class LoginForm:
    """The login form, shared by all pages that need a signed-in user."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth

    async def try_user(self, request: HttpRequest) -> SessionEntry | None:
        """Return the session of the user who is signed in at this browser; None if nobody is."""
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
        """Show the login form; `asked` is the original request, which the form sends back."""
        cookie = read_cookie(request, FORM_COOKIE) or secrets.token_urlsafe(24)
        hidden = {"request": asked, "form": render_csrf_token("login", cookie)}
        page = render_login(action, hidden, username=username, problem=problem, leads_to=leads_to)
        headers = (*page.headers, cookie_header(request, FORM_COOKIE, cookie))
        return HttpResponse(page.status, page.body, page.content_type, headers)

    async def submit(
        self, request: HttpRequest, action: str, form: dict[str, str], target: str, leads_to: str = ""
    ) -> HttpResponse:
        """Check a submitted login form: redirect to `target`, or show the form again."""
        asked, username = form.get("request", ""), form.get("username", "")
        cookie = read_cookie(request, FORM_COOKIE)
        is_valid = bool(cookie) and is_csrf_token(form.get("form", ""), "login", cookie)
        if not is_valid or not is_own_page(request):
            return self.show(request, action, asked, username=username, problem=_STALE, leads_to=leads_to)
        try:
            login = await self._oauth.sign_in(username, form.get("password", ""), request.peer)
        except LoginFailed:
            return self.show(request, action, asked, username=username, problem=_FAILED, leads_to=leads_to)
        return redirect_to(target, cookie_header(request, SESSION_COOKIE, login.token), status=303)


def render_csrf_token(*belongs_to: str) -> str:
    """Return the CSRF token of a form that belongs to these values."""
    text = "\n".join(f"{len(part)}:{part}" for part in belongs_to)
    return hmac.new(_KEY, text.encode("utf-8", "surrogatepass"), sha256).hexdigest()


def is_csrf_token(token: str, *belongs_to: str) -> bool:
    """Whether the token was made for the same values."""
    return hmac.compare_digest(
        token.encode("utf-8", "surrogatepass"), render_csrf_token(*belongs_to).encode()
    )


def is_own_page(request: HttpRequest) -> bool:
    """Whether the browser says that a form came from one of our pages."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    return (origin is None or origin == request.base_url) and site in ("same-origin", "none")


def read_cookie(request: HttpRequest, name: str) -> str:
    """Return the value of a cookie; empty without it."""
    for pair in request.headers.get("cookie", "").split(";")[:_MAX_COOKIES]:
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


def cookie_header(request: HttpRequest, name: str, value: str) -> tuple[str, str]:
    """Render a cookie that scripts cannot read and that forms of other sites do not send."""
    secure = "; Secure" if request.scheme == "https" else ""
    return "Set-Cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"
