"""SOAP entry point: finds the operation, answers it, and turns every failure into a fault."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from tidewire.access.logins import Logins
from tidewire.clock import Clock
from tidewire.errors import (
    BodyMalformed,
    InternalError,
    MethodNotAllowed,
    PlatformError,
    ResourceUnknown,
    SessionInvalid,
)
from tidewire.frontends.soap import describe, dml, layouts, merge_convert, query, users, utility
from tidewire.frontends.soap.calls import Operation, Services, SoapCall
from tidewire.frontends.soap.default_namespace import enter, leave, namespace_of
from tidewire.frontends.soap.metadata.operations import METADATA_OPERATIONS
from tidewire.frontends.soap.unsupported_calls import REFUSED
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
from tidewire.frontends.soap.wsdl.download import answer_wsdl, is_wsdl
from tidewire.frontends.soap.wsdl.shapes import HEADERS
from tidewire.gate.api_usage import DAILY_API_REQUESTS
from tidewire.gate.gate import Gate
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse

_log = logging.getLogger(__name__)

_PARSED_ON_LOOP_BYTES = 32 * 1024  # larger requests are taken apart on a thread

_PAGE_STATUS: dict[type[PlatformError], int] = {ResourceUnknown: 404, SessionInvalid: 401}

OPERATIONS: dict[str, Operation] = {
    "changeOwnPassword": utility.change_own_password,
    "convertLead": merge_convert.convert_lead,
    "create": dml.create,
    "delete": dml.delete,
    "describeAllTabs": layouts.describe_all_tabs,
    "describeAppMenu": layouts.describe_app_menu,
    "describeApprovalLayout": layouts.describe_approval_layout,
    "describeCompactLayouts": layouts.describe_compact_layouts,
    "describeGlobal": describe.describe_global,
    "describeGlobalTheme": layouts.describe_global_theme,
    "describeLayout": layouts.describe_layout,
    "describePrimaryCompactLayouts": layouts.describe_primary_compact_layouts,
    "describeSObject": describe.describe_sobject,
    "describeSObjects": describe.describe_sobjects,
    "describeSearchLayouts": layouts.describe_search_layouts,
    "describeSearchScopeOrder": layouts.describe_search_scope_order,
    "describeTabs": layouts.describe_tabs,
    "describeTheme": layouts.describe_theme,
    "emptyRecycleBin": dml.empty_recycle_bin,
    "getDeleted": utility.get_deleted,
    "getServerTimestamp": utility.get_server_timestamp,
    "getUpdated": utility.get_updated,
    "getUserInfo": users.get_user_info,
    "invalidateSessions": utility.invalidate_sessions,
    "logout": users.logout,
    "merge": merge_convert.merge,
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
    """Answers `/services/Soap/u` (partner), `/services/Soap/c` (enterprise), `/services/Soap/m` (metadata), and
    who fetches the WSDL of the first two.
    """

    def __init__(self, gate: Gate, logins: Logins, cursors: QueryCursors[CursorState], clock: Clock) -> None:
        self._services = Services(gate, logins, cursors, clock)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: a failure of ours is logged once and answered without detail."""
        counters["soap.requests_received"] += 1
        dialect = PARTNER
        try:
            if is_wsdl(request):
                return await answer_wsdl(self._services, request)
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
        is_page = request.method in ("GET", "HEAD")
        return (
            replace(response, status=_PAGE_STATUS.get(type(error), response.status)) if is_page else response
        )

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            raise MethodNotAllowed("SOAP calls are sent by POST", allowed=("POST",))
        endpoint = parse_endpoint(request.raw_path)
        if len(request.body) <= _PARSED_ON_LOOP_BYTES:
            call = parse_request(request.body, endpoint.dialect)
        else:
            call = await asyncio.to_thread(parse_request, request.body, endpoint.dialect)
        _check_understood(call, endpoint)
        usage: tuple[int, int] | None = None
        if call.operation == "login" and endpoint.dialect is not METADATA:
            content = await users.login(self._services.logins, request, endpoint, call)
        else:
            content = await self._call(endpoint, call, request)
            if endpoint.dialect is not METADATA:  # whose schema has no such header
                usage = (self._services.gate.usage.used(), DAILY_API_REQUESTS)
        return HttpResponse(
            200, render_answer(endpoint.dialect, call.operation, content, usage), CONTENT_TYPE
        )

    async def _call(self, endpoint: Endpoint, request: SoapRequest, sent: HttpRequest) -> str:
        operations = METADATA_OPERATIONS if endpoint.dialect is METADATA else OPERATIONS
        operation = operations.get(request.operation)
        if operation is None and endpoint.dialect is not METADATA:
            operation = REFUSED.get(request.operation)
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
        agent = sent.headers.get("user-agent", "")
        call = SoapCall(self._services, request, endpoint, principal, sent.peer, agent)
        namespace = None if endpoint.dialect is METADATA else namespace_of(request, call.gate.catalog)
        if namespace is None:
            return await operation(call)
        enter(namespace, request.body)
        return leave(namespace, await operation(call))


def _check_understood(request: SoapRequest, endpoint: Endpoint) -> None:
    """Raise BodyMalformed for a block of the header that has to be understood and is not one of the API's."""
    known = {f"{{{endpoint.dialect.namespace}}}{name}" for name in HEADERS}
    for tag in request.demanded:
        if tag not in known:
            raise BodyMalformed(
                f"Must understand check failed for header {tag[:200]}", soap_fault="MustUnderstand"
            )
