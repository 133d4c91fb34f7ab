"""Query results page by page, for every front end that hands out locators.

A cursor keeps the text of its query and the ids of its rows, 18 bytes each, and no values. Every later page is bound
to the caller's current grants and read by those ids, so it shows no field or record that the caller has lost since;
a field that no longer exists fails the page as it would fail the query. Relative dates stay those of the first page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import LocatorInvalid
from tidewire.gate.gate import Gate
from tidewire.gate.monitoring import ApiReader, QueryRead
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.reads import rows_of
from tidewire.gate.requests import Rows
from tidewire.records.explain import Plan, explain_query
from tidewire.records.query import Children, QueryRunner, Record, RowIds, run_query
from tidewire.records.query_page import QueryPage, child_query, read_first_page, read_page
from tidewire.schema.standard.monitoring import API
from tidewire.soql.bound import BoundQuery
from tidewire.soql.parser import parse_query
from tidewire.soql.select_binder import NESTED_CHILDREN_VERSION, check_child_levels
from tidewire.storage.store import Reader


@dataclass(frozen=True, slots=True)
class CursorState:
    """What a cursor keeps of a result. `path` leads from the query to the subquery whose rows these are."""

    soql: str
    include_deleted: bool
    now_ms: int
    ids: RowIds
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerPage:
    """One page of a result with `total` rows; `locator` names the next page and is empty on the last one.

    Child rows that did not fit have their own locator.
    """

    rows: Rows
    total: int
    locator: str = ""
    soql: str = ""


class QueryPages:
    """Opens queries and reads their pages. A locator works in every front end, for its own session."""

    def __init__(self, gate: Gate, cursors: QueryCursors[CursorState], clock: Clock) -> None:
        self._gate = gate
        self._cursors = cursors
        self._clock = clock

    async def note_read(self, reader: ApiReader, page: AnswerPage, operation: str, begun_s: float) -> None:
        """Append the monitoring event of a page that is about to be answered, if the org wants those events."""
        monitor = self._gate.monitor
        if not monitor.is_enabled(API):
            return
        rows = page.rows
        elapsed_ms = round((self._clock.monotonic_s() - begun_s) * 1000)
        read = QueryRead(operation, page.soql, rows.entity.name, rows.rows, page.total, elapsed_ms)
        await monitor.publish_query(reader, read)

    async def open(
        self, principal: Principal, soql: str, size: int, *, version: int, include_deleted: bool = False
    ) -> AnswerPage:
        """Read the first page of a query: about `size` records, counting child records.

        Counts and groups are not paged. Raises what binding a query raises.
        """
        now_ms = self._clock.now_ms()
        bound = await self._gate.bind(principal, soql, now_ms)
        _check_version(soql, version)

        def work(reader: Reader) -> QueryPage | Rows:
            if bound.is_count or bound.aggregate is not None:
                found = run_query(reader, bound, now_ms, include_deleted=include_deleted)
                return rows_of(bound, found.rows, found.count, 0)
            runner = QueryRunner(reader, include_deleted, now_ms)
            return read_first_page(runner, bound, size)

        answer, position = await self._gate.read_snapshot(work)
        if isinstance(answer, Rows):
            total = len(answer.rows) if answer.count is None else answer.count
            return AnswerPage(replace(answer, position=position), total, soql=soql)
        self._gate.recent_items.add_query_results(principal, soql, bound.entity.name, answer.rows)
        state = CursorState(soql, include_deleted, now_ms, answer.ids or RowIds(b""))
        return self._page(principal, bound, answer, state, position, "")

    async def bind(self, principal: Principal, soql: str, *, version: int) -> BoundQuery:
        """Bind a query without running it. Raises what binding a query raises."""
        bound = await self._gate.bind(principal, soql, self._clock.now_ms())
        _check_version(soql, version)
        return bound

    async def explain(
        self, principal: Principal, soql: str, *, version: int, include_deleted: bool = False
    ) -> list[Plan]:
        """Return the plans for a query, cheapest first. Raises what binding a query raises."""
        bound = await self.bind(principal, soql, version=version)
        plans, _ = await self._gate.read_snapshot(
            lambda reader: explain_query(reader, bound, include_deleted=include_deleted)
        )
        return plans

    async def read_next(self, principal: Principal, locator: str, size: int) -> AnswerPage:
        """Read the page that a locator names. Raises LocatorInvalid, or what binding a query raises."""
        found = self._cursors.try_find(principal.session_id, locator)
        if found is None:
            raise LocatorInvalid("invalid query locator")
        cursor_id, state, first = found
        bound = child_query(await self._gate.bind(principal, state.soql, state.now_ms), state.path)

        def work(reader: Reader) -> QueryPage:
            runner = QueryRunner(reader, state.include_deleted, state.now_ms)
            return read_page(runner, bound, state.ids, first, size)

        page, position = await self._gate.read_snapshot(work)
        return self._page(principal, bound, page, state, position, cursor_id)

    def _page(
        self,
        principal: Principal,
        bound: BoundQuery,
        page: QueryPage,
        state: CursorState,
        position: int,
        cursor_id: str,
    ) -> AnswerPage:
        if not page.is_last and not cursor_id:
            cursor_id = self._cursors.open(principal.session_id, state, len(state.ids))
        self._keep_children(principal, page.rows, state, cursor_id)
        locator = "" if page.is_last else f"{cursor_id}-{page.end}"
        rows = rows_of(bound, page.rows, None, position)
        return AnswerPage(rows, page.total, locator, state.soql)

    def _keep_children(
        self, principal: Principal, rows: list[Record], state: CursorState, cursor_id: str
    ) -> str:
        """Open cursors for incomplete child rows; returns a cursor of the query, or an empty text."""
        for row in rows:
            for name, cell in row.items():
                if not isinstance(cell, Children):
                    continue
                inner = replace(state, path=(*state.path, name), ids=cell.ids or RowIds(b""))
                cursor_id = self._keep_children(principal, cell.rows, inner, cursor_id)
                if cell.ids is not None:
                    opened = self._cursors.open(principal.session_id, inner, len(cell.ids), beside=cursor_id)
                    cursor_id = cursor_id or opened
                    row[name] = replace(cell, ids=None, locator=f"{opened}-{len(cell.rows)}")
        return cursor_id


def _check_version(soql: str, version: int) -> None:
    # Binding has checked the rules of the newest version.
    if version < NESTED_CHILDREN_VERSION:
        check_child_levels(parse_query(soql), version)
