"""The results of login and getUserInfo. Pure. Their order is the WSDL's: clients index into it by number."""

from __future__ import annotations

from tidewire.access.logins import LoginResult, UserInfo
from tidewire.frontends.soap.wire import Endpoint, render_elements

_ATTACHMENT_LIMIT_BYTES = 5_242_880


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
            ("orgHasPersonAccounts", False),
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
