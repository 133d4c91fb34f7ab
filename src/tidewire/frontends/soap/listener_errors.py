"""Requests that the listener refuses before SOAP sees them, as faults. Pure."""

from __future__ import annotations

from tidewire.errors import ResourceUnknown
from tidewire.frontends.soap.wire import CONTENT_TYPE, PARTNER, parse_dialect, render_fault
from tidewire.transport.http import HttpRequest, HttpResponse


def render_listener_error(request: HttpRequest, status: int, text: str) -> HttpResponse:
    """A fault that blames the message, or us. Its status stays what it is: clients and proxies act on that."""
    try:
        dialect = parse_dialect(request.raw_path)
    except ResourceUnknown:
        dialect = PARTNER
    code = "Client" if status < 500 else "Server"
    return HttpResponse(status, render_fault(dialect, code, text, ""), CONTENT_TYPE)
