"""REST entry point: finds the resource, signs the caller in, and turns every failure into an answer."""

from __future__ import annotations

import logging
from dataclasses import replace

from tidewire.access.cursors import QueryCursors
from tidewire.access.gate import Call, Gate, Rows
from tidewire.access.logins import Logins
from tidewire.clock import Clock
from tidewire.errors import InternalError, MethodNotAllowed, PlatformError, ResourceUnknown
from tidewire.frontends.rest.data import DataApi
from tidewire.frontends.rest.oauth import OAuthApi
from tidewire.frontends.rest.wire import (
    NO_STORE,
    parse_json_object,
    parse_segments,
    parse_token,
    parse_version,
    refuse_xml,
    render_json,
    render_versions,
)
from tidewire.frontends.rest.wire_errors import render_error
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse

_log = logging.getLogger(__name__)
_APPLY_ORIGIN = "tidewire/apply/1.0"


class RestApp:
    """Answers `/services/data`, `/services/oauth2`, `/services/tidewire/v1/apply` and `/id`."""

    def __init__(self, gate: Gate, logins: Logins, cursors: QueryCursors[Rows], clock: Clock) -> None:
        self._gate = gate
        self._logins = logins
        self._data = DataApi(gate, cursors, clock)
        self._oauth = OAuthApi(logins, clock)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: a failure of ours is logged once and answered without detail."""
        if request.method == "HEAD":  # the transport leaves the body out
            request = replace(request, method="GET")
        counters["rest.requests_received"] += 1
        try:
            return await self._answer(request)
        except InternalError:
            _log_failure(request)
            error: PlatformError = InternalError("internal error")
        except PlatformError as err:
            error = err
        except Exception:
            _log_failure(request)
            error = InternalError("internal error")
        counters["rest.requests_refused"] += 1
        return render_error(request, error)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        segments = parse_segments(request.raw_path)
        match segments:
            case ("services", "data", *rest):
                return await self._answer_data(request, tuple(rest))
            case ("services", "oauth2", "token"):
                _require_method(request, "POST")
                return await self._oauth.give_token(request)
            case ("services", "oauth2", "userinfo"):
                _require_method(request, "GET", "POST")
                return await self._oauth.tell_userinfo(request)
            case ("services", "oauth2", "revoke"):
                _require_method(request, "GET", "POST")
                return await self._oauth.revoke(request)
            case ("services", "tidewire", "v1", "apply"):
                _require_method(request, "POST")
                return await self._apply(request)
            case ("id", org_id, user_id):
                _require_method(request, "GET")
                return await self._oauth.tell_identity(request, org_id, user_id)
            case _:
                raise ResourceUnknown("The requested resource does not exist")

    async def _answer_data(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse:
        refuse_xml(request)
        if not segments:
            _require_method(request, "GET")
            return render_json(request, 200, render_versions())
        version = parse_version(segments[0])
        principal = await self._logins.authenticate(parse_token(request))
        return await self._data.answer(request, version, segments[1:], principal)

    async def _apply(self, request: HttpRequest) -> HttpResponse:
        principal = await self._logins.authenticate(parse_token(request))
        document = parse_json_object(request)
        # Anything but a clear no means: change nothing.
        dry_run = request.query.get("dryRun", "false").lower() not in ("false", "0")
        call = Call(principal, _APPLY_ORIGIN)
        plan = await self._gate.apply_definition(call, document, dry_run=dry_run)
        return render_json(request, 200, {"plan": plan, "applied": not dry_run}, (NO_STORE,))


def _require_method(request: HttpRequest, *allowed: str) -> None:
    if request.method not in allowed:
        raise MethodNotAllowed(
            f"HTTP Method '{request.method[:16]}' not allowed. Allowed are {', '.join(allowed)}",
            allowed=allowed,
        )


def _log_failure(request: HttpRequest) -> None:
    """Log the exception being handled; the query is left out because it may hold a token."""
    _log.exception("rest.request_failed", extra={"method": request.method, "path": request.raw_path[:200]})
