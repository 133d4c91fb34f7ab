"""SOQL queries with their pages and plans, and SOSL searches."""

from __future__ import annotations

from functools import partial

from tidewire.errors import SearchMalformed, SoqlSyntaxError
from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer
from tidewire.frontends.rest.parameterized_search import parse_search_body, parse_search_query
from tidewire.frontends.rest.query_columns import render_columns
from tidewire.frontends.rest.record_json import render_page, render_plans, render_record
from tidewire.frontends.rest.wire import POSITION_HEADER, parse_batch_size
from tidewire.frontends.rest.xml_bodies import parse_body
from tidewire.gate.query_pages import AnswerPage
from tidewire.transport.http import HttpResponse

_SEARCH_OBJECT_VERSION = 37  # older versions answer a search with a bare list


async def query(api: Api, call: ApiCall, resource: str) -> HttpResponse:
    """Return the first page of a query. Only the resource `queryAll` includes deleted records."""
    parameters = call.request.query
    includes_deleted = resource == "queryAll"
    if "explain" in parameters and "q" not in parameters:
        soql = _require_soql(parameters["explain"])
        plans = await api.pages.explain(
            call.principal, soql, version=call.version, include_deleted=includes_deleted
        )
        return render_answer(api, call, 200, render_plans(plans, soql))
    soql = _require_soql(parameters.get("q", ""))
    if parameters.get("columns", "").lower() == "true":
        bound = await api.pages.bind(call.principal, soql, version=call.version)
        return render_answer(api, call, 200, render_columns(bound))
    begun_s = api.clock.monotonic_s()
    page = await api.pages.open(
        call.principal,
        soql,
        parse_batch_size(call.request),
        version=call.version,
        include_deleted=includes_deleted,
    )
    await api.pages.note_read(call.reader, page, "QueryAll" if includes_deleted else "Query", begun_s)
    return answer_page(api, call, page, resource)


async def next_page(api: Api, call: ApiCall) -> HttpResponse:
    """Return a later page of a query, or of children that did not fit into their page."""
    (locator,) = call.arguments
    begun_s = api.clock.monotonic_s()
    page = await api.pages.read_next(call.principal, locator, parse_batch_size(call.request))
    await api.pages.note_read(call.reader, page, "QueryMore", begun_s)
    return answer_page(api, call, page, "query")


def answer_page(api: Api, call: ApiCall, page: AnswerPage, resource: str) -> HttpResponse:
    """Render one page of a query, with the log position that it was read at."""
    body = render_page(page, call.version, resource)
    return render_answer(api, call, 200, body, (POSITION_HEADER, str(page.rows.position)))


async def search(api: Api, call: ApiCall) -> HttpResponse:
    """Return the records that match a SOSL search, of all its objects in one list."""
    return await _search(api, call, call.request.query.get("q", ""))


async def search_by_parameters(api: Api, call: ApiCall) -> HttpResponse:
    """Search by query parameters."""
    return await _search(api, call, parse_search_query(call.request))


async def search_by_body(api: Api, call: ApiCall) -> HttpResponse:
    """Search by the parameters of a request body."""
    return await _search(api, call, parse_search_body(parse_body(call.request)))


async def _search(api: Api, call: ApiCall, sosl: str) -> HttpResponse:
    if not sosl.strip():
        raise SearchMalformed("A search string has to be specified")
    answers = await api.gate.search(call.principal, sosl)
    records = [
        render_record(rows.entity, rows.select, row, call.version) for rows in answers for row in rows.rows
    ]
    body: object = {"searchRecords": records} if call.version >= _SEARCH_OBJECT_VERSION else records
    return render_answer(api, call, 200, body)


def _require_soql(text: str) -> str:
    if not text.strip():
        raise SoqlSyntaxError("A query string has to be specified", row=1, column=1, query="")
    return text


ROUTES: tuple[Route[Api], ...] = (
    Route(("query",), {"GET": partial(query, resource="query")}, xml_root="QueryResult"),
    Route(("queryAll",), {"GET": partial(query, resource="queryAll")}, since=29, xml_root="QueryResult"),
    Route(("query", "*"), {"GET": next_page}, xml_root="QueryResult"),
    Route(("queryAll", "*"), {"GET": next_page}, since=29, xml_root="QueryResult"),
    Route(("search",), {"GET": search}, xml_root="SearchResult"),
    Route(
        ("parameterizedSearch",),
        {"GET": search_by_parameters, "POST": search_by_body},
        since=36,
        xml_root="SearchResult",
    ),
)
