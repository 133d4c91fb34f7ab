"""Fenced reads: records as the server had them at a known position, committed beside history.

A page that was read is true at its fence: it includes every event up to there. Folding orders it among the
changes of its records by that position, so no event must be held back or applied again. A server that does
not report a position is read between two known ones: the position of bronze before the read is the fence, its
position a while after is `settled`.

Rows are committed in this order: the schema of their columns, the rows, the control rows that they close, the
manifest. A crash in between only costs reading again. Rows are rejected if the object's base has passed the
fence, since the base already holds the record at a later position.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.faults import crash_point
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.columns import RECORD_ID, Native
from tidewire.pipeline.lake.control import DIRTY_TABLE, DONE, RESYNC_TABLE, Dirty, open_dirty, render_control
from tidewire.pipeline.lake.dirty import failed_records
from tidewire.pipeline.lake.files import read_rows, write_sorted
from tidewire.pipeline.lake.schemas import append_schemas, load_schemas
from tidewire.pipeline.lake.spans import START
from tidewire.pipeline.lake.tables import (
    READS,
    Lake,
    OpenTable,
    append_counted,
    append_files,
    open_table,
    try_committed,
    try_open_table,
)
from tidewire.pipeline.replicas.fold import MISSING, READ
from tidewire.pipeline.source.records_reader import IDS_AT_ONCE, EntityDescription, RecordsPage
from tidewire.telemetry import counters

WRITER = "reads"
SETTLE_S = 2.0
"""How long after a read its events may still arrive, on servers that report no position."""
_CHANGED_AT = "LastModifiedDate"


@dataclass(frozen=True, slots=True)
class FencedPage:
    """Records that were read together and their position in the log.

    Every event up to `fence` is included and none after `settled`. For a range, `through` is the id up to
    which it is covered.
    """

    rows: Sequence[dict[str, Native]]
    missing: Sequence[str]
    fence: int
    settled: int
    through: str = ""
    columns: tuple[str, ...] = ()

    def ids(self) -> list[str]:
        """Return the ids of all records in the page, missing ones included."""
        return [*(str(row[RECORD_ID]) for row in self.rows), *self.missing]


class Records(Protocol):
    """The source of records; RecordsReader implements it."""

    def describe(self, entity: str, *, renew: bool = False) -> EntityDescription: ...

    def read_ids(self, entity: str, ids: Iterable[str]) -> RecordsPage: ...

    def read_range(self, entity: str, lo: str, hi: str, limit: int) -> RecordsPage: ...

    def count(self, entity: str, lo: str = "", hi: str = "") -> int: ...

    def entities(self) -> list[str]: ...


class FencedReader:
    """Reads pages with a fence from any server. For one thread."""

    def __init__(self, lake: Lake, reader: Records, settle_s: float = SETTLE_S) -> None:
        self._lake = lake
        self._reader = reader
        self._settle_s = settle_s

    def describe(self, entity: str) -> EntityDescription:
        """Return the current description of an object."""
        return self._reader.describe(entity, renew=True)

    def count(self, entity: str) -> int:
        """Return the number of records."""
        return self._reader.count(entity)

    def read_ids(self, entity: str, ids: Sequence[str]) -> Iterator[FencedPage]:
        """Yield these records in pages, each read at one position."""
        for i in range(0, len(ids), IDS_AT_ONCE):
            before = self._archived()
            yield self._place(self._reader.read_ids(entity, ids[i : i + IDS_AT_ONCE]), before)

    def read_range(self, entity: str, lo: str, hi: str, limit: int) -> FencedPage:
        """Read the first records with lo < Id <= hi, at most `limit`."""
        before = self._archived()
        return self._place(self._reader.read_range(entity, lo, hi, limit), before)

    def _place(self, page: RecordsPage, before: int) -> FencedPage:
        fence, settled = page.fence, page.settled
        if fence is None or settled is None:
            threading.Event().wait(self._settle_s)
            fence, settled = before, max(before, self._archived())
        return FencedPage(page.rows, page.missing, fence, settled, page.through, page.columns)

    def _archived(self) -> int:
        return try_committed(self._lake, "bronze") or START


def has_unapplied_reads(lake: Lake) -> bool:
    """Return whether some reads are invisible because apply has not passed them."""
    row = manifest.newest(lake)
    applied = START if row is None else row.position
    tables = [try_open_table(lake, name) for name in lake.names("reads")]
    settled = [pc.max(read_rows(each, ["settled"])["settled"]).as_py() for each in tables if each is not None]
    return any(each is not None and each > applied for each in settled)


def commit_reads(
    lake: Lake,
    epoch: int,
    now_ms: int,
    description: EntityDescription,
    pages: Sequence[FencedPage],
    resync_rows: Sequence[dict[str, object]] = (),
) -> bool:
    """Commit pages of one object, and the rows of `control/resync` that they close. Raises WriteConflict.

    Returns False, and writes nothing, if the object's base has passed one of the fences.
    """
    entity = description.entity
    with manifest.lock:
        row = manifest.newest(lake)
        state = row.entities.get(entity) if row is not None else None
        base_position = state.base_position if state is not None else manifest.NO_POSITION
        if any(page.fence < base_position for page in pages):
            return False
        position = row.position if row is not None else manifest.NO_POSITION
        is_ahead = any(page.fence > position for page in pages)
        if pages or state is None:
            _keep_schema(lake, epoch, now_ms, description, state, is_ahead)
        versions: dict[str, int] = {}
        rows = render_reads(pages, description.schema_id, now_ms)
        if rows.num_rows:
            table = open_table(lake, f"reads/{entity}")
            _append_file(table, rows, epoch, now_ms)
            versions[table.name] = table.delta.version()
        crash_point("pipeline.reads.after_rows")
        settled = _settled_records(lake, entity, pages)
        versions |= append_counted(lake, DIRTY_TABLE, render_control(settled, now_ms, DONE), epoch, WRITER)
        crash_point("pipeline.reads.after_dirty")
        versions |= append_counted(lake, RESYNC_TABLE, resync_rows, epoch, WRITER)
        crash_point("pipeline.reads.before_manifest")
        manifest.append(lake, epoch, now_ms, cause=WRITER, versions=versions)
    counters["pipeline.records_read"] += rows.num_rows
    return True


def render_reads(pages: Iterable[FencedPage], schema_id: str, now_ms: int) -> pa.Table:
    """Return pages as rows of `reads/<Entity>`."""
    rows: list[dict[str, object]] = []
    for page in pages:
        common = {
            "replay_id": page.fence,
            "sequence": now_ms,  # of two reads at one position the later one counts
            "schema_id": schema_id,
            "changed": [],
            "fence": page.fence,
            "settled": page.settled,
        }
        for values in page.rows:
            present = {name: value for name, value in values.items() if value is not None}
            del present[RECORD_ID]
            rows.append(
                {
                    **common,
                    "record_id": values[RECORD_ID],
                    "change_type": READ,
                    "commit_ms": present.get(_CHANGED_AT, now_ms),
                    "values_json": orjson.dumps(present).decode(),
                }
            )
        rows += [
            {**common, "record_id": record_id, "change_type": MISSING, "commit_ms": now_ms}
            for record_id in page.missing
        ]
    return pa.Table.from_pylist(rows, schema=READS)


def _keep_schema(
    lake: Lake,
    epoch: int,
    now_ms: int,
    description: EntityDescription,
    state: manifest.EntityState | None,
    is_ahead: bool,
) -> None:
    """Add a read's schema to the manifest before its rows, so that they have their columns.

    If apply has not reached the read, the schema may be newer than any that apply has used, and its types
    must not take effect yet: it is listed as `ahead` until an event or a later read uses it.
    """
    texts = load_schemas(lake)
    if description.schema_id not in texts:
        append_schemas(lake, {description.schema_id: (description.schema_json, 0)}, epoch)
        texts[description.schema_id] = description.schema_json
    schema_id, entity = description.schema_id, description.entity
    if state is not None:
        kinds = manifest.kinds_from(state.schemas, texts)
        is_known = all(kinds.get(name) is kind for name, kind in description.kinds.items())
        if is_known or (is_ahead and schema_id in (*state.schemas, *state.ahead)):
            return
    if is_ahead and state is not None and state.schemas:
        manifest.append(lake, epoch, now_ms, cause=WRITER, ahead={entity: schema_id})
    else:
        manifest.append(lake, epoch, now_ms, cause=WRITER, schemas={entity: [schema_id]})
    crash_point("pipeline.reads.after_schema")


def _append_file(table: OpenTable, rows: pa.Table, epoch: int, now_ms: int) -> None:
    """Append rows as a file with our own statistics: values of records must not appear in the Delta log."""
    rows = rows.sort_by([("replay_id", "ascending"), ("record_id", "ascending")])
    action = write_sorted(table.directory, rows).add_action(now_ms)
    append_files(table, [action], None, epoch, WRITER)


def _settled_records(lake: Lake, entity: str, pages: Sequence[FencedPage]) -> list[Dirty]:
    """Return the dirty and the unreadable records that are in the pages.

    A record that becomes dirty later by an older event is read once more.
    """
    asked = {*open_dirty(lake).get(entity, ()), *failed_records(lake).get(entity, ())}
    return [
        Dirty(entity, record_id, page.fence, "")
        for page in pages
        for record_id in page.ids()
        if record_id in asked
    ]
