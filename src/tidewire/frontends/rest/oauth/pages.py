"""Renders the login, consent and device pages as HTML without scripts. Pure.

All input is escaped. The content security policy allows the style by its hash, and forms only to this server and to the
app's callback URL, which browsers check again on the redirect.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape
from urllib.parse import urlsplit

from tidewire.access.scopes import NAMES
from tidewire.transport.http import HttpResponse

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;background:#eef2f5;color:#14222d}"
    "main{max-width:24rem;margin:12vh auto 2rem;padding:2rem;background:#fff;border-radius:.5rem}"
    "h1{font-size:1.25rem;margin:0 0 1rem}label{display:block;margin:1rem 0 .25rem}"
    "input{box-sizing:border-box;width:100%;padding:.5rem;font:inherit;border:1px solid #60707d;border-radius:.25rem}"
    "button{margin:1.5rem .5rem 0 0;padding:.5rem 1.25rem;font:inherit;border:1px solid #0b5c8a;border-radius:.25rem;"
    "background:#fff;color:#0b5c8a}button.main{background:#0b5c8a;color:#fff}"
    ".problem{color:#9b1c1c;font-weight:600}"
    "@media(prefers-color-scheme:dark){body{background:#10181f;color:#e6edf2}main{background:#1a252e}"
    "input{background:#10181f;color:inherit}button{background:transparent;color:#8ecbf0;border-color:#8ecbf0}"
    "button.main{background:#8ecbf0;color:#10181f}.problem{color:#ff9b9b}}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_NETLOC = re.compile(r"[A-Za-z0-9.:\[\]_-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def render_login(
    action: str, hidden: dict[str, str], *, username: str = "", problem: str = "", leads_to: str = ""
) -> HttpResponse:
    """Render the form for user name and password."""
    focus = "" if username else " autofocus"
    body = (
        f"<h1>Sign in to Tidewire</h1>{_problem(problem)}"
        f'<form method="post" action="{escape(action)}">{_hidden(hidden | {"action": "login"})}'
        f'<label for="username">User name</label><input id="username" name="username" required maxlength="80"'
        f' autocomplete="username" autocapitalize="none" spellcheck="false" value="{escape(username)}"{focus}>'
        '<label for="password">Password</label><input id="password" name="password" type="password" required'
        f' autocomplete="current-password"{" autofocus" if username else ""}>'
        '<button class="main">Sign in</button></form>'
    )
    return _page("Sign in", body, 200 if not problem else 401, leads_to)


def render_consent(
    action: str,
    hidden: dict[str, str],
    *,
    app: str,
    username: str,
    scopes: Iterable[str],
    leads_to: str = "",
) -> HttpResponse:
    """Render the form on which the user approves an app."""
    items = "".join(
        f"<li>{escape(text)}</li>"
        for text in dict.fromkeys(NAMES.get(scope, scope) for scope in sorted(scopes))
    )
    body = (
        f"<h1>Allow access?</h1><p><strong>{escape(app)}</strong> is requesting permission to:</p><ul>{items}</ul>"
        f"<p>You are signed in as {escape(username)}.</p>"
        f'<form method="post" action="{escape(action)}">{_hidden(hidden)}'
        '<button class="main" name="action" value="allow">Allow</button>'
        '<button name="action" value="deny">Deny</button></form>'
    )
    return _page("Allow access?", body, 200, leads_to)


def render_device_form(action: str, hidden: dict[str, str], *, code: str, problem: str = "") -> HttpResponse:
    """Render the form for a device's code."""
    body = (
        f"<h1>Connect a device</h1>{_problem(problem)}"
        f'<form method="post" action="{escape(action)}">{_hidden(hidden | {"action": "code"})}'
        '<label for="user_code">Code shown on the device</label>'
        f'<input id="user_code" name="user_code" required autocomplete="off" maxlength="40" autofocus'
        f' value="{escape(code)}"><button class="main">Connect</button></form>'
    )
    return _page("Connect a device", body, 200 if not problem else 400)


def render_message(title: str, text: str, status: int = 200) -> HttpResponse:
    """Render a page with a message."""
    return _page(title, f"<h1>{escape(title)}</h1><p>{escape(text)}</p>", status)


def _hidden(values: dict[str, str]) -> str:
    return "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in values.items()
    )


def _problem(text: str) -> str:
    return f'<p class="problem" role="alert">{escape(text)}</p>' if text else ""


def _page(title: str, body: str, status: int, leads_to: str = "") -> HttpResponse:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)} - Tidewire</title><style>{_STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>"
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'{_source(leads_to)};"
        " frame-ancestors 'none'; base-uri 'none'"
    )
    headers = (
        ("Content-Security-Policy", policy),
        ("X-Frame-Options", "DENY"),
        ("X-Content-Type-Options", "nosniff"),
        # Not `no-referrer`: browsers then send no usable Origin with the form either.
        ("Referrer-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    )
    return HttpResponse(status, html.encode("utf-8", "replace"), "text/html;charset=UTF-8", headers)


def _source(url: str) -> str:
    """Return the app's callback URL as a source of the policy, which browsers apply to redirects after a form."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        return f" {parts.scheme}://{parts.netloc}" if _NETLOC.fullmatch(parts.netloc) else ""
    return f" {parts.scheme}:" if _SCHEME.fullmatch(parts.scheme) else ""
