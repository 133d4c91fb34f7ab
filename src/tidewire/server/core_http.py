"""The core's HTTP side: which application answers a path."""

from __future__ import annotations

from tidewire.clock import Clock
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.console.page import DevLogin, page_response, session_response
from tidewire.frontends.rest.serve import RestApp
from tidewire.frontends.soap.serve import SoapApp
from tidewire.matching.log_ranges import LogRanges
from tidewire.server.core import Core
from tidewire.server.front import HTTPS_REQUIRED
from tidewire.server.lake import LakeReader
from tidewire.telemetry import TIMINGS, timer_s
from tidewire.tracing import begin_request, end_request
from tidewire.transport.http import HttpRequest, HttpResponse


class CoreHttp:
    """REST, SOAP, OAuth and the page."""

    def __init__(
        self, core: Core, clock: Clock, *, is_dev: bool, is_first: bool, pipeline_dir: str = ""
    ) -> None:
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
            LogRanges(core.gate, core.log, core.capture),
            is_first=is_first,
            lake=LakeReader(pipeline_dir, clock) if pipeline_dir and is_first else None,
        )
        self._soap = SoapApp(core.gate, core.logins, core.cursors, clock)
        login = DevLogin(DEV_USERNAME, DEV_PASSWORD, client_id=DEV_CLIENT_ID, client_secret=DEV_CLIENT_SECRET)
        self._dev_login = login if is_dev else None

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: each application turns its errors into responses."""
        path = request.raw_path
        front_end = "soap" if path.startswith(("/services/Soap/", "/services/wsdl/")) else "rest"
        begun_s = timer_s()
        span = begin_request(request.headers.get("traceparent", ""))
        response = await self._answer(request, path)
        TIMINGS[front_end + ".request_answered"].observe(timer_s() - begun_s)
        if span is not None:
            attributes: dict[str, str | int] = {
                "http.request.method": request.method[:16],
                "http.response.status_code": response.status,
            }
            end_request(span, f"{front_end} request", attributes, is_error=response.status >= 500)
        return response

    async def _answer(self, request: HttpRequest, path: str) -> HttpResponse:
        if request.scheme == "http" and self.needs_https():
            return HTTPS_REQUIRED
        if path.startswith(("/services/Soap/", "/services/wsdl/")) or path == "/soap/wsdl.jsp":
            return await self._soap.handle(request)
        if path.startswith(("/services/", "/id/")):
            return await self._rest.handle(request)
        if path == "/console/session":
            return session_response(self._dev_login)
        page = page_response(request.path) if request.method in ("GET", "HEAD") else None
        return page if page is not None else await self._rest.handle(request)

    def needs_https(self) -> bool:
        """Whether the org wants no plain connections."""
        return self._core.records.types.settings.https_required
