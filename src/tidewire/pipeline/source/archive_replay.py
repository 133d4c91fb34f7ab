"""Replay from an archive first and from the bus after it, as one stream of identical rows.

The archive is the table `bronze` of a lake. It holds every event of the channel from its first row up to the
position of its last commit, except in holes: events that the server had dropped before they were archived
(gap_recovery.py). Archived spans are read from files, even if the server dropped them long ago. Everything
else is read from the server, which rejects positions inside a hole. Payloads are the bytes that came from the
bus, so readers cannot tell the two apart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.errors import ConfigInvalid
from tidewire.pipeline.lake.files import list_actions, read_file, read_span, rows_in
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.lake.tables import Lake, OpenTable, try_open_table
from tidewire.pipeline.source.offsets import Offset
from tidewire.pipeline.source.plans import ArchivePartition, BusPlanner, ExportPlanner, Partition

HOLES = "tidewire.holes"
"""The property of bronze that lists its holes, as pairs of the positions before and at their ends."""
_POSITIONS = pa.schema([("replay_id", pa.int64())])
_TIMES = pa.schema([("replay_id", pa.int64()), ("commit_ms", pa.int64())])


@dataclass(frozen=True, slots=True)
class Archive:
    """The events that bronze holds as of one commit: all after `floor`, up to `through`, except in the holes."""

    bronze: OpenTable
    floor: int
    through: int
    holes: tuple[Span, ...] = ()

    def covers(self, after: int) -> bool:
        """Return whether the event after a position, or the oldest event, is archived."""
        return after == START or self.floor <= after < self.end_after(after)

    def end_after(self, after: int) -> int:
        """Return the position up to which every event after `after` is archived; `after` itself in a hole."""
        position = max(after, self.floor)
        if any(hole.after <= position < hole.through for hole in self.holes):
            return position
        return min([self.through, *(hole.after for hole in self.holes if hole.after > position)])


def try_open_archive(lake: Lake) -> Archive | None:
    """Open the archive of a lake; None while it has no rows."""
    bronze = try_open_table(lake, "bronze")
    if bronze is None or bronze.committed is None:
        return None
    firsts = list_actions(bronze, "min.replay_id")
    if not firsts:
        return None
    return Archive(bronze, min(firsts)[0] - 1, bronze.committed, read_holes(bronze))


def read_holes(bronze: OpenTable) -> tuple[Span, ...]:
    """Return the spans whose events are missing from bronze."""
    found = json.loads(bronze.delta.metadata().configuration.get(HOLES) or "[]")
    return tuple(Span(after, through) for after, through in found)


class HybridPlanner:
    """Plans each batch from the archive, or from the bus where the archive ends."""

    def __init__(self, lake: Lake, bus: BusPlanner | ExportPlanner) -> None:
        self._lake = lake
        self._bus = bus
        self._end: int | None = None

    def starting(self, at: int | str) -> int:
        archive = try_open_archive(self._lake)
        if isinstance(at, int):
            return at if archive is not None and archive.covers(at) else self._bus.starting(at)
        if archive is None or at == "latest":
            return self._bus.starting(at)
        found = archive.floor if at == "earliest" else _find_time(archive, int(at[1:]))
        if not isinstance(self._bus, ExportPlanner):
            return archive.through if found is None else found
        if found is None:
            return self._bus.starting(at)
        # A lake may begin with a snapshot: the server can have older events than the archive.
        return min(found, self._bus.starting(at)) if found == archive.floor else found

    def check(self, offset: Offset) -> None:
        archive = try_open_archive(self._lake)
        if archive is None or not archive.covers(offset.position):
            self._bus.check(offset)

    def bound(self) -> None:
        archive = try_open_archive(self._lake)
        self._end = START if archive is None else archive.through
        self._bus.bound()

    def cut(self, after: int, max_rows: int | None) -> int:
        archive = try_open_archive(self._lake)
        if archive is None or not archive.covers(after):
            return self._bus.cut(after, max_rows)
        end = archive.end_after(after)
        through = end if self._end is None else max(after, min(end, self._end))
        if max_rows is None or through <= after:
            return through if through > after else self._bus.cut(after, max_rows)
        positions = _positions(archive, Span(after, through), max_rows)
        return int(positions[max_rows - 1]) if len(positions) > max_rows else through

    def newest(self) -> int | None:
        return self._bus.newest()

    def incarnation_of(self, position: int) -> str:
        return self._bus.incarnation_of(position)

    def divide(self, span: Span, rows_per_partition: int) -> list[Partition]:
        archive = try_open_archive(self._lake)
        if archive is None or not archive.covers(span.after):
            return self._bus.divide(span, rows_per_partition)
        ours = Span(span.after, min(span.through, archive.end_after(span.after)))
        parts: list[Partition] = [*divide_archive(archive, ours)]
        if ours.through < span.through:
            parts += self._bus.divide(Span(ours.through, span.through), rows_per_partition)
        return parts

    def forget(self, through: int) -> None:
        self._bus.forget(through)

    def close(self) -> None:
        self._bus.close()


def divide_archive(archive: Archive, span: Span) -> list[ArchivePartition]:
    """Return one partition per file that may have rows in the span; their spans join without a hole."""
    actions = sorted(list_actions(archive.bronze, "min.replay_id", "max.replay_id", "path"))
    wanted = [each for each in actions if each[1] > span.after and each[0] <= span.through]
    if any(following[0] <= before[1] for before, following in pairwise(wanted)):
        raise ConfigInvalid("the files of the archive overlap; it was not written by one pipeline")
    # The last file's partition covers the span to its end: positions after its rows have no events.
    ends = [*(min(last, span.through) for _, last, _ in wanted[:-1]), span.through]
    begins = [span.after, *ends[:-1]]
    paths = [path for _, _, path in wanted] or [None]
    return [ArchivePartition(Span(*each), path) for *each, path in zip(begins, ends, paths, strict=True)]


def read_archive(
    lake: Lake, part: ArchivePartition, schema: pa.Schema, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition in batches. Runs on an executor."""
    if part.path is None:
        return
    table = read_file(os.path.join(lake.table("bronze"), part.path), schema)
    yield from rows_in(table, part.span).to_batches(rows)


def _positions(archive: Archive, span: Span, max_rows: int) -> np.ndarray:
    """Return the positions of the first `max_rows` + 1 events of a span, or of all if there are fewer."""
    found: list[np.ndarray] = []
    count = 0
    for rows in read_span(archive.bronze, span, _POSITIONS):
        found.append(np.sort(rows["replay_id"].to_numpy()))
        count += len(found[-1])
        if count > max_rows:
            break
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _find_time(archive: Archive, time_ms: int) -> int | None:
    """Return the position before the first archived change at or after a time; None if all are older.

    If a hole precedes that change, the position before the hole: it may have held earlier ones.
    """
    older = archive.floor
    for rows in read_span(archive.bronze, Span(archive.floor, archive.through), _TIMES):
        newer = rows.filter(pc.greater_equal(rows["commit_ms"], time_ms))
        if newer.num_rows:
            first = int(pc.min(newer["replay_id"]).as_py())
            older = pc.max(rows.filter(pc.less(rows["replay_id"], first))["replay_id"]).as_py() or older
            lost = [hole.after for hole in archive.holes if older <= hole.after and hole.through < first]
            return min([first - 1, *lost])
        older = pc.max(rows["replay_id"]).as_py()
    return None
