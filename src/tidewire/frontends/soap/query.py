"""The calls that read records: query, queryAll, queryMore, search and retrieve."""

from __future__ import annotations

import asyncio

from tidewire.errors import FieldUnknown, SoqlSyntaxError
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.values import render_query_result, render_row
from tidewire.gate.monitoring import QueryRead
from tidewire.gate.query_pages import AnswerPage, QueryPages
from tidewire.ids import normalise_id
from tidewire.schema.standard.monitoring import API

MAX_RETRIEVED = 2_000
_DEFAULT_BATCH_SIZE = 500
_MIN_BATCH_SIZE, _MAX_BATCH_SIZE = 200, 2_000
_RENDERED_ON_LOOP = 100  # more rows than this are written out on a thread


async def query(call: SoapCall) -> str:
    """The first page of a query over living records."""
    return await _query(call, include_deleted=False)


async def query_all(call: SoapCall) -> str:
    """The first page of a query over all records, the deleted ones too."""
    return await _query(call, include_deleted=True)


async def _query(call: SoapCall, *, include_deleted: bool) -> str:
    soql = call.request.text("queryString")
    if not soql:
        raise SoqlSyntaxError("A query string has to be specified", row=1, column=1, query="")
    begun_s = call.services.clock.monotonic_s()
    page = await _pages(call).open(
        call.principal,
        soql,
        _batch_size(call),
        version=call.endpoint.version,
        include_deleted=include_deleted,
    )
    await _note_read(call, page, "QueryAll" if include_deleted else "Query", begun_s)
    return await _render(call, page)


async def _note_read(call: SoapCall, page: AnswerPage, operation: str, begun_s: float) -> None:
    monitor = call.gate.monitor
    if not monitor.is_enabled(API):
        return
    rows = page.rows
    elapsed_ms = round((call.services.clock.monotonic_s() - begun_s) * 1000)
    read = QueryRead(operation, page.soql, rows.entity.name, rows.rows, page.total, elapsed_ms)
    await monitor.publish_query(call.reader, read)


async def query_more(call: SoapCall) -> str:
    """A later page of an earlier query, or of children that did not fit into their page."""
    locator = call.request.text("queryLocator")
    begun_s = call.services.clock.monotonic_s()
    page = await _pages(call).read_next(call.principal, locator, _batch_size(call))
    await _note_read(call, page, "QueryMore", begun_s)
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
    """The rows per page that QueryOptions asks for, brought into the range; it is only a hint."""
    text = call.request.header("QueryOptions", "batchSize")
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        return _DEFAULT_BATCH_SIZE
    return max(_MIN_BATCH_SIZE, min(_MAX_BATCH_SIZE, int(text)))


async def search(call: SoapCall) -> str:
    """Records that match a SOSL search, of all its objects in one list."""
    answers = await call.gate.search(call.principal, call.request.text("searchString"))
    records = [
        f"<searchRecords>{render_row(rows, row, call.dialect, 'record')}</searchRecords>"
        for rows in answers
        for row in rows.rows
    ]
    return f"<result><queryId></queryId>{''.join(records)}</result>"


async def retrieve(call: SoapCall) -> str:
    """Records by id in the order asked for, nil in place of one that is not there."""
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
    # Names are the catalog's and ids are letters and digits by now.
    soql = f"SELECT {', '.join(columns)} FROM {entity.name} WHERE Id IN ({listed})"  # noqa: S608
    rows = await call.gate.query(call.principal, soql)
    found = {str(row["Id"]): row for row in rows.rows}
    return "".join(
        render_row(rows, found[record_id], call.dialect, "result")
        if record_id in found
        else '<result xsi:nil="true"/>'
        for record_id in wanted
    )
