"""SOAP entry point: finds the operation, answers it, and turns every failure into a fault."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from tidewire.access.cursors import QueryCursors
from tidewire.access.gate import Gate
from tidewire.access.logins import Logins
from tidewire.access.paging import Kept
from tidewire.access.usage import DAILY_API_REQUESTS
from tidewire.clock import Clock
from tidewire.errors import InternalError, MethodNotAllowed, PlatformError, ResourceUnknown, SessionInvalid
from tidewire.frontends.soap import describe, dml, joining, query, users, utility
from tidewire.frontends.soap.calls import Operation, Services, SoapCall
from tidewire.frontends.soap.metadata.operations import METADATA_OPERATIONS
from tidewire.frontends.soap.namespaces import enter, leave, namespace_of
from tidewire.frontends.soap.wire import (
    CONTENT_TYPE,
    METADATA,
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

_PARSED_ON_LOOP_BYTES = 32 * 1024  # larger requests are taken apart on a thread

OPERATIONS: dict[str, Operation] = {
    "convertLead": joining.convert_lead,
    "create": dml.create,
    "delete": dml.delete,
    "describeGlobal": describe.describe_global,
    "describeLayout": describe.describe_layout,
    "describeSObject": describe.describe_sobject,
    "describeSObjects": describe.describe_sobjects,
    "describeTabs": describe.describe_tabs,
    "emptyRecycleBin": dml.empty_recycle_bin,
    "getDeleted": utility.get_deleted,
    "getServerTimestamp": utility.get_server_timestamp,
    "getUpdated": utility.get_updated,
    "getUserInfo": users.get_user_info,
    "invalidateSessions": utility.invalidate_sessions,
    "logout": users.logout,
    "merge": joining.merge,
    "query": query.query,
    "queryAll": query.query_all,
    "queryMore": query.query_more,
    "resetPassword": utility.reset_password,
    "retrieve": query.retrieve,
    "search": query.search,
    "setPassword": utility.set_password,
    "undelete": dml.undelete,
    "update": dml.update,
    "upsert": dml.upsert,
}
"""What each call does; login alone needs no session and is not among them."""


class SoapApp:
    """Answers `/services/Soap/u` (partner), `/services/Soap/c` (enterprise) and `/services/Soap/m` (metadata)."""

    def __init__(self, gate: Gate, logins: Logins, cursors: QueryCursors[Kept], clock: Clock) -> None:
        self._services = Services(gate, logins, cursors, clock)

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
        response = render_error(dialect, error)
        # A fault is sent with 500, but nobody who looks for a page expects one.
        is_page = request.method in ("GET", "HEAD") and isinstance(error, ResourceUnknown)
        return replace(response, status=404) if is_page else response

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            raise MethodNotAllowed("SOAP calls are sent by POST", allowed=("POST",))
        endpoint = parse_endpoint(request.raw_path)
        if len(request.body) <= _PARSED_ON_LOOP_BYTES:
            call = parse_request(request.body, endpoint.dialect)
        else:
            call = await asyncio.to_thread(parse_request, request.body, endpoint.dialect)
        usage: tuple[int, int] | None = None
        if call.operation == "login" and endpoint.dialect is not METADATA:
            content = await users.login(self._services.logins, request, endpoint, call)
        else:
            content = await self._call(endpoint, call)
            if endpoint.dialect is not METADATA:  # whose schema has no such header
                usage = (self._services.gate.usage.used(), DAILY_API_REQUESTS)
        return HttpResponse(
            200, render_answer(endpoint.dialect, call.operation, content, usage), CONTENT_TYPE
        )

    async def _call(self, endpoint: Endpoint, request: SoapRequest) -> str:
        operations = METADATA_OPERATIONS if endpoint.dialect is METADATA else OPERATIONS
        operation = operations.get(request.operation)
        if operation is None:
            name = f"{{{endpoint.dialect.namespace}}}{request.operation[:80]}"
            raise ResourceUnknown(f"No operation available for request {name}")
        # An absent header is an empty token, which no session has.
        principal = await self._services.logins.authenticate(request.session_id)
        if endpoint.org_id not in ("", principal.org_id):
            raise SessionInvalid("Session expired or invalid")  # the address of another org
        if request.operation != "logout":
            await self._services.gate.check_api(principal)
        self._services.gate.usage.count()
        call = SoapCall(self._services, request, endpoint, principal)
        namespace = None if endpoint.dialect is METADATA else namespace_of(request, call.gate.catalog)
        if namespace is None:
            return await operation(call)
        enter(namespace, request.body)
        return leave(namespace, await operation(call))
