"""Which web pages of other origins may call the API: those that the org's setting `cors_allowed_origins`
lists. Pure.

Without a listed origin an answer has none of these headers, and the browser keeps it from the page. The
origin is always named and never `*`, because answers may depend on who asks. The login pages are left out: no
other page may read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from tidewire.transport.http import HttpRequest, HttpResponse

_PATHS = re.compile(
    r"/(?:services/data|services/async|services/oauth2/(?:token|revoke|userinfo|introspect)|id)"
    r"(?:/.*|\.json|\.xml)?"
)
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_REQUEST_HEADERS = (
    "Accept, Authorization, Content-Encoding, Content-Type, If-Match, If-Modified-Since, If-None-Match,"
    " If-Unmodified-Since, Sforce-Auto-Assign, Sforce-Call-Options, Sforce-Duplicate-Rule-Header, Sforce-Mru,"
    " Sforce-Query-Options, X-PrettyPrint, X-Requested-With, X-SFDC-Session, X-User-Agent"
)
_EXPOSED = (
    "ETag, Last-Modified, Location, Retry-After, Sforce-Limit-Info, Sforce-Locator, Sforce-NumberOfRecords,"
    " Tidewire-Position"
)
_PREFLIGHT_LASTS_S = 3600
_VARY = ("Vary", "Origin")


def try_answer_preflight(request: HttpRequest, allowed: Sequence[str]) -> HttpResponse | None:
    """The answer to a browser that asks beforehand; None if this is no such question or the answer is no."""
    if request.method != "OPTIONS" or "access-control-request-method" not in request.headers:
        return None
    origin = _try_origin(request, allowed)
    if origin is None:
        return None
    headers = (
        *_grant(origin),
        ("Access-Control-Allow-Methods", _METHODS),
        ("Access-Control-Allow-Headers", _REQUEST_HEADERS),
        ("Access-Control-Max-Age", str(_PREFLIGHT_LASTS_S)),
    )
    return HttpResponse(204, b"", "", headers)


def with_cors(request: HttpRequest, response: HttpResponse, allowed: Sequence[str]) -> HttpResponse:
    """An answer that the page of a listed origin may read."""
    if not allowed or "origin" not in request.headers or not _PATHS.fullmatch(request.raw_path):
        return response
    origin = _try_origin(request, allowed)
    if origin is None:
        return replace(response, headers=(*response.headers, _VARY))
    exposed = ("Access-Control-Expose-Headers", _EXPOSED)
    return replace(response, headers=(*response.headers, *_grant(origin), exposed))


def _grant(origin: str) -> tuple[tuple[str, str], ...]:
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Credentials", "true"),
        _VARY,
    )


def _try_origin(request: HttpRequest, allowed: Sequence[str]) -> str | None:
    origin = request.headers.get("origin", "")
    if not origin or not _PATHS.fullmatch(request.raw_path):
        return None
    return origin if any(_pattern(listed).fullmatch(origin) for listed in allowed) else None


@lru_cache(maxsize=256)
def _pattern(listed: str) -> re.Pattern[str]:
    """A listed origin; `*` stands for one or more labels of the host."""
    text = re.escape(listed.strip().rstrip("/")).replace(r"\*", r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
    return re.compile(text, re.IGNORECASE)
