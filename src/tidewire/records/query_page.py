"""Reads one page of a query's answer, with as many rows as fit.

The records inside others count like those around them. A row that does not fit whole with what is left of the
page waits for the next one; only if a single row is larger than a page are its children cut, and they have
pages of their own. So a page never holds much more than was asked for, however many children there are, and
at most one row of each level has cut children.

Later pages are read anew by the ids that the first one found. They show the records as they are by then: what
no longer fits the query, or is no longer to be seen, is left out and makes its page shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidewire.records.query import Children, QueryRunner, Record, RowIds, count_rows
from tidewire.schema.model import ObjectType
from tidewire.soql.bound import BoundQuery, Selected, SelectedChildren
from tidewire.soql.compile_sql import Among


@dataclass(frozen=True, slots=True)
class QueryPage:
    """The rows of a page, the place in the answer where the next one begins, and how many there are in all.

    `ids` are those of the whole answer; None if this page is all of it.
    """

    rows: list[Record]
    end: int
    total: int
    ids: RowIds | None

    @property
    def is_last(self) -> bool:
        """Return whether nothing is left after this page."""
        return self.end >= self.total


def read_first_page(runner: QueryRunner, bound: BoundQuery, size: int) -> QueryPage:
    """Return the first page of a query over records."""
    limit = size + 1 if bound.limit is None else min(bound.limit, size + 1)
    rows = runner.read(replace(bound, limit=limit))
    is_whole = len(rows) <= size
    end = _take(runner, rows[:size], bound.select, bound.entity, size)
    if is_whole and end == len(rows):
        return QueryPage(rows, end, end, None)
    ids = RowIds("".join(str(row["Id"]) for row in rows).encode()) if is_whole else runner.read_ids(bound)
    return QueryPage(rows[:end], end, len(ids), ids)


def read_page(runner: QueryRunner, bound: BoundQuery, ids: RowIds, first: int, size: int) -> QueryPage:
    """Return the page that begins at place `first` of an answer with these ids."""
    wanted = ids.between(first, first + size)
    rows = runner.read_again(bound, wanted)
    taken = _take(runner, rows, bound.select, bound.entity, size)
    end = first + (len(wanted) if taken == len(rows) else wanted.index(str(rows[taken]["Id"])))
    return QueryPage(rows[:taken], end, len(ids), ids)


def child_query(bound: BoundQuery, path: Sequence[str]) -> BoundQuery:
    """Return the query of the children that these names lead to, from relationship to relationship."""
    for name in path:
        bound = next(item.query for item in _children(bound.select) if item.name.lower() == name.lower())
    return bound


def _children(select: tuple[Selected, ...]) -> list[SelectedChildren]:
    return [item for item in select if isinstance(item, SelectedChildren)]


def _take(
    runner: QueryRunner, rows: list[Record], select: tuple[Selected, ...], entity: ObjectType, room: int
) -> int:
    """Complete the first rows, as many as fit and at least one; returns how many."""
    count = _count_fitting(runner, [str(row["Id"]) for row in rows], select, room)
    if count == 0 and rows:
        _cut(runner, rows[0], select, entity, room - 1)
        return 1
    runner.complete(rows[:count], select, entity)
    return count


def _count_fitting(runner: QueryRunner, ids: Sequence[str], select: tuple[Selected, ...], room: int) -> int:
    """How many of the first records fit, with all that is inside them. Reads no more ids than would fit."""
    weights = [1] * min(len(ids), room)
    levels = [(select, {record_id: place for place, record_id in enumerate(ids[:room])})]
    fitting = len(weights)
    while levels and fitting:
        inside, places = levels.pop()
        for item in _children(inside):
            parents = [record_id for record_id, place in places.items() if place < fitting]
            for parent_id, count in runner.count_children(parents, item).items():
                weights[places[parent_id]] += count
            fitting = _count_within(weights[:fitting], room)
            if _children(item.query.select):
                parents = [record_id for record_id in parents if places[record_id] < fitting]
                pairs = runner.read_child_ids(parents, item)
                levels.append((item.query.select, {child: places[parent] for parent, child in pairs}))
    return fitting


def _count_within(weights: Sequence[int], room: int) -> int:
    used = 0
    for place, weight in enumerate(weights):
        used += weight
        if used > room:
            return place
    return len(weights)


def _cut(
    runner: QueryRunner, row: Record, select: tuple[Selected, ...], entity: ObjectType, room: int
) -> None:
    """Complete one row that is larger than the room there is; every relationship shows one child at least."""
    own = tuple(item for item in select if not isinstance(item, SelectedChildren))
    runner.complete([row], own, entity)
    for item in _children(select):
        query = item.query
        ids = runner.read_ids(query, Among(item.lookup, [str(row["Id"])]))
        if not len(ids):
            row[item.name] = None
            continue
        shown = max(1, room)
        children = runner.read_again(query, ids.between(0, shown))
        taken = _take(runner, children, query.select, query.entity, shown)
        rest = ids if taken < len(ids) else None
        row[item.name] = Children(query.entity, query.select, children[:taken], len(ids), rest)
        room -= count_rows(children[:taken])
