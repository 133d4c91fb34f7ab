"""Calls about users: login, logout, getUserInfo, passwords and sessions.

Elements have the order of the WSDL, because clients read them by index.
"""

from __future__ import annotations

from tidewire.access.logins import LoginResult, Logins, UserInfo
from tidewire.errors import LoginFailed, SessionInvalid
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.wire import Endpoint, SoapRequest, render_element, render_elements
from tidewire.frontends.soap.wire_errors import render_row_error
from tidewire.ids import normalise_id
from tidewire.transport.http import HttpRequest

_ATTACHMENT_LIMIT_BYTES = 5_242_880


async def login(logins: Logins, http: HttpRequest, endpoint: Endpoint, request: SoapRequest) -> str:
    """Sign in and start a session."""
    username = request.text("username")
    password = request.text("password")
    if not username or not password:
        raise LoginFailed("username and password are required")
    scope = request.header("LoginScopeHeader", "organizationId")
    started = await logins.login(username, password, http.peer, org_id=scope)
    info = await logins.user_info(started.principal)
    return f"<result>{render_login(started, info, endpoint, http.base_url)}</result>"


async def logout(call: SoapCall) -> str:
    """End the caller's session."""
    await call.services.logins.sessions.log_out(call.principal.session_id)
    return ""


async def get_user_info(call: SoapCall) -> str:
    """Return the caller's user and org."""
    logins = call.services.logins
    info = await logins.user_info(call.principal)
    return f"<result>{render_user_info(info, logins.seconds_valid)}</result>"


def render_user_info(info: UserInfo, seconds_valid: int) -> str:
    """Render the 24 elements of a GetUserInfoResult."""
    return render_elements(
        (
            ("accessibilityMode", False),
            ("chatterExternal", False),
            ("currencySymbol", "$"),
            ("orgAttachmentFileSizeLimit", _ATTACHMENT_LIMIT_BYTES),
            ("orgDefaultCurrencyIsoCode", "USD"),
            ("orgDefaultCurrencyLocale", "en_US"),
            ("orgDisallowHtmlAttachments", False),
            ("orgHasPersonAccounts", info.has_person_accounts),
            ("organizationId", info.org_id),
            ("organizationMultiCurrency", False),
            ("organizationName", info.org_name),
            ("profileId", info.profile_id),
            ("roleId", info.role_id or None),
            ("sessionSecondsValid", seconds_valid),
            ("userDefaultCurrencyIsoCode", None),
            ("userEmail", info.email),
            ("userFullName", info.full_name),
            ("userId", info.user_id),
            ("userLanguage", info.language),
            ("userLocale", info.locale),
            ("userName", info.username),
            ("userTimeZone", info.time_zone),
            ("userType", info.user_type),
            ("userUiSkin", "Theme3"),
        )
    )


def render_login(login: LoginResult, info: UserInfo, endpoint: Endpoint, base_url: str) -> str:
    """Render the seven elements of a LoginResult."""
    user_info = render_user_info(info, login.seconds_valid)
    return (
        render_elements(
            (
                ("metadataServerUrl", endpoint.metadata_url(base_url, info.org_id)),
                ("passwordExpired", False),
                ("sandbox", False),
                ("serverUrl", endpoint.url(base_url, info.org_id)),
                ("sessionId", login.token),
                ("userId", info.user_id),
            )
        )
        + f"<userInfo>{user_info}</userInfo>"
    )


async def set_password(call: SoapCall) -> str:
    """Set a user's password."""
    user_id = normalise_id(call.request.text("userId"))
    element = next(call.request.all("password"), None)
    password = "" if element is None else element.text or ""
    await call.services.logins.credentials.set_password(call.context, user_id, password)
    return "<result/>"


async def change_own_password(call: SoapCall) -> str:
    """Replace the caller's own password."""
    given = {name: next(call.request.all(name), None) for name in ("oldPassword", "newPassword")}
    old, new = (("" if element is None else element.text or "") for element in given.values())
    await call.services.logins.change_own_password(call.context, old, new)
    return "<result/>"


async def reset_password(call: SoapCall) -> str:
    """Give a user a random password."""
    user_id = normalise_id(call.request.text("userId"))
    password = await call.services.logins.credentials.reset_password(call.context, user_id)
    return f"<result>{render_element('password', password)}</result>"


async def invalidate_sessions(call: SoapCall) -> str:
    """End sessions by token: the caller's own, or with Manage Users anybody's."""
    tokens = call.request.texts("sessionIds")
    check_count(tokens)
    sessions = call.services.logins.sessions
    grants = await call.gate.grants(call.principal)
    out = []
    for token in tokens:
        try:
            entry = await sessions.peek(token)
            if entry.user_id != call.principal.user_id and not grants.has("ManageUsers"):
                raise SessionInvalid("Session expired or invalid")
            is_own = entry.user_id == call.principal.user_id
            await (sessions.log_out if is_own else sessions.revoke)(entry.session_id)
            out.append("<result><success>true</success></result>")
        except SessionInvalid as error:
            out.append(f"<result>{render_row_error(error)}<success>false</success></result>")
    return "".join(out)
