"""OAuth scopes: parsing, rendering, and which ones a request is granted. Pure."""

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
"""Every scope that an app may have. Scopes of the original's other products are accepted and grant nothing."""

NAMES = {
    API: "Read and change your data through the API",
    FULL: "Do everything that you can do",
    OPENID: "Identify you",
    "id": "Identify you",
    "profile": "Read your name and settings",
    "email": "Read your email address",
    REFRESH: "Access your data at any time, until you revoke it",
    WEB: "Use the web pages as you",
}
"""The text for each scope on the consent page."""


def parse_scopes(text: str) -> frozenset[str]:
    """Parse the scopes of a request or a stored row; `offline_access` is an alias of `refresh_token`.

    Raises GrantInvalid for an unknown scope.
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
    """Render scopes for the wire and the database."""
    return " ".join(sorted(scopes))


def granted_scopes(requested: str, allowed: frozenset[str]) -> frozenset[str]:
    """Return the requested scopes if the app has them, or all of the app's if none is requested.

    `full` includes every scope except `refresh_token`, which an app must have by name. Raises GrantInvalid.
    """
    scopes = parse_scopes(requested)
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
    """Return the scopes that an app still has."""
    return frozenset(s for s in scopes if s in allowed or (FULL in allowed and s != REFRESH))


def opens_api(scopes: frozenset[str]) -> bool:
    """Whether a token with these scopes may use the data APIs."""
    return API in scopes or FULL in scopes
