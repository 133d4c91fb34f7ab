"""REST entry point: authenticate the caller, dispatch to the APIs, and render every failure as an answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import replace

from tidewire.access.logins import Logins
from tidewire.access.oauth import OAuth
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.front_end import LakeView
from tidewire.delivery.open_streams import OpenStreams
from tidewire.errors import (
    AccessDenied,
    InternalError,
    PlatformError,
    ResourceUnknown,
    SessionError,
)
from tidewire.frontends.rest.bulk.classic import ClassicApi
from tidewire.frontends.rest.bulk.jobs import JobsApi
from tidewire.frontends.rest.calls import Api
from tidewire.frontends.rest.conditional_requests import ChangeTimes
from tidewire.frontends.rest.cors import try_answer_preflight, with_cors
from tidewire.frontends.rest.data import DATA_ROUTES
from tidewire.frontends.rest.management.api import answer_management
from tidewire.frontends.rest.management.calls import Services
from tidewire.frontends.rest.management.logins import answer_password
from tidewire.frontends.rest.oauth.routes import OAuthApi
from tidewire.frontends.rest.wire import (
    parse_address,
    parse_token,
    parse_version,
    render_json,
    render_origin,
    render_versions,
    require_method,
)
from tidewire.frontends.rest.wire_errors import render_error
from tidewire.frontends.rest.xml_bodies import as_xml, wants_xml
from tidewire.gate.gate import Gate
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState
from tidewire.gate.requests import Call
from tidewire.jobs.service import BulkJobs
from tidewire.matching.generic import GenericStreaming
from tidewire.matching.log_ranges import LogRanges
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse

_log = logging.getLogger(__name__)


class RestApp:
    """Answers everything under `/services` except SOAP, and `/id` and the login pages."""

    def __init__(
        self,
        gate: Gate,
        logins: Logins,
        cursors: QueryCursors[CursorState],
        clock: Clock,
        oauth: OAuth,
        jobs: BulkJobs,
        generic: GenericStreaming,
        streams: OpenStreams,
        ranges: LogRanges,
        *,
        is_first: bool,
        lake: LakeView | None = None,
    ) -> None:
        self._gate = gate
        self._logins = logins
        self._data = Api(DATA_ROUTES, gate, cursors, clock, generic, streams.allocations, ChangeTimes(clock))
        self._jobs = JobsApi(gate, jobs)
        self._classic = ClassicApi(gate, logins, jobs)
        self._management = Services(gate, logins, oauth.apps, streams, ranges, lake, is_first)
        self._oauth = OAuthApi(oauth, logins, gate, clock)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: an internal failure is logged once and answered without detail."""
        if request.method == "HEAD":  # the transport omits the body
            request = replace(request, method="GET")
        counters["rest.requests_received"] += 1
        allowed = self._gate.records.types.settings.cors_allowed_origins
        if not allowed:
            return await self._answer_or_render_error(request)
        preflight = try_answer_preflight(request, allowed)
        if preflight is not None:
            return preflight
        return with_cors(request, await self._answer_or_render_error(request), allowed)

    async def _answer_or_render_error(self, request: HttpRequest) -> HttpResponse:
        segments, chosen = parse_address(request)
        if chosen:
            request = replace(request, headers={**request.headers, "accept": chosen})
        try:
            if segments[:2] == ("services", "data"):
                return await self._answer_data(request, segments[2:])
            return await self._answer(request, segments)
        except InternalError:
            _log_failure(request)
            error: PlatformError = InternalError("internal error")
        except PlatformError as err:
            error = err
        except Exception:
            _log_failure(request)
            error = InternalError("internal error")
        counters["rest.requests_refused"] += 1
        response = render_error(request, error)
        if segments[:2] != ("services", "data"):
            return response
        if not isinstance(error, SessionError):
            response = replace(response, headers=(*response.headers, self._gate.usage.header()))
        return as_xml(response, "Errors") if wants_xml(request) else response

    async def _answer(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse:
        match segments:
            case ("services", "async", *rest):
                return await self._classic.handle(request, tuple(rest))
            case ("services", "tidewire", "v1", *rest):
                return await answer_management(self._management, request, tuple(rest))
            case _:
                answered = await self._oauth.try_answer(request, segments)
                if answered is not None:
                    return answered
                raise ResourceUnknown("The requested resource does not exist")

    async def _answer_data(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse:
        if not segments:
            require_method(request, "GET")
            versions = render_json(request, 200, render_versions())
            return as_xml(versions, "Versions") if wants_xml(request) else versions
        version = parse_version(segments[0])
        token = parse_token(request)
        principal = await self._logins.sessions.authenticate(token)
        gate = self._gate
        is_on = gate.records.types.settings.api_enabled
        if not is_on or not (await gate.grants(principal)).has("ApiEnabled"):
            # The org or the user lost access to the APIs since the login.
            raise AccessDenied(
                "The REST API is not enabled for this Organization or Partner", permission="ApiEnabled"
            )
        response = await self._answer_signed_in(request, version, segments, principal)
        if request.method == "GET":
            # A caller whose session ended while the answer was read must not see it. A write stays done, so its
            # answer is sent.
            await self._logins.sessions.peek(token)
        return response

    def _answer_signed_in(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> Awaitable[HttpResponse]:
        match segments[1:]:
            case ("sobjects", entity, user_id, "password") if entity.lower() == "user":
                call = Call(principal, render_origin(request, version))
                return answer_password(self._logins, request, user_id, call)
            case ("jobs", *rest):
                return self._jobs.answer(request, version, tuple(rest), principal)
            case rest:
                return self._data.answer(request, version, rest, principal)


def _log_failure(request: HttpRequest) -> None:
    """Log the current exception; the query string is omitted because it may hold a token."""
    _log.exception("rest.request_failed", extra={"method": request.method, "path": request.raw_path[:200]})
