"""A user's identity in the three JSON forms of OAuth: token answer, userinfo and identity URL. Pure.

All URLs use the scheme and host of the request, so that clients come back by the name they used.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidewire.access.logins import UserInfo
from tidewire.ids import short_id, try_normalise_id
from tidewire.schema.values import render_datetime

_REST_URLS = {
    "rest": "/services/data/v{version}/",
    "sobjects": "/services/data/v{version}/sobjects/",
    "search": "/services/data/v{version}/search/",
    "query": "/services/data/v{version}/query/",
    "recent": "/services/data/v{version}/recent/",
    "tooling_rest": "/services/data/v{version}/tooling/",
}


def identity_url(base_url: str, org_id: str, user_id: str) -> str:
    """Return the identity URL of a user, which ends in the org's and the user's id."""
    return f"{base_url}/id/{try_normalise_id(org_id) or org_id}/{user_id}"


def render_token(
    base_url: str, token: str, org_id: str, user_id: str, client_secret: str, issued_ms: int
) -> dict[str, str]:
    """Render the token endpoint's answer. The signature lets clients verify the identity URL."""
    url = identity_url(base_url, org_id, user_id)
    issued_at = str(issued_ms)
    digest = hmac.new(client_secret.encode(), (url + issued_at).encode(), hashlib.sha256).digest()
    return {
        "access_token": token,
        "instance_url": base_url,
        "id": url,
        "token_type": "Bearer",
        "issued_at": issued_at,
        "signature": base64.b64encode(digest).decode(),
    }


def _urls(base_url: str, info: UserInfo) -> dict[str, str]:
    org = short_id(info.org_id)
    urls = {
        "enterprise": f"{base_url}/services/Soap/c/{{version}}/{org}",
        "metadata": f"{base_url}/services/Soap/m/{{version}}/{org}",
        "partner": f"{base_url}/services/Soap/u/{{version}}/{org}",
    }
    urls |= {name: base_url + path for name, path in _REST_URLS.items()}
    urls["profile"] = f"{base_url}/{info.user_id}"
    urls["custom_domain"] = base_url
    return urls


def _utc_offset_ms(time_zone: str, now_ms: int) -> int:
    """Return a zone's offset without daylight saving time; an unknown zone counts as UTC."""
    try:
        moment = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(ZoneInfo(time_zone))
    except (ZoneInfoNotFoundError, ValueError):
        return 0
    offset = (moment.utcoffset() or timedelta()) - (moment.dst() or timedelta())
    return round(offset.total_seconds()) * 1000


def _nickname(info: UserInfo) -> str:
    return info.nickname or info.username.partition("@")[0]


def _address(info: UserInfo) -> dict[str, str]:
    """Return a user's address under the names of OpenID Connect."""
    parts = {
        "street_address": info.street,
        "locality": info.city,
        "region": info.state,
        "country": info.country,
        "postal_code": info.postal_code,
    }
    return {name: value for name, value in parts.items() if value}


def render_userinfo(base_url: str, info: UserInfo, now_ms: int) -> dict[str, object]:
    """Render a user in the form of OpenID Connect."""
    return {
        "sub": identity_url(base_url, info.org_id, info.user_id),
        "user_id": info.user_id,
        "organization_id": info.org_id,
        "preferred_username": info.username,
        "nickname": _nickname(info),
        "name": info.full_name,
        "email": info.email,
        "email_verified": True,
        "given_name": info.first_name or None,
        "family_name": info.last_name,
        "zoneinfo": info.time_zone,
        "photos": {"picture": None, "thumbnail": None},
        "profile": f"{base_url}/{info.user_id}",
        "picture": None,
        "address": _address(info),
        "urls": _urls(base_url, info),
        "active": info.is_active,
        "user_type": info.user_type.upper(),
        "language": info.language,
        "locale": info.locale,
        "utcOffset": _utc_offset_ms(info.time_zone, now_ms),
        "updated_at": render_datetime(info.modified_ms, "").partition(".")[0] + "Z",
        "is_salesforce_integration_user": False,
    }


def render_identity(base_url: str, info: UserInfo, now_ms: int, version: str) -> dict[str, object]:
    """Render a user in the form of the identity URL; `version`, if given, replaces the placeholder in URLs."""
    urls = _urls(base_url, info)
    if version:
        urls = {name: url.replace("{version}", version) for name, url in urls.items()}
    return {
        "id": identity_url(base_url, info.org_id, info.user_id),
        "asserted_user": True,
        "user_id": info.user_id,
        "organization_id": info.org_id,
        "username": info.username,
        "nick_name": _nickname(info),
        "display_name": info.full_name,
        "email": info.email,
        "email_verified": True,
        "first_name": info.first_name or None,
        "last_name": info.last_name,
        "timezone": info.time_zone,
        "photos": {"picture": None, "thumbnail": None},
        "addr_street": info.street or None,
        "addr_city": info.city or None,
        "addr_state": info.state or None,
        "addr_country": info.country or None,
        "addr_zip": info.postal_code or None,
        "mobile_phone": info.mobile_phone or None,
        "mobile_phone_verified": False,
        "is_lightning_login_user": False,
        "status": {"created_date": None, "body": None},
        "urls": urls,
        "active": info.is_active,
        "user_type": info.user_type.upper(),
        "language": info.language,
        "locale": info.locale,
        "utcOffset": _utc_offset_ms(info.time_zone, now_ms),
        "last_modified_date": render_datetime(info.modified_ms, "+0000"),
        "is_app_installed": True,
    }
