"""Audit: compare a replica with the server by counts and content hashes, at a fence.

Some changes cause no events, and pipelines have bugs. An audit reads an object in pages, waits until apply
has passed the fence of each, and folds the same ids of the lake at that position. Records are counted and
hashed into buckets on both sides; where a bucket differs, its records are compared one by one. Only records
that differ are committed, as they were read.

Records with events between the fence and `settled` (on servers that do not report one position) are skipped:
it is unknown which of the two states was read.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.errors import StoreClosed
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.columns import DELETED, OWN_COLUMNS, RECORD_ID, bucket_of, replica_schema
from tidewire.pipeline.lake.control import OPEN, Dirty
from tidewire.pipeline.lake.dirty import append_dirty
from tidewire.pipeline.lake.files import read_file
from tidewire.pipeline.lake.tables import READS
from tidewire.pipeline.replicas.fold import fold_records
from tidewire.pipeline.replicas.view import (
    ReplicaView,
    is_object_wide,
    read_changes,
    try_open_view,
    without_base,
)
from tidewire.pipeline.upkeep.fenced_reads import (
    FencedPage,
    FencedReader,
    Records,
    commit_reads,
    render_reads,
)
from tidewire.pipeline.upkeep.resync import ROWS_PER_PAGE
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from tidewire.clock import Clock
    from tidewire.pipeline.lake.tables import Lake
    from tidewire.pipeline.source.records_reader import EntityDescription

_log = logging.getLogger(__name__)

BUCKETS = 64
PAGES_AT_ONCE = 10
WAIT_S = 60.0
POLL_S = 0.2
_OWN = frozenset(name for name, _ in OWN_COLUMNS)


@dataclass(frozen=True, slots=True)
class Tally:
    """The records of one bucket: their number, and a hash over all of them that ignores order."""

    count: int = 0
    content: int = 0

    def plus(self, digest: int) -> Tally:
        """Return the tally with one more record."""
        return Tally(self.count + 1, (self.content + digest) % 2**64)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    `buckets` are those that differ, as (server, lake); `missing` are records that the lake lacks, `extra`
    those that only it has, `different` those with other values. `unsettled` records were not compared.
    `healed` records now match the server; the others will be read again.
    """

    entity: str
    position: int
    server_rows: int = 0
    lake_rows: int = 0
    buckets: Mapping[int, tuple[Tally, Tally]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    unsettled: int = 0
    healed: int = 0

    @property
    def drifted(self) -> int:
        """Return how many records differ."""
        return len(self.missing) + len(self.extra) + len(self.different)


def audit(
    lake: Lake,
    epoch: int,
    reader: Records,
    entity: str,
    clock: Clock,
    *,
    heal: bool = True,
    wait_s: float = WAIT_S,
) -> AuditReport:
    """Compare one object with the server, and correct it with `heal`, for which the lease must be held.

    Blocks, and waits up to `wait_s` for apply to reach each page. Raises ObjectUnknown, StoreClosed if apply
    does not reach it, WriteConflict.
    """
    fenced = FencedReader(lake, reader)
    report = AuditReport(entity, manifest.NO_POSITION)
    return _Audit(lake, epoch, fenced, clock, entity, heal, wait_s, fenced.describe(entity), report).run()


@dataclass(slots=True)
class _Audit:
    _lake: Lake
    _epoch: int
    _reader: FencedReader
    _clock: Clock
    _entity: str
    _heal: bool
    _wait_s: float
    _description: EntityDescription
    _report: AuditReport
    _server: dict[int, Tally] = field(default_factory=dict)
    _ours: dict[int, Tally] = field(default_factory=dict)

    def run(self) -> AuditReport:
        lo, is_whole = "", False
        while not is_whole:
            before = try_open_view(self._lake, self._entity)
            pages: list[tuple[str, FencedPage]] = []
            while len(pages) < PAGES_AT_ONCE and not is_whole:
                page = self._reader.read_range(self._entity, lo, "", ROWS_PER_PAGE)
                pages.append((lo, page))
                lo, is_whole = page.through, not page.through
            self._compare(before, pages)
        numbers = sorted({*self._server, *self._ours})
        sides = {n: (self._server.get(n, Tally()), self._ours.get(n, Tally())) for n in numbers}
        report = replace(
            self._report,
            server_rows=sum(server.count for server, _ in sides.values()),
            lake_rows=sum(ours.count for _, ours in sides.values()),
            buckets={n: both for n, both in sides.items() if both[0] != both[1]},
        )
        counters["pipeline.records_drifted"] += report.drifted
        _log.info("pipeline.object_audited", extra={"entity": self._entity, "drifted": report.drifted})
        return report

    def _compare(self, before: ReplicaView | None, pages: Sequence[tuple[str, FencedPage]]) -> None:
        view = self._wait_for(max(page.settled for _, page in pages))
        lo, hi = pages[0][0], pages[-1][1].through
        base, changes = replica_schema({}).empty_table(), READS.empty_table()
        kinds, retyped = self._description.kinds, None
        if view is not None:
            # With the base from before the pages were read: maintenance may have passed their fences since.
            view = replace(
                before or without_base(view), position=view.position, kinds=view.kinds, retyped=view.retyped
            )
            base, changes = _base_within(view, lo, hi), read_changes(view)
            kinds, retyped = view.kinds, view.retyped
        changes = _changes_within(changes, lo, hi)
        for page_lo, page in pages:
            own = _within(base, page_lo, page.through)
            within = _changes_within(changes, page_lo, page.through)
            rows = fold_records(own, within, kinds, page.fence, retyped).rows
            moving = pc.and_(
                pc.greater(changes["replay_id"], page.fence),
                pc.less_equal(changes["replay_id"], page.settled),
            )
            unsettled = set(changes.filter(moving)["record_id"].to_pylist())
            self._compare_page(page, rows.filter(pc.invert(rows[DELETED])), unsettled)

    def _wait_for(self, position: int) -> ReplicaView | None:
        """Return the lake's view once apply has passed a position; None for an object without data."""
        deadline_s = self._clock.monotonic_s() + self._wait_s
        while True:
            row = manifest.newest(self._lake)
            if row is not None and row.position >= position:
                return try_open_view(self._lake, self._entity)
            if self._clock.monotonic_s() >= deadline_s:
                applied = row.position if row is not None else "nothing"
                raise StoreClosed(
                    f"the records were read at position {position}, and apply has only reached "
                    f"{applied}: let the pipeline run, then audit again"
                )
            threading.Event().wait(POLL_S)

    def _compare_page(self, page: FencedPage, rows: pa.Table, unsettled: set[str]) -> None:
        names = [name for name in page.columns if name in self._description.kinds and name not in _OWN]
        described = self._description
        reads = render_reads([page], described.schema_id, 0)
        read = fold_records(None, reads, described.kinds, page.settled).rows
        theirs, ours = _digest(read, names, unsettled), _digest(rows, names, unsettled)
        for side, digests in ((self._server, theirs), (self._ours, ours)):
            for record_id, digest in digests.items():
                number = bucket_of(record_id, BUCKETS)
                side[number] = side.get(number, Tally()).plus(digest)
        missing = tuple(each for each in theirs if each not in ours)
        extra = tuple(each for each in ours if each not in theirs)
        different = tuple(each for each in theirs if ours.get(each, theirs[each]) != theirs[each])
        drifted = {*missing, *extra, *different}
        report = self._report
        self._report = replace(
            report,
            position=page.fence,
            missing=(*report.missing, *missing),
            extra=(*report.extra, *extra),
            different=(*report.different, *different),
            unsettled=report.unsettled + len(unsettled.intersection(page.ids())),
            healed=report.healed + (self._write(page, drifted) if self._heal and drifted else 0),
        )

    def _write(self, page: FencedPage, drifted: set[str]) -> int:
        """Commit the records of a page that differ and return how many match now."""
        rows = [row for row in page.rows if row[RECORD_ID] in drifted]
        gone = sorted(drifted - {str(row[RECORD_ID]) for row in rows})
        part = replace(page, rows=rows, missing=gone)
        now_ms = self._clock.now_ms()
        if commit_reads(self._lake, self._epoch, now_ms, self._description, [part]):
            counters["pipeline.records_healed"] += len(drifted)
            return len(drifted)
        dirty = [Dirty(self._entity, record_id, page.settled, "audit") for record_id in sorted(drifted)]
        append_dirty(self._lake, self._epoch, now_ms, dirty, OPEN)
        return 0


def _base_within(view: ReplicaView, lo: str, hi: str) -> pa.Table:
    """Return rows of the base with lo < id <= hi, read file by file: the base may be large."""
    schema = replica_schema(view.base_kinds)
    parts = [_within(read_file(path, schema), lo, hi) for path in view.base_files()]
    return pa.concat_tables([schema.empty_table(), *parts])


def _within(rows: pa.Table, lo: str, hi: str, column: str = RECORD_ID) -> pa.Table:
    """Return the rows of records with lo < id <= hi."""
    is_in = pc.greater(rows[column], lo)
    return rows.filter(pc.and_(is_in, pc.less_equal(rows[column], hi)) if hi else is_in)


def _changes_within(changes: pa.Table, lo: str, hi: str) -> pa.Table:
    """Return the changes of records with lo < id <= hi, and those about all records."""
    is_wildcard_id = is_object_wide(changes)
    own = _within(changes.filter(pc.invert(is_wildcard_id)), lo, hi, "record_id")
    return pa.concat_tables([own, changes.filter(is_wildcard_id)])


def _digest(rows: pa.Table, names: Sequence[str], left_out: set[str]) -> dict[str, int]:
    """Return a hash of the non-null values of these columns, by record."""
    present = [name for name in sorted(names) if name in rows.schema.names]
    columns = [rows[name].to_pylist() for name in present]
    digests: dict[str, int] = {}
    for i, record_id in enumerate(rows[RECORD_ID].to_pylist()):
        if record_id in left_out:
            continue
        values = {
            name: column[i] for name, column in zip(present, columns, strict=True) if column[i] is not None
        }
        text = f"{record_id}{values!r}".encode("utf-8", "surrogatepass")
        digests[record_id] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
    return digests
