"""Resync: read one object again as a whole, in chunks by id, while events keep being applied.

`control/resync` requests it after an overflow, a type change that loses values, an expired replay id, or
manually. Each chunk is committed at its own fence, so its rows are ordered among the events, and events are
applied to ids that were read and to those that were not. When all ids are covered and apply has passed the
fences, records that are live in the replica but were in no chunk are requested by id: they are deleted, or
were created meanwhile. Only then is the object done.

The only state is the control table: a killed resync continues at the first ids that no chunk covers. An
overflow meanwhile causes a new request, and chunks from before it are read again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.errors import PlatformError, WriteConflict
from tidewire.faults import crash_point
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.columns import DELETED, RECORD_ID, REPLAY_ID
from tidewire.pipeline.lake.control import (
    ASKED,
    DONE,
    FAILED,
    PENDING,
    RESYNC_TABLE,
    Resync,
    open_resyncs,
    read_control,
    render_control,
)
from tidewire.pipeline.lake.files import iter_rows, read_file
from tidewire.pipeline.lake.tables import READS, RESYNC, Lake, append_counted, try_open_table
from tidewire.pipeline.replicas.fold import DELETES
from tidewire.pipeline.replicas.view import ReplicaView, is_object_wide, try_open_view
from tidewire.pipeline.upkeep.backoff import MAX_ATTEMPTS, Backoff, is_lasting
from tidewire.pipeline.upkeep.chunks import Chunk, Gap, find_gap, find_unreturned
from tidewire.pipeline.upkeep.fenced_reads import FencedPage, FencedReader, Records, commit_reads
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from tidewire.clock import Clock
    from tidewire.pipeline.source.records_reader import EntityDescription

_log = logging.getLogger(__name__)

ROWS_PER_PAGE = 2_000
PAGES_AT_ONCE = 5
SUSPECTS_AT_ONCE = 10_000
READING, WAITING = "reading", "waiting"
WRITER = "resync"
_IN_BASE, _READ = 1 << 61, 1 << 62
"""The order of base and reads among the known states of a record at one position: after all events."""
_LAST_SEEN = pa.schema(
    [("record_id", pa.string()), ("place", pa.int64()), ("order", pa.int64()), ("gone", pa.bool_())]
)


@dataclass(frozen=True, slots=True)
class ResyncProgress:
    """The progress of one object's resync.

    `reading`, `waiting` for apply to pass what was read (or for the next attempt), `done` or `failed`.
    `expected` is the number of records at its start, if known.
    """

    entity: str
    cause: str
    since: int
    state: str
    chunks: int
    rows: int
    expected: int | None = None


def read_chunks(lake: Lake, resync: Resync) -> list[Chunk]:
    """Return the chunks that count for a request."""
    table = try_open_table(lake, RESYNC_TABLE)
    if table is None:
        return []
    after_ms = resync.asked_ms if resync.cause in ASKED else 0
    rows = read_control(table)
    wanted = pc.and_(pc.equal(rows["entity"], resync.entity), pc.is_valid(rows["chunk_lo"]))
    return [
        Chunk(row["chunk_lo"], row["chunk_hi"], row["fence"], row["rows"])
        for row in rows.filter(wanted).to_pylist()
        if row["fence"] >= resync.since and row["at_ms"] >= after_ms
    ]


def request_resyncs(lake: Lake, epoch: int, now_ms: int, requests: Iterable[Resync]) -> None:
    """Request that objects are read again. Raises WriteConflict."""
    _append(lake, epoch, now_ms, [replace(each, asked_ms=now_ms) for each in requests])


def _append(lake: Lake, epoch: int, now_ms: int, requests: Sequence[Resync], state: str = PENDING) -> None:
    if not requests:
        return
    with manifest.lock:
        # Later than all earlier completions, or the request would seem done.
        at_ms = max(now_ms, _newest_ms(lake, {each.entity for each in requests}) + 1)
        versions = append_counted(lake, RESYNC_TABLE, render_control(requests, at_ms, state), epoch, WRITER)
        crash_point("pipeline.resync.after_asking")
        manifest.append(lake, epoch, now_ms, cause=WRITER, versions=versions)


def _newest_ms(lake: Lake, entities: Collection[str]) -> int:
    """Return the latest time in the control table for some objects.

    The clock may have been set back since; new rows get no earlier time, so that times show the order.
    """
    table = try_open_table(lake, RESYNC_TABLE)
    rows = read_control(table) if table is not None else RESYNC.empty_table()
    mine = rows.filter(pc.is_in(rows["entity"], pa.array(sorted(entities), pa.string())))
    newest: int | None = pc.max(mine["at_ms"]).as_py()
    return -1 if newest is None else newest


class Resyncer:
    """Works on open resyncs, a few pages at a time.

    One per lake and process, for one thread; the lease must be held.
    """

    def __init__(
        self, lake: Lake, epoch: int, reader: Records, clock: Clock, rows_per_page: int = ROWS_PER_PAGE
    ) -> None:
        self._lake = lake
        self._epoch = epoch
        self._reader = FencedReader(lake, reader)
        self._clock = clock
        self._rows_per_page = rows_per_page
        self._backoff = Backoff(clock)
        self._expected: dict[str, int] = {}

    def advance(self, pages: int = PAGES_AT_ONCE) -> list[ResyncProgress]:
        """Advance one object by a step; return the progress of all open ones, and of one that has just ended.

        Call again at once if one of them is `reading`. Raises WriteConflict.
        """
        found: list[ResyncProgress] = []
        has_worked = False
        for resync in sorted(open_resyncs(self._lake).values(), key=lambda resync: resync.since):
            chunks = read_chunks(self._lake, resync)
            state = READING if self._can_work(resync, chunks) else WAITING
            if state == READING and not has_worked:
                state = self._work(resync, chunks, pages)
                has_worked = state != WAITING
                chunks = read_chunks(self._lake, resync)
            found.append(self._progress(resync, state, chunks))
        return found

    def _can_work(self, resync: Resync, chunks: Sequence[Chunk]) -> bool:
        if not self._backoff.is_due(resync.entity):
            return False
        return find_gap(chunks) is not None or self._is_passed(chunks)

    def _is_passed(self, chunks: Sequence[Chunk]) -> bool:
        """Return whether apply has passed the fences."""
        row = manifest.newest(self._lake)
        return row is not None and row.position >= max(chunk.fence for chunk in chunks)

    def _work(self, resync: Resync, chunks: Sequence[Chunk], pages: int) -> str:
        entity = resync.entity
        try:
            description = self._reader.describe(entity)
            gap = find_gap(chunks)
            if gap is None:
                return self._finish(resync, chunks, description)
            if entity not in self._expected:
                self._expected[entity] = self._reader.count(entity)
            read = list(self._read(entity, gap, pages))
        except WriteConflict:
            raise
        except PlatformError as error:
            return self._fail(resync, error)
        rows = [self._render_chunk(resync, chunk) for chunk, _ in read]
        pages_read = [page for _, page in read]
        return self._commit(description, pages_read, rows)

    def _read(self, entity: str, gap: Gap, pages: int) -> Iterator[tuple[Chunk, FencedPage]]:
        lo = gap.lo
        for _ in range(pages):
            page = self._reader.read_range(entity, lo, gap.hi, self._rows_per_page)
            yield Chunk(lo, page.through, page.fence, len(page.rows)), page
            if page.through == gap.hi:
                return
            lo = page.through

    def _finish(self, resync: Resync, chunks: Sequence[Chunk], description: EntityDescription) -> str:
        """Read the records that the chunks did not return, and close the request."""
        suspects = find_unreturned(chunks, _living_records(self._lake, resync.entity))
        pages = list(self._reader.read_ids(resync.entity, suspects[:SUSPECTS_AT_ONCE]))
        if len(suspects) > SUSPECTS_AT_ONCE:
            return self._commit(description, pages, [])
        # Requests up to the oldest fence are answered.
        since = min(chunk.fence for chunk in chunks)
        at_ms = max(self._clock.now_ms(), _newest_ms(self._lake, {resync.entity}))
        rows = sum(chunk.rows for chunk in chunks)
        [done] = render_control([replace(resync, since=since)], at_ms, DONE)
        crash_point("pipeline.resync.before_done")
        if self._commit(description, pages, [done | {"rows": rows, "fence": since}]) == WAITING:
            return WAITING
        self._expected.pop(resync.entity, None)
        counters["pipeline.objects_resynced"] += 1
        _log.info(
            "pipeline.object_resynced",
            extra={"entity": resync.entity, "cause": resync.cause, "rows": rows},
        )
        return DONE

    def _commit(
        self, description: EntityDescription, pages: Sequence[FencedPage], rows: Sequence[dict[str, object]]
    ) -> str:
        """Commit what was read; `waiting` if the base has passed it and it must be read again."""
        if commit_reads(self._lake, self._epoch, self._clock.now_ms(), description, pages, rows):
            self._backoff.succeeded(description.entity)
            return READING
        self._backoff.failed(description.entity)
        _log.warning("pipeline.reads_outrun", extra={"entity": description.entity})
        return WAITING

    def _render_chunk(self, resync: Resync, chunk: Chunk) -> dict[str, object]:
        [row] = render_control([resync], max(self._clock.now_ms(), resync.asked_ms), DONE)
        bounds = {"chunk_lo": chunk.lo, "chunk_hi": chunk.hi}
        return row | bounds | {"rows": chunk.rows, "fence": chunk.fence}

    def _fail(self, resync: Resync, error: PlatformError) -> str:
        attempts = self._backoff.failed(resync.entity)
        _log.warning(
            "pipeline.resync_failed",
            extra={
                "entity": resync.entity,
                "attempts": attempts,
                "code": error.code,
                "reason": error.message,
            },
        )
        if not is_lasting(error) or attempts < MAX_ATTEMPTS:
            return WAITING
        _append(self._lake, self._epoch, self._clock.now_ms(), [resync], FAILED)
        self._backoff.succeeded(resync.entity)
        counters["pipeline.resyncs_given_up"] += 1
        return FAILED

    def _progress(self, resync: Resync, state: str, chunks: Sequence[Chunk]) -> ResyncProgress:
        rows = sum(chunk.rows for chunk in chunks)
        expected = self._expected.get(resync.entity)
        return ResyncProgress(resync.entity, resync.cause, resync.since, state, len(chunks), rows, expected)


def _living_records(lake: Lake, entity: str) -> Iterator[tuple[str, int]]:
    """Return the records that are live in the lake, with the newest known position of each."""
    view = try_open_view(lake, entity)
    if view is None:
        return
    rows = pa.concat_tables([_LAST_SEEN.empty_table(), *_iter_seen(view)])
    rows = rows.sort_by([("record_id", "ascending"), ("place", "ascending"), ("order", "ascending")])
    if not rows.num_rows:
        return
    ids = rows["record_id"].combine_chunks()
    is_last = pc.not_equal(ids.slice(0, len(ids) - 1), ids.slice(1)).to_pylist()
    newest = rows.filter([*is_last, True])
    living = newest.filter(pc.invert(newest["gone"]))
    # An event at the fence of a read does not prove that the read returned its record.
    is_event = pc.less(living["order"], _IN_BASE).cast(pa.int64())
    positions = pc.subtract(living["place"], is_event)
    yield from zip(living["record_id"].to_pylist(), positions.to_pylist(), strict=True)


def _iter_seen(view: ReplicaView) -> Iterator[pa.Table]:
    """Yield what base, history and reads know of records, in the columns of _LAST_SEEN."""
    if view.base is not None:
        for rows in iter_rows(view.base, [RECORD_ID, REPLAY_ID, DELETED]):
            columns: Mapping[str, pa.ChunkedArray] = {
                "record_id": rows[RECORD_ID],
                "place": rows[REPLAY_ID],
                "order": pa.array([_IN_BASE] * rows.num_rows, pa.int64()),
                "gone": rows[DELETED],
            }
            yield pa.table(columns, schema=_LAST_SEEN)
    wanted = pa.schema(
        [READS.field(name) for name in ("record_id", "replay_id", "sequence", "change_type", "fence")]
    )
    # Reads beyond the applied position count too, or they would be repeated.
    view = replace(view, position=1 << 62)
    for path in (*view.history_files(), *view.reads_files()):
        rows = read_file(path, wanted)
        rows = rows.filter(pc.invert(is_object_wide(rows)))
        order = pc.fill_null(rows["sequence"], 0)
        order = pc.if_else(pc.is_valid(rows["fence"]), pa.scalar(_READ, pa.int64()), order)
        columns = {
            "record_id": rows["record_id"],
            "place": rows["replay_id"],
            "order": order,
            "gone": pc.is_in(rows["change_type"], pa.array(sorted(DELETES))),
        }
        yield pa.table(columns, schema=_LAST_SEEN)
