"""Queries, their pages and plans, and searches."""

from __future__ import annotations

from tidewire.errors import SearchMalformed, SoqlSyntaxError
from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer, require_version
from tidewire.frontends.rest.parameterized_search import parse_search_body, parse_search_query
from tidewire.frontends.rest.query_columns import render_columns
from tidewire.frontends.rest.record_json import render_page, render_plans, render_record
from tidewire.frontends.rest.wire import POSITION_HEADER, parse_batch_size
from tidewire.frontends.rest.xml_bodies import parse_body
from tidewire.gate.monitoring import QueryRead
from tidewire.gate.query_pages import AnswerPage
from tidewire.schema.standard.monitoring import API
from tidewire.transport.http import HttpResponse

_SEARCH_OBJECT_VERSION = 37  # older versions answer a search with a bare list
_FIRST_PARAMETERIZED = 36


async def query(api: Api, call: ApiCall) -> HttpResponse:
    """The first page of a query over living records."""
    return await _query(api, call, "query")


async def query_all(api: Api, call: ApiCall) -> HttpResponse:
    """The first page of a query over all records, the deleted ones too."""
    return await _query(api, call, "queryAll")


async def _query(api: Api, call: ApiCall, resource: str) -> HttpResponse:
    explained = call.request.query.get("explain")
    if explained is not None and "q" not in call.request.query:
        return await _explain(api, call, explained, resource)
    if call.request.query.get("columns", "").lower() == "true":
        bound = await api.pages.bind(
            call.principal, _soql(call.request.query.get("q", "")), version=call.version
        )
        return render_answer(api, call, 200, render_columns(bound))
    begun_s = api.clock.monotonic_s()
    page = await api.pages.open(
        call.principal,
        _soql(call.request.query.get("q", "")),
        parse_batch_size(call.request),
        version=call.version,
        include_deleted=resource == "queryAll",
    )
    await _note_read(api, call, page, "QueryAll" if resource == "queryAll" else "Query", begun_s)
    return answer_page(api, call, page, resource)


async def _note_read(api: Api, call: ApiCall, page: AnswerPage, operation: str, begun_s: float) -> None:
    monitor = api.gate.monitor
    if not monitor.is_enabled(API):
        return
    rows = page.rows
    elapsed_ms = round((api.clock.monotonic_s() - begun_s) * 1000)
    read = QueryRead(operation, page.soql, rows.entity.name, rows.rows, page.total, elapsed_ms)
    await monitor.publish_query(call.reader, read)


async def _explain(api: Api, call: ApiCall, soql: str, resource: str) -> HttpResponse:
    plans = await api.pages.explain(
        call.principal, _soql(soql), version=call.version, include_deleted=resource == "queryAll"
    )
    return render_answer(api, call, 200, render_plans(plans, soql))


async def next_page(api: Api, call: ApiCall) -> HttpResponse:
    """A later page of an earlier query, or of children that did not fit into their page."""
    (locator,) = call.arguments
    begun_s = api.clock.monotonic_s()
    page = await api.pages.read_next(call.principal, locator, parse_batch_size(call.request))
    await _note_read(api, call, page, "QueryMore", begun_s)
    return answer_page(api, call, page, "query")


def answer_page(api: Api, call: ApiCall, page: AnswerPage, resource: str) -> HttpResponse:
    """One page of a query as an answer."""
    body = render_page(page, call.version, resource)
    return render_answer(api, call, 200, body, (POSITION_HEADER, str(page.rows.position)))


async def search(api: Api, call: ApiCall) -> HttpResponse:
    """Records that match a SOSL search, of all its objects in one list."""
    return await _search(api, call, call.request.query.get("q", ""))


async def search_by_parameters(api: Api, call: ApiCall) -> HttpResponse:
    """Records that match a word, looked for as query parameters say."""
    require_version(call, _FIRST_PARAMETERIZED)
    return await _search(api, call, parse_search_query(call.request))


async def search_by_body(api: Api, call: ApiCall) -> HttpResponse:
    """Records that match a word, looked for as a request body says."""
    require_version(call, _FIRST_PARAMETERIZED)
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


def _soql(text: str) -> str:
    if not text.strip():
        raise SoqlSyntaxError("A query string has to be specified", row=1, column=1, query="")
    return text


ROUTES: tuple[Route[Api], ...] = (
    Route(("query",), {"GET": query}, xml_root="QueryResult"),
    Route(("queryAll",), {"GET": query_all}, xml_root="QueryResult"),
    Route(("query", "*"), {"GET": next_page}, xml_root="QueryResult"),
    Route(("queryAll", "*"), {"GET": next_page}, xml_root="QueryResult"),
    Route(("search",), {"GET": search}, xml_root="SearchResult"),
    Route(
        ("parameterizedSearch",),
        {"GET": search_by_parameters, "POST": search_by_body},
        xml_root="SearchResult",
    ),
)
