"""CORS: web pages from the origins in the org's setting `cors_allowed_origins` may call the API. Pure.

For any other origin the headers are missing, and the browser withholds the answer from the page. The origin is always
named and never `*`, because answers depend on the caller. The login pages are excluded: no other page may read them.
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
    """Answer a preflight request; None if it is not one or the origin is not allowed."""
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
    """Add the headers that let a page of an allowed origin read the answer."""
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
    """Compile an allowed origin; `*` stands for one or more labels of the host."""
    text = re.escape(listed.strip().rstrip("/")).replace(r"\*", r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
    return re.compile(text, re.IGNORECASE)
