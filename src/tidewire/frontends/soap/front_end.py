"""What the server needs to serve SOAP and WSDL documents; see `tidewire.delivery.front_end`."""

from __future__ import annotations

import re

from tidewire.delivery.front_end import CoreContext, CoreHandler, CoreSide, FrontEnd, OrgDirectory
from tidewire.frontends.soap.listener_errors import try_render_listener_error
from tidewire.transport.http import HttpRequest


def _load_core() -> CoreSide:
    from tidewire.frontends.soap.request_routing import parse_routing_keys
    from tidewire.frontends.soap.serve import SoapApp
    from tidewire.frontends.soap.wsdl.download import find_token

    def open_app(context: CoreContext) -> CoreHandler:
        core = context.core
        return SoapApp(core.gate, core.logins, core.cursors, context.clock).handle

    async def find_org(request: HttpRequest, orgs: OrgDirectory) -> str:
        if request.method != "POST" or not request.raw_path.startswith("/services/Soap/"):
            return await orgs.find_by_token(find_token(request))
        keys = parse_routing_keys(request.body)
        if keys.token:
            return await orgs.find_by_token(keys.token)
        return await orgs.find_by_login(keys.username)

    return CoreSide(open_app, find_org)


FRONT_END = FrontEnd(
    "soap",
    re.compile(r"/services/(?:Soap|wsdl)/.*|/soap/wsdl\.jsp", re.DOTALL),
    try_render_listener_error,
    load_core=_load_core,
)
