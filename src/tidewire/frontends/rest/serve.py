"""REST entry point: finds the resource, signs the caller in, and turns every failure into an answer."""

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
from tidewire.frontends.rest.cors import try_answer_preflight, with_cors
from tidewire.frontends.rest.data import DataApi
from tidewire.frontends.rest.management.database import DatabaseApi
from tidewire.frontends.rest.management.log_export import LogExportApi
from tidewire.frontends.rest.management.logins import AdminApi
from tidewire.frontends.rest.management.pipeline import LakeApi
from tidewire.frontends.rest.management.status import StreamsApi
from tidewire.frontends.rest.oauth.api import OAuthApi
from tidewire.frontends.rest.wire import (
    NO_STORE,
    parse_address,
    parse_json_object,
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
_APPLY_ORIGIN = "tidewire/apply/1.0"
_ADMIN_ORIGIN = "tidewire/access/1.0"


class RestApp:
    """Answers `/services/data`, `/services/async`, `/services/oauth2`, `/services/tidewire/v1`, `/id` and the login
    pages.
    """

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
        self._data = DataApi(gate, cursors, clock, generic, streams.allocations)
        self._jobs = JobsApi(gate, jobs)
        self._classic = ClassicApi(gate, logins, jobs)
        self._admin = AdminApi(logins, oauth.apps)
        self._database = DatabaseApi(gate)
        self._streams = StreamsApi(streams, is_first=is_first)
        self._lake = LakeApi(gate, logins, lake)
        self._log_export = LogExportApi(logins, ranges)
        self._oauth = OAuthApi(oauth, logins, gate, clock)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: a failure of ours is logged once and answered without detail."""
        if request.method == "HEAD":  # the transport leaves the body out
            request = replace(request, method="GET")
        counters["rest.requests_received"] += 1
        allowed = self._gate.records.types.settings.cors_allowed_origins
        if not allowed:
            return await self._answer_or_refuse(request)
        preflight = try_answer_preflight(request, allowed)
        if preflight is not None:
            return preflight
        return with_cors(request, await self._answer_or_refuse(request), allowed)

    async def _answer_or_refuse(self, request: HttpRequest) -> HttpResponse:
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
            case ("services", "tidewire", "v1", "apply"):
                require_method(request, "POST")
                return await self._apply(request)
            case ("services", "tidewire", "v1", "database" | "activities", *_):
                principal = await self._logins.authenticate(parse_token(request))
                return await self._database.answer(request, segments[3:], Call(principal, _ADMIN_ORIGIN))
            case ("services", "tidewire", "v1", "status" | "metrics", *_):
                principal = await self._logins.authenticate(parse_token(request))
                return await self._streams.answer(request, segments[3:], Call(principal, _ADMIN_ORIGIN))
            case ("services", "tidewire", "v1", "pipeline", *_):
                principal = await self._logins.authenticate(parse_token(request))
                return await self._lake.answer(request, segments[4:], Call(principal, _ADMIN_ORIGIN))
            case ("services", "tidewire", "v1", "log", *rest):
                principal = await self._logins.authenticate(parse_token(request))
                call = Call(principal, _ADMIN_ORIGIN)
                return await self._log_export.answer(request, tuple(rest), call)
            case ("services", "tidewire", "v1", *rest):
                principal = await self._logins.authenticate(parse_token(request))
                return await self._admin.answer(request, tuple(rest), Call(principal, _ADMIN_ORIGIN))
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
            # The APIs were taken from the org, or from the user, since the login.
            raise AccessDenied(
                "The REST API is not enabled for this Organization or Partner", permission="ApiEnabled"
            )
        response = await self._answer_signed_in(request, version, segments, principal)
        if request.method == "GET":
            # Whoever was signed out while the answer was being read must not get to see it. What a write did
            # stays done, and its answer true.
            await self._logins.sessions.peek(token)
        return response

    def _answer_signed_in(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> Awaitable[HttpResponse]:
        match segments[1:]:
            case ("sobjects", entity, user_id, "password") if entity.lower() == "user":
                call = Call(principal, render_origin(request, version))
                return self._admin.answer_password(request, user_id, call)
            case ("jobs", *rest):
                return self._jobs.answer(request, version, tuple(rest), principal)
            case rest:
                return self._data.answer(request, version, rest, principal)

    async def _apply(self, request: HttpRequest) -> HttpResponse:
        principal = await self._logins.authenticate(parse_token(request))
        document = parse_json_object(request)
        # Anything but a clear no means: change nothing.
        dry_run = request.query.get("dryRun", "false").lower() not in ("false", "0")
        call = Call(principal, _APPLY_ORIGIN)
        applied = await self._gate.apply_definition(call, document, dry_run=dry_run)
        answer = {"plan": applied.lines, "applied": not dry_run, "secrets": dict(applied.secrets)}
        return render_json(request, 200, answer, (NO_STORE,))


def _log_failure(request: HttpRequest) -> None:
    """Log the exception being handled; the query is left out because it may hold a token."""
    _log.exception("rest.request_failed", extra={"method": request.method, "path": request.raw_path[:200]})
