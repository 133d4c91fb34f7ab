"""Errors of the HTTP listener, such as an oversized request, in the format of the API they are for. Pure."""

from __future__ import annotations

from tidewire.frontends.rest.bulk.classic_wire import render_failure
from tidewire.frontends.rest.wire import NO_STORE, render_json
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.frontends.rest.xml_bodies import as_xml, wants_xml
from tidewire.transport.http import HttpRequest, HttpResponse

_CODES = {
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "REQUEST_ENTITY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    417: "EXPECTATION_FAILED",
    429: "REQUEST_LIMIT_EXCEEDED",
    431: "REQUEST_HEADER_FIELDS_TOO_LARGE",
    500: "UNKNOWN_EXCEPTION",
    503: "SERVER_UNAVAILABLE",
    505: "HTTP_VERSION_NOT_SUPPORTED",
}
_OTHER = "INVALID_REQUEST"


def try_render_listener_error(request: HttpRequest, status: int, text: str) -> HttpResponse | None:
    """Render a listener error; None if the path does not belong to REST."""
    path = request.raw_path
    if _is_under(path, "/services/async"):
        return render_failure(request, status, "ClientInputError" if status < 500 else "Unknown", text)
    if _is_under(path, "/services/oauth2"):
        error = {"error": "invalid_request" if status < 500 else "server_error", "error_description": text}
        return render_json(request, status, error, (NO_STORE,))
    if not path.startswith("/services/"):
        return None
    response = render_protocol_error(request, status, _CODES.get(status, _OTHER), text)
    return as_xml(response, "Errors") if wants_xml(request) else response


def _is_under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
