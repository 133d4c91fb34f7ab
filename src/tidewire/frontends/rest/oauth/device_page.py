"""The page where a user types the code that a device shows, and allows or denies its access."""

from __future__ import annotations

from urllib.parse import urlencode

from tidewire.access.device_flow import normalise_user_code
from tidewire.access.oauth import OAuth
from tidewire.access.sessions import SessionEntry
from tidewire.frontends.rest.oauth.login_form import (
    LoginForm,
    is_csrf_token,
    is_own_page,
    render_csrf_token,
)
from tidewire.frontends.rest.oauth.pages import render_consent, render_device_form, render_message
from tidewire.frontends.rest.oauth.token import DEVICE_PATH
from tidewire.frontends.rest.oauth.wire import redirect_to
from tidewire.frontends.rest.wire import parse_form
from tidewire.transport.http import HttpRequest, HttpResponse

_UNKNOWN = (
    "No device is waiting with this code. Codes expire after ten minutes; check the code on the device."
)


class DevicePage:
    """Answers `/setup/connect`."""

    def __init__(self, oauth: OAuth, login_form: LoginForm) -> None:
        self._oauth = oauth
        self._login_form = login_form

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer GET with the page, and POST of its forms."""
        form = (parse_form(request) or {}) if request.method == "POST" else {}
        action = form.get("action", "")
        code = normalise_user_code(form.get("user_code") or request.query.get("user_code", ""))
        if action == "login":
            code = normalise_user_code(form.get("request", ""))
            target = f"{DEVICE_PATH}?{urlencode({'user_code': code})}" if code else DEVICE_PATH
            return await self._login_form.submit(request, DEVICE_PATH, form, target)
        user = await self._login_form.try_user(request)
        if user is None:
            return self._login_form.show(request, DEVICE_PATH, code)
        csrf_token = form.get("form", "")
        if action == "code" and is_csrf_token(csrf_token, "device", user.session_id) and is_own_page(request):
            return await self._ask(user, code)
        is_decided = action in ("allow", "deny") and is_csrf_token(
            csrf_token, "device", user.session_id, code
        )
        if is_decided and is_own_page(request):
            return await self._decide(user, code, allows=action == "allow")
        if action:
            return redirect_to(DEVICE_PATH, status=303)
        return self._form(user, code)

    def _form(self, user: SessionEntry, code: str, problem: str = "") -> HttpResponse:
        hidden = {"form": render_csrf_token("device", user.session_id)}
        return render_device_form(DEVICE_PATH, hidden, code=code, problem=problem)

    async def _ask(self, user: SessionEntry, code: str) -> HttpResponse:
        found = await self._oauth.try_find_device(code)
        if found is None:
            return self._form(user, "", _UNKNOWN)
        app, scopes = found
        hidden = {
            "user_code": code,
            "form": render_csrf_token("device", user.session_id, code),
        }
        return render_consent(DEVICE_PATH, hidden, app=app.label, username=user.username, scopes=scopes)

    async def _decide(self, user: SessionEntry, code: str, *, allows: bool) -> HttpResponse:
        if not await self._oauth.answer_device(code, user.user_id, allows=allows):
            return self._form(user, "", _UNKNOWN)
        if allows:
            return render_message("The device is connected", "You can close this page.")
        return render_message("Access denied to the device", "You can close this page.")
