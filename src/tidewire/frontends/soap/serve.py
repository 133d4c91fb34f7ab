"""SOAP entry point: find the operation, run it, and render every failure as a fault."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace
from xml.etree.ElementTree import Element

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
from tidewire.frontends.soap import describe, dml, layouts, merge_convert, metadata, query, users
from tidewire.frontends.soap.calls import Operation, Services, SoapCall
from tidewire.frontends.soap.unsupported_calls import UNSUPPORTED
from tidewire.frontends.soap.wire import (
    CONTENT_TYPE,
    METADATA,
    PARTNER,
    XSI_TYPE,
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
from tidewire.gate.namespaces import Namespace, try_namespace
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState
from tidewire.schema.catalog import Catalog
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.xml_trees import local_name

_log = logging.getLogger(__name__)

_PARSED_ON_LOOP_BYTES = 32 * 1024  # larger requests are parsed on a thread

_NAME_ELEMENTS = frozenset(
    {"type", "sObjectType", "externalIDFieldName", "externalIdFieldName", "fieldsToNull"}
)
_TAG = re.compile(r"(</?(?:[A-Za-z]\w*:)?)(\w+)")

_PAGE_STATUS: dict[type[PlatformError], int] = {ResourceUnknown: 404, SessionInvalid: 401}

OPERATIONS: dict[str, Operation] = {
    "changeOwnPassword": users.change_own_password,
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
    "getDeleted": query.get_deleted,
    "getServerTimestamp": query.get_server_timestamp,
    "getUpdated": query.get_updated,
    "getUserInfo": users.get_user_info,
    "invalidateSessions": users.invalidate_sessions,
    "logout": users.logout,
    "merge": merge_convert.merge,
    "query": query.query,
    "queryAll": query.query_all,
    "queryMore": query.query_more,
    "resetPassword": users.reset_password,
    "retrieve": query.retrieve,
    "search": query.search,
    "setPassword": users.set_password,
    "undelete": dml.undelete,
    "update": dml.update,
    "upsert": dml.upsert,
}
"""The handler of each call; login, which needs no session, is handled apart."""


class SoapApp:
    """Answers `/services/Soap/u` (partner), `/c` (enterprise) and `/m` (metadata), and serves their WSDLs."""

    def __init__(self, gate: Gate, logins: Logins, cursors: QueryCursors[CursorState], clock: Clock) -> None:
        self._services = Services(gate, logins, cursors, clock)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Never raises: an internal failure is logged once and answered without detail."""
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
        # A fault has status 500, but a browser that fetches a page expects 404 or 401.
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
            if endpoint.dialect is not METADATA:  # its schema has no LimitInfoHeader
                usage = (self._services.gate.usage.used(), DAILY_API_REQUESTS)
        return HttpResponse(
            200, render_answer(endpoint.dialect, call.operation, content, usage), CONTENT_TYPE
        )

    async def _call(self, endpoint: Endpoint, request: SoapRequest, sent: HttpRequest) -> str:
        operations = metadata.OPERATIONS if endpoint.dialect is METADATA else OPERATIONS
        operation = operations.get(request.operation)
        if operation is None and endpoint.dialect is not METADATA:
            operation = UNSUPPORTED.get(request.operation)
        if operation is None:
            name = f"{{{endpoint.dialect.namespace}}}{request.operation[:80]}"
            raise ResourceUnknown(f"No operation available for request {name}")
        # Without a header the token is empty, which no session has.
        principal = await self._services.logins.sessions.authenticate(request.session_id)
        if endpoint.org_id not in ("", principal.org_id):
            raise SessionInvalid("Session expired or invalid")  # the address of another org
        if request.operation != "logout":
            await self._services.gate.check_api(principal)
        self._services.gate.usage.count()
        agent = sent.headers.get("user-agent", "")
        call = SoapCall(self._services, request, endpoint, principal, sent.peer, agent)
        namespace = None if endpoint.dialect is METADATA else _namespace_of(request, call.gate.catalog)
        if namespace is None:
            return await operation(call)
        _add_prefixes(namespace, request.body)
        return _strip_prefixes(namespace, await operation(call))


def _check_understood(request: SoapRequest, endpoint: Endpoint) -> None:
    """Raise BodyMalformed for an unknown header block that is marked mustUnderstand."""
    known = {f"{{{endpoint.dialect.namespace}}}{name}" for name in HEADERS}
    for tag in request.demanded:
        if tag not in known:
            raise BodyMalformed(
                f"Must understand check failed for header {tag[:200]}", soap_fault="MustUnderstand"
            )


def _namespace_of(request: SoapRequest, catalog: Catalog) -> Namespace | None:
    """Return the namespace that a call omits (`defaultNamespace` of CallOptions), or None if its names are full.

    Descriptions always use full names.
    """
    given = request.header("CallOptions", "defaultNamespace")
    if not given or request.operation.startswith("describe"):
        return None
    return try_namespace(catalog, given)


def _add_prefixes(namespace: Namespace, body: Element) -> None:
    """Add the prefix to the names in a call, in place."""
    for element in body.iter():
        name = local_name(element)
        text = (element.text or "").strip()
        if name in _NAME_ELEMENTS:
            element.text = namespace.qualify(text)
        elif name == "queryString":
            element.text = namespace.qualify_query(text)
        elif name == "searchString":
            element.text = namespace.qualify_search(text)
        elif name == "fieldList":
            element.text = ",".join(namespace.qualify_path(each.strip()) for each in text.split(","))
        typed = element.get(XSI_TYPE)
        if typed is not None:
            prefix, colon, kind = typed.rpartition(":")
            element.set(XSI_TYPE, prefix + colon + namespace.qualify(kind))
        element.tag = element.tag.removesuffix(name) + namespace.qualify(name)


def _strip_prefixes(namespace: Namespace, content: str) -> str:
    """Return an answer whose names omit the prefix, as the caller's do."""
    return _TAG.sub(lambda found: found[1] + namespace.unqualify(found[2]), content)
