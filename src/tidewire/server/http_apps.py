"""The core's HTTP side: which application answers a path."""

from __future__ import annotations

import json

from tidewire.clock import Clock
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.console.page import DevLogin, page_response, session_response
from tidewire.frontends.rest.serve import RestApp
from tidewire.frontends.soap.serve import SoapApp
from tidewire.server.core import Core
from tidewire.server.front import HTTPS_REQUIRED
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse


class CoreHttp:
    """REST, SOAP, OAuth, health and the page."""

    def __init__(self, core: Core, clock: Clock, *, is_dev: bool, is_first: bool) -> None:
        self._core = core
        self._rest = RestApp(
            core.gate,
            core.logins,
            core.cursors,
            clock,
            core.oauth,
            core.jobs,
            core.generic,
            core.streams,
            is_first=is_first,
        )
        self._soap = SoapApp(core.gate, core.logins, core.cursors, clock)
        login = DevLogin(DEV_USERNAME, DEV_PASSWORD, client_id=DEV_CLIENT_ID, client_secret=DEV_CLIENT_SECRET)
        self._dev_login = login if is_dev else None

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: each application turns its errors into responses."""
        path = request.raw_path
        is_health = path in ("/healthz", "/readyz")
        if request.scheme == "http" and not is_health and self.needs_https():
            return HTTPS_REQUIRED
        if path.startswith(("/services/Soap/", "/services/wsdl/")) or path == "/soap/wsdl.jsp":
            return await self._soap.handle(request)
        if path.startswith(("/services/", "/id/")):
            return await self._rest.handle(request)
        if is_health:
            return self._health()
        if path == "/console/session":
            return session_response(self._dev_login)
        page = page_response(request.path) if request.method in ("GET", "HEAD") else None
        return page if page is not None else await self._rest.handle(request)

    def needs_https(self) -> bool:
        """Whether the org wants no plain connections."""
        return self._core.records.types.settings.https_required

    def _health(self) -> HttpResponse:
        failure = self._core.failure
        body = {"ok": failure is None, "transactions": counters["storage.transactions_committed"]}
        return HttpResponse(200 if failure is None else 503, json.dumps(body).encode())
