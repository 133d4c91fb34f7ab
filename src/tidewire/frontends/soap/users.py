"""Signing in and out: login, logout and getUserInfo. The order of what they tell is the WSDL's: clients index into
it by number.
"""

from __future__ import annotations

from tidewire.access.logins import LoginResult, Logins, UserInfo
from tidewire.errors import LoginFailed
from tidewire.frontends.soap.calls import SoapCall
from tidewire.frontends.soap.wire import Endpoint, SoapRequest, render_elements
from tidewire.transport.http import HttpRequest

_ATTACHMENT_LIMIT_BYTES = 5_242_880


async def login(logins: Logins, http: HttpRequest, endpoint: Endpoint, request: SoapRequest) -> str:
    """Start a session."""
    username = request.text("username")
    password = request.text("password")
    if not username or not password:
        raise LoginFailed("a login needs a user name and a password")
    scope = request.header("LoginScopeHeader", "organizationId")
    started = await logins.login(username, password, http.peer, org_id=scope)
    info = await logins.user_info(started.principal)
    return f"<result>{render_login(started, info, endpoint, http.base_url)}</result>"


async def logout(call: SoapCall) -> str:
    """End the session that the call came with."""
    await call.services.logins.logout(call.principal)
    return ""


async def get_user_info(call: SoapCall) -> str:
    """Who is calling."""
    logins = call.services.logins
    info = await logins.user_info(call.principal)
    return f"<result>{render_user_info(info, logins.seconds_valid)}</result>"


def render_user_info(info: UserInfo, seconds_valid: int) -> str:
    """The 24 elements of a GetUserInfoResult."""
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
    """The seven elements of a LoginResult."""
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
