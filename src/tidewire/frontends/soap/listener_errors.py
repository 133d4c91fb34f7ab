"""Errors that the HTTP listener finds before SOAP sees the request, as faults. Pure."""

from __future__ import annotations

from tidewire.errors import ResourceUnknown
from tidewire.frontends.soap.wire import CONTENT_TYPE, PARTNER, parse_dialect, render_fault
from tidewire.transport.http import HttpRequest, HttpResponse


def try_render_listener_error(request: HttpRequest, status: int, text: str) -> HttpResponse | None:
    """Render a fault with the given status, on which clients and proxies act; None for downloads of a WSDL."""
    if not request.raw_path.startswith("/services/Soap/"):
        return None
    try:
        dialect = parse_dialect(request.raw_path)
    except ResourceUnknown:
        dialect = PARTNER
    code = "Client" if status < 500 else "Server"
    return HttpResponse(status, render_fault(dialect, code, text, ""), CONTENT_TYPE)
