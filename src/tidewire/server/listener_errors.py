"""What the listener refuses by itself, in the form that clients of the path look for. Pure.

Such a request may end within its head, so the path is all that tells whose it is. What belongs to no API is a line of
text, as is Bayeux, whose clients know its words.
"""

from __future__ import annotations

from tidewire.frontends.rest.listener_errors import try_render_listener_error
from tidewire.frontends.soap.listener_errors import render_listener_error as render_soap_error
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import render_plain_refusal


def render_refusal(request: HttpRequest, status: int, text: str) -> HttpResponse:
    """The answer to a request that no handler gets to see."""
    if request.raw_path.startswith("/services/Soap/"):
        return render_soap_error(request, status, text)
    return try_render_listener_error(request, status, text) or render_plain_refusal(request, status, text)
