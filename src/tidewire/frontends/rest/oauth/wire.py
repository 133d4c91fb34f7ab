"""OAuth on the wire: request parameters, error responses and redirects. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit, urlunsplit

from tidewire.frontends.rest.wire import NO_STORE, parse_form, render_json
from tidewire.transport.http import HttpRequest, HttpResponse


def given_parameters(request: HttpRequest) -> dict[str, str]:
    """Return the parameters of the query and, on a POST, of the form, which takes precedence."""
    form = parse_form(request) if request.method == "POST" else None
    return request.query | (form or {})


def client_credentials(request: HttpRequest, form: Mapping[str, str]) -> tuple[str, str]:
    """Return client id and secret from the form, or else from HTTP Basic."""
    if "client_id" in form:
        return form["client_id"], form.get("client_secret", "")
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    client_id, _, client_secret = text.partition(":")
    return client_id, client_secret


def refuse(request: HttpRequest, error: str, description: str) -> HttpResponse:
    """Render an error of the token endpoint."""
    return render_json(request, 400, {"error": error, "error_description": description}, (NO_STORE,))


def redirect(url: str, values: Mapping[str, str], *, in_fragment: bool = False) -> HttpResponse:
    """Redirect the browser to an app with these values, in the query or in the fragment."""
    text = urlencode({name: value for name, value in values.items() if value})
    scheme, netloc, path, query, _ = urlsplit(url)
    if in_fragment:
        target = urlunsplit((scheme, netloc, path, query, text))
    else:
        target = urlunsplit((scheme, netloc, path, f"{query}&{text}" if query else text, ""))
    return redirect_to(target)


def redirect_to(target: str, *headers: tuple[str, str], status: int = 302) -> HttpResponse:
    """Redirect the browser to a URL that the caller has checked."""
    return HttpResponse(status, b"", "", (("Location", target), NO_STORE, *headers))
