"""What the server needs to serve the console; see `tidewire.delivery.front_end`."""

from __future__ import annotations

import re

from tidewire.console.page import page_response, session_response
from tidewire.delivery.front_end import CoreContext, CoreHandler, CoreSide, FrontEnd, OrgDirectory
from tidewire.transport.http import HttpRequest, HttpResponse


def _open(context: CoreContext) -> CoreHandler:
    async def answer(request: HttpRequest) -> HttpResponse | None:
        if request.raw_path == "/console/session":
            return session_response(context.dev_login)
        return page_response(request.path) if request.method in ("GET", "HEAD") else None

    return answer


async def _find_org(_: HttpRequest, orgs: OrgDirectory) -> str:
    return orgs.first_id  # the page is the same for all orgs


FRONT_END = FrontEnd(
    "console", re.compile(r"/(?:console/.*)?", re.DOTALL), load_core=lambda: CoreSide(_open, _find_org)
)
