"""What the server needs to serve the Streaming API; see `tidewire.delivery.front_end`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from tidewire.delivery.front_end import EdgeApp, EdgeContext, EdgeHttp, EdgeSide, FrontEnd
from tidewire.delivery.link_values import ClientLimits
from tidewire.errors import AuthHeaderInvalid
from tidewire.frontends.bayeux.wire import parse_token
from tidewire.transport.http import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from tidewire.frontends.bayeux.settings import BayeuxOptions

_HOME = re.compile(rb'"clientId"\s*:\s*"([0-9a-z])')


def _find_token(request: HttpRequest) -> str:
    try:
        return parse_token(request.headers.get("authorization"))
    except AuthHeaderInvalid:
        return ""


def _find_home(request: HttpRequest) -> str:
    """Return the first character of the client id.

    A handshake has no id yet: the edge that gets it becomes the home.
    """
    body = request.body
    match = _HOME.search(body if b'"' in body else unquote_to_bytes(body.replace(b"+", b" ")))
    return "" if match is None else match[1].decode()


def _client_limits(options: BayeuxOptions) -> ClientLimits:
    return ClientLimits(options.bayeux_clients, options.bayeux_clients_per_user)


def _load_edge() -> EdgeSide:
    from tidewire.frontends.bayeux.serve import BayeuxApp, make_routes
    from tidewire.frontends.bayeux.settings import BayeuxSettings

    def open_app(context: EdgeContext) -> EdgeApp:
        settings = BayeuxSettings.from_options(context.settings)
        app = BayeuxApp(context.link, context.hub, context.clock, settings, home=context.home)
        return EdgeApp(app.close, lambda: app.session_count > 0, app.handle)

    http = EdgeHttp(make_routes, _find_token, unavailable=HttpResponse(503, b"[]"), find_home=_find_home)
    return EdgeSide(open_app, http)


FRONT_END = FrontEnd(
    "bayeux", re.compile(r"/cometd(?:/.*)?"), client_limits=_client_limits, load_edge=_load_edge
)
