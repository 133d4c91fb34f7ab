"""SOAP entry point: finds the operation, answers it, and turns every failure into a fault."""

from __future__ import annotations

import logging

from tidewire.access.cursors import QueryCursors
from tidewire.access.gate import Gate, Rows
from tidewire.access.logins import Logins
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import InternalError, LoginFailed, MethodNotAllowed, PlatformError, ResourceUnknown
from tidewire.frontends.soap.users import render_login, render_user_info
from tidewire.frontends.soap.wire import (
    CONTENT_TYPE,
    PARTNER,
    Endpoint,
    SoapRequest,
    parse_dialect,
    parse_endpoint,
    parse_request,
    render_answer,
)
from tidewire.frontends.soap.wire_errors import render_error
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse

_log = logging.getLogger(__name__)


class SoapApp:
    """Answers `/services/Soap/u` (partner) and `/services/Soap/c` (enterprise)."""

    def __init__(self, gate: Gate, logins: Logins, cursors: QueryCursors[Rows], clock: Clock) -> None:
        self._gate = gate
        self._cursors = cursors
        self._logins = logins
        self._clock = clock

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: a failure of ours is logged once and answered without detail."""
        counters["soap.requests_received"] += 1
        dialect = PARTNER
        try:
            dialect = parse_dialect(request.raw_path)
            return await self._answer(request)
        except InternalError:
            _log.exception("soap.request_failed", extra={"path": request.raw_path[:200]})
            error: PlatformError = InternalError("internal error")
        except PlatformError as err:
            error = err
        except Exception:
            _log.exception("soap.request_failed", extra={"path": request.raw_path[:200]})
            error = InternalError("internal error")
        counters["soap.requests_refused"] += 1
        return render_error(dialect, error)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            raise MethodNotAllowed("SOAP calls are sent by POST", allowed=("POST",))
        endpoint = parse_endpoint(request.raw_path)
        call = parse_request(request.body, endpoint.dialect)
        match call.operation:
            case "login":
                result = await self._login(request, endpoint, call)
            case "logout":
                await self._logins.logout(await self._principal(call))
                result = ""
            case "getUserInfo":
                info = await self._logins.user_info(await self._principal(call))
                result = render_user_info(info, self._logins.seconds_valid)
            case _:
                name = f"{{{endpoint.dialect.namespace}}}{call.operation[:80]}"
                raise ResourceUnknown(f"No operation available for request {name}")
        return HttpResponse(200, render_answer(endpoint.dialect, call.operation, result), CONTENT_TYPE)

    async def _login(self, request: HttpRequest, endpoint: Endpoint, call: SoapRequest) -> str:
        username = call.arguments.get("username", "")
        password = call.arguments.get("password", "")
        if not username or not password:
            raise LoginFailed("a login needs a user name and a password")
        login = await self._logins.login(username, password, request.peer)
        info = await self._logins.user_info(login.principal)
        return render_login(login, info, endpoint, request.base_url)

    async def _principal(self, call: SoapRequest) -> Principal:
        """The user behind the session header; an absent header is an empty token, which no session has."""
        return await self._logins.authenticate(call.session_id)
