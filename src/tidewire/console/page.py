"""Serve the built page, and the login that development mode offers it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tidewire.delivery.front_end import DevLogin
from tidewire.transport.http import HttpResponse

STATIC_DIR = Path(__file__).parent / "static"

_FILES = {
    "/": ("index.html", "text/html;charset=UTF-8"),
    "/console/app.js": ("app.js", "text/javascript;charset=UTF-8"),
    "/console/app.css": ("app.css", "text/css;charset=UTF-8"),
    "/console/icon.svg": ("icon.svg", "image/svg+xml"),
}

_HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script';"
        " trusted-types 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)

_NOT_BUILT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Tidewire: page not built</title></head>
<body>
<h1>The page has not been built</h1>
<p>The server runs and its APIs answer. To get this page, run <code>make web</code> in the checkout and
load it again.</p>
</body>
</html>
"""


def page_response(path: str, directory: Path = STATIC_DIR) -> HttpResponse | None:
    """Return the file of the page at this decoded path, None if there is none.

    A page that was never built answers 503 with an explanation, and is looked for again at the next request.
    """
    known = _FILES.get(path)
    if known is None:
        return None
    name, content_type = known
    try:
        body = _load_file(directory / name)
    except FileNotFoundError:
        return HttpResponse(503, _NOT_BUILT.encode(), "text/html;charset=UTF-8", _HEADERS)
    return HttpResponse(200, body, content_type, _HEADERS)


def session_response(dev: DevLogin | None) -> HttpResponse:
    """Answer `/console/session`: the development login, or null if a person must sign in.

    It is sent without CORS headers, so pages of other origins cannot read it.
    """
    offered = None
    if dev is not None:
        offered = {
            "username": dev.username,
            "password": dev.password,
            "client_id": dev.client_id,
            "client_secret": dev.client_secret,
        }
    return HttpResponse(200, json.dumps({"dev": offered}).encode(), headers=_HEADERS)


@cache
def _load_file(path: Path) -> bytes:
    # Read once: the files change only with a new build. A failed read is not cached.
    return path.read_bytes()
