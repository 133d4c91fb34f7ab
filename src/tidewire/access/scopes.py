"""OAuth scopes: what a token may be used for. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidewire.errors import GrantInvalid

API = "api"
FULL = "full"
OPENID = "openid"
REFRESH = "refresh_token"
WEB = "web"

KNOWN = frozenset(
    {
        API,
        FULL,
        OPENID,
        REFRESH,
        WEB,
        "offline_access",
        "id",
        "profile",
        "email",
        "address",
        "phone",
        "visualforce",
        "chatter_api",
        "custom_permissions",
        "content",
        "pardot_api",
    }
)
"""Every scope that an app may have. Those of products that are not here are accepted and open nothing."""

NAMES = {
    API: "Read and change your data through the API",
    FULL: "Do all that you may do",
    OPENID: "Know who you are",
    "id": "Know who you are",
    "profile": "Read your name and settings",
    "email": "Read your email address",
    REFRESH: "Act for you at any time, until you revoke it",
    WEB: "Use the web pages as you",
}
"""What the consent page says of a scope."""


def parse_scopes(text: str) -> frozenset[str]:
    """The scopes of a request or a stored row; `offline_access` is another word for `refresh_token`.

    Raises GrantInvalid for one that does not exist.
    """
    words = {REFRESH if word == "offline_access" else word for word in text.split()}
    unknown = sorted(words - KNOWN)
    if unknown:
        raise GrantInvalid(
            f"the requested scope is invalid, unknown, or malformed: {unknown[0][:40]}",
            oauth_error="invalid_scope",
        )
    return frozenset(words)


def render_scopes(scopes: Iterable[str]) -> str:
    """Scopes as the wire and the store have them."""
    return " ".join(sorted(scopes))


def granted_scopes(asked: str, allowed: frozenset[str]) -> frozenset[str]:
    """What a request gets: all that the app has, or what it asks for of that. Raises GrantInvalid.

    `full` covers everything but the refresh token, which an app has to have by name.
    """
    scopes = parse_scopes(asked)
    if not scopes:
        return allowed
    has = allowed | (KNOWN - {REFRESH} if FULL in allowed else frozenset())
    if not scopes <= has:
        raise GrantInvalid(
            "the requested scope is not allowed for this app",
            oauth_error="invalid_scope",
        )
    return scopes


def still_allowed(scopes: frozenset[str], allowed: frozenset[str]) -> frozenset[str]:
    """Those of the scopes that an app still has."""
    return frozenset(s for s in scopes if s in allowed or (FULL in allowed and s != REFRESH))


def opens_api(scopes: frozenset[str]) -> bool:
    """Whether a token with these scopes may use the data APIs."""
    return API in scopes or FULL in scopes
