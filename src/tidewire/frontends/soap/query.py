"""Calls that read records: query, queryAll, queryMore, search, retrieve, getUpdated and getDeleted."""

from __future__ import annotations

import asyncio

from tidewire.errors import FieldUnknown, SoqlSyntaxError
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.values import render_query_result, render_row
from tidewire.frontends.soap.wire import render_element, render_elements
from tidewire.gate.changed_records import parse_window_time, read_deleted, read_updated
from tidewire.gate.query_pages import AnswerPage, QueryPages
from tidewire.ids import normalise_id
from tidewire.schema.values import render_datetime

MAX_RETRIEVED = 2_000
_DEFAULT_BATCH_SIZE = 500
_MIN_BATCH_SIZE, _MAX_BATCH_SIZE = 200, 2_000
_RENDERED_ON_LOOP = 100  # pages with more rows are rendered on a thread


async def query(call: SoapCall) -> str:
    """Return the first page of a query; deleted records are left out."""
    return await _query(call, include_deleted=False)


async def query_all(call: SoapCall) -> str:
    """Return the first page of a query that includes deleted records."""
    return await _query(call, include_deleted=True)


async def _query(call: SoapCall, *, include_deleted: bool) -> str:
    soql = call.request.text("queryString")
    if not soql:
        raise SoqlSyntaxError("A query string has to be specified", row=1, column=1, query="")
    begun_s = call.services.clock.monotonic_s()
    pages = _pages(call)
    page = await pages.open(
        call.principal,
        soql,
        _batch_size(call),
        version=call.endpoint.version,
        include_deleted=include_deleted,
    )
    await pages.note_read(call.reader, page, "QueryAll" if include_deleted else "Query", begun_s)
    return await _render(call, page)


async def query_more(call: SoapCall) -> str:
    """Return a later page of a query, or of children that did not fit into their page."""
    locator = call.request.text("queryLocator")
    begun_s = call.services.clock.monotonic_s()
    pages = _pages(call)
    page = await pages.read_next(call.principal, locator, _batch_size(call))
    await pages.note_read(call.reader, page, "QueryMore", begun_s)
    return await _render(call, page)


def _pages(call: SoapCall) -> QueryPages:
    return QueryPages(call.gate, call.services.cursors, call.services.clock)


async def _render(call: SoapCall, page: AnswerPage) -> str:
    if len(page.rows.rows) <= _RENDERED_ON_LOOP:
        content = render_query_result(page, call.dialect)
    else:
        content = await asyncio.to_thread(render_query_result, page, call.dialect)
    return f'<result xsi:type="QueryResult">{content}</result>'


def _batch_size(call: SoapCall) -> int:
    """Return the rows per page that QueryOptions asks for, clamped to the range; it is only a hint."""
    text = call.request.header("QueryOptions", "batchSize")
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        return _DEFAULT_BATCH_SIZE
    return max(_MIN_BATCH_SIZE, min(_MAX_BATCH_SIZE, int(text)))


async def search(call: SoapCall) -> str:
    """Return the records that match a SOSL search, of all its objects in one list."""
    answers = await call.gate.search(call.principal, call.request.text("searchString"))
    records = [
        f"<searchRecords>{render_row(rows, row, call.dialect, 'record')}</searchRecords>"
        for rows in answers
        for row in rows.rows
    ]
    return f"<result><queryId></queryId>{''.join(records)}</result>"


async def retrieve(call: SoapCall) -> str:
    """Return records by id, in the order of the call; nil for one not found."""
    ids = call.request.texts("ids")
    check_count(ids, MAX_RETRIEVED)
    wanted = [normalise_id(record_id) for record_id in ids]
    entity, readable, _ = await call.gate.visible_fields(call.principal, call.request.text("sObjectType"))
    columns: list[str] = []
    for name in call.request.text("fieldList").split(","):
        field = entity.try_field(name.strip())
        if field is None or field.name not in readable:
            raise FieldUnknown(
                f"No such column '{name.strip()[:80]}' on entity '{entity.name}'",
                field=name.strip()[:80],
                entity=entity.name,
            )
        if field.name not in columns:
            columns.append(field.name)
    if not wanted:
        return ""
    listed = ", ".join(f"'{record_id}'" for record_id in dict.fromkeys(wanted))
    # Names come from the catalog and ids were checked, so neither can end the query's text.
    soql = f"SELECT {', '.join(columns)} FROM {entity.name} WHERE Id IN ({listed})"  # noqa: S608
    rows = await call.gate.query(call.principal, soql)
    found = {str(row["Id"]): row for row in rows.rows}
    return "".join(
        render_row(rows, found[record_id], call.dialect, "result")
        if record_id in found
        else '<result xsi:nil="true"/>'
        for record_id in wanted
    )


async def get_server_timestamp(call: SoapCall) -> str:
    """Return the server's time."""
    now = render_datetime(call.services.clock.now_ms(), "Z")
    return f"<result>{render_element('timestamp', now)}</result>"


async def get_updated(call: SoapCall) -> str:
    """List the ids of an object's records that changed in a time window."""
    found = await read_updated(call.gate, call.principal, *_window(call))
    ids = render_elements(("ids", record_id) for record_id in found.ids)
    covered = render_element("latestDateCovered", render_datetime(found.latest_covered_ms, "Z"))
    return f"<result>{ids}{covered}</result>"


async def get_deleted(call: SoapCall) -> str:
    """List the ids of an object's records that were deleted in a time window."""
    found = await read_deleted(call.gate, call.principal, *_window(call))
    records = "".join(
        "<deletedRecords>"
        + render_elements((("deletedDate", render_datetime(moment_ms, "Z")), ("id", record_id)))
        + "</deletedRecords>"
        for record_id, moment_ms in found.records
    )
    bounds = render_elements(
        (
            ("earliestDateAvailable", render_datetime(found.earliest_available_ms, "Z")),
            ("latestDateCovered", render_datetime(found.latest_covered_ms, "Z")),
        )
    )
    return f"<result>{records}{bounds}</result>"


def _window(call: SoapCall) -> tuple[str, int, int, int]:
    """Return the object, the start and end of the window, and the current time."""
    start_ms, end_ms = (parse_window_time(name, call.request.text(name)) for name in ("startDate", "endDate"))
    return call.request.text("sObjectType"), start_ms, end_ms, call.services.clock.now_ms()
