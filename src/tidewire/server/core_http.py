"""The core's HTTP requests for one org, each handed to its front end."""

from __future__ import annotations

from collections.abc import Sequence

from tidewire.clock import Clock
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.delivery.front_end import CoreContext, CoreSide, DevLogin
from tidewire.server.core import Core
from tidewire.server.front_ends import core_sides, find_core_sides
from tidewire.server.lake import LakeReader
from tidewire.server.org_front import HTTPS_REQUIRED
from tidewire.telemetry import TIMINGS, timer_s
from tidewire.tracing import begin_request, end_request
from tidewire.transport.http import HttpRequest, HttpResponse


class CoreHttp:
    """The core side of every front end, for one org."""

    def __init__(
        self, core: Core, clock: Clock, *, is_dev: bool, is_first: bool, pipeline_dir: str = ""
    ) -> None:
        self._core = core
        login = DevLogin(DEV_USERNAME, DEV_PASSWORD, client_id=DEV_CLIENT_ID, client_secret=DEV_CLIENT_SECRET)
        context = CoreContext(
            core,
            clock,
            is_first,
            lake=LakeReader(pipeline_dir, clock) if pipeline_dir and is_first else None,
            dev_login=login if is_dev else None,
        )
        self._handlers = {name: side.open(context) for name, side in core_sides().items()}

    async def answer(
        self, request: HttpRequest, sides: Sequence[tuple[str, CoreSide]] | None = None
    ) -> HttpResponse:
        """Answer one request. Never raises: each front end turns its errors into responses.

        `sides` are the front ends to ask, in order; by default those whose paths match.
        """
        begun_s = timer_s()
        span = begin_request(request.headers.get("traceparent", ""))
        name, response = await self._answer(request, sides or find_core_sides(request))
        TIMINGS[name + ".request_answered"].observe(timer_s() - begun_s)
        if span is not None:
            attributes: dict[str, str | int] = {
                "http.request.method": request.method[:16],
                "http.response.status_code": response.status,
            }
            end_request(span, f"{name} request", attributes, is_error=response.status >= 500)
        return response

    async def _answer(
        self, request: HttpRequest, sides: Sequence[tuple[str, CoreSide]]
    ) -> tuple[str, HttpResponse]:
        if request.scheme == "http" and self.needs_https():
            return sides[0][0], HTTPS_REQUIRED
        for name, _ in sides:
            response = await self._handlers[name](request)
            if response is not None:
                return name, response
        return sides[-1][0], HttpResponse(404)

    def needs_https(self) -> bool:
        """Whether the org rejects connections without TLS."""
        return self._core.records.types.settings.https_required
