"""Plan the batches of the source `tidewire`: where they end, and how they are divided into partitions.

A planner lives in the driver and works from a subscription or from the server's export. Executors read what
it plans: a partition is a span of positions with all that is needed to read it, so reading a partition twice
gives the same rows. Spark relies on that when it repeats a batch after a failure.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.datasource import InputPartition

from tidewire.client.login import Login
from tidewire.clock import Clock
from tidewire.errors import ConfigInvalid, PlatformError, ReplayIdInvalid, ServerUnreachable
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.source.bus import Bus
from tidewire.pipeline.source.log_export import MAX_ROWS, LogExport, LogPlan, find_export
from tidewire.pipeline.source.offsets import Offset
from tidewire.pipeline.source.position_index import ANSWER_S, PositionIndex

_LEAST_ROWS = 5_000
_MOST_PARTITIONS = 8
_MOST_PARTS = 5_000  # in one plan: the server then makes them larger
_ORG_ID = re.compile(r"00D[A-Za-z0-9]{12}([A-Za-z0-9]{3})?")
_ASK_EVERY_S = 0.025  # Spark asks for the latest offset up to a hundred times a second


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """A span to read from the Pub/Sub API. `last_row` is the position of its last event, None if it has none."""

    span: Span
    last_row: int | None
    session: Login | None


@dataclass(frozen=True)
class ExportPartition(InputPartition):
    """A span to read from the server's export at `url`; `rows` is the count from the plan."""

    span: Span
    rows: int
    url: str
    session: Login | None


@dataclass(frozen=True)
class ArchivePartition(InputPartition):
    """The part of a span in one bronze file; it has no rows without a file."""

    span: Span
    path: str | None


Partition = SpanPartition | ExportPartition | ArchivePartition


class SourcePlanner(Protocol):
    """Plans for a stream reader, in the driver. Calls may block, and raise the errors of reading."""

    def starting(self, at: int | str) -> int:
        """Return the position for `earliest`, `latest`, a replay id, or a time in milliseconds (`@ms`)."""

    def check(self, offset: Offset) -> None:
        """Raise ReplayIdInvalid if the offset is known to be of another log."""

    def bound(self) -> None:
        """Fix the end at the current end of the log: new events no longer move it."""

    def cut(self, after: int, max_rows: int | None) -> int:
        """Return the end of the next batch: about `max_rows` rows after a position, or all rows."""

    def newest(self) -> int | None:
        """Return the known end of the log, for progress reports."""

    def incarnation_of(self, position: int) -> str:
        """Return the incarnation of a position; empty if the server has none."""

    def divide(self, span: Span, rows_per_partition: int) -> list[Partition]:
        """Divide a span into partitions."""

    def forget(self, through: int) -> None:
        """Release what is held for positions up to `through`: they are committed."""

    def close(self) -> None:
        """Stop background work."""


def open_planner(bus: Bus, clock: Clock, settle_s: float) -> BusPlanner | ExportPlanner:
    """Open a planner over the server's export if it has one, otherwise over a subscription."""
    url = find_export(bus)
    return BusPlanner(bus, clock, settle_s) if url is None else ExportPlanner(bus, url, clock)


def is_org_id(incarnation: str) -> bool:
    """Return whether an offset names only the org that it belongs to."""
    return _ORG_ID.fullmatch(incarnation) is not None


def check_org(offset: Offset, bus: Bus) -> None:
    """Raise ReplayIdInvalid if the offset names another org than that of the login.

    The org stands alone, or begins the name of an incarnation.
    """
    named, present = _ORG_ID.match(offset.incarnation), bus.session().org_id
    if named is not None and present and named[0][:15] != present[:15]:
        raise ReplayIdInvalid(
            f"replay id {offset.position} belongs to org {named[0]}, and the login leads to org {present}: "
            "a checkpoint can only be used with the org that it began with",
            replay_id=offset.position,
        )


def partition_rows(rows: int, asked: int) -> int:
    """Return the rows per partition: as requested, or enough to keep a few tasks busy."""
    return asked or max(_LEAST_ROWS, -(-rows // _MOST_PARTITIONS))


def divide_span(
    span: Span, positions: Sequence[int], rows: int, session: Login | None
) -> list[SpanPartition]:
    """Divide a span into partitions of about `rows` rows; events that share a position stay together."""
    parts: list[SpanPartition] = []
    after = span.after
    begin = 0
    while begin < len(positions):
        end = min(begin + rows, len(positions))
        # Reading resumes strictly after a position, so events that share one cannot be split.
        while end < len(positions) and positions[end] == positions[end - 1]:
            end += 1
        last_row = positions[end - 1]
        # The last partition takes the positions without events up to the end of the span: spans must join.
        through = span.through if end == len(positions) else last_row
        parts.append(SpanPartition(Span(after, through), last_row, session))
        after, begin = through, end
    # A span without events still needs a partition, or its watermark would be missing.
    if not parts and span.through > span.after:
        parts.append(SpanPartition(span, None, session))
    return parts


class BusPlanner:
    """Plans from one background subscription, which every server of the protocol supports."""

    def __init__(self, bus: Bus, clock: Clock, settle_s: float) -> None:
        self._bus = bus
        self._clock = clock
        self._settle_s = settle_s
        self._index: PositionIndex | None = None
        self._is_bounded = False
        self._tip: int | None = None
        self._end: int | None = None

    def starting(self, at: int | str) -> int:
        if isinstance(at, int):
            return at
        if at == "earliest":
            return START
        if at == "latest":
            return self._bus.tip() or START
        raise ConfigInvalid(
            "the option 'starting' can be a time only with an archive or the export of a Tidewire server",
            setting="starting",
        )

    def check(self, offset: Offset) -> None:
        """Check the org only: the server rejects unknown positions, but might accept those of another org."""
        check_org(offset, self._bus)

    def bound(self) -> None:
        self._is_bounded = True
        # On a thread: on a quiet log the server may never report its end, and then silence ends the read.
        threading.Thread(target=self._watch_tip, name="tidewire-tip", daemon=True).start()

    def cut(self, after: int, max_rows: int | None) -> int:
        index = self._index_from(after)
        if not self._is_bounded:
            return index.cut(after, max_rows)
        return max(after, self._bounded_cut(index, after, max_rows))

    def newest(self) -> int | None:
        if self._index is None or not self._index.is_heard():
            return None  # what was received before a break may be outdated
        return self._index.cut(self._index.after, None)

    def incarnation_of(self, position: int) -> str:
        return self._bus.session().org_id  # such a server identifies its log by nothing else

    def divide(self, span: Span, rows_per_partition: int) -> list[Partition]:
        # After a restart Spark repeats a batch whose span the new index has not read yet: wait, so that the batch gets
        # the same rows as before.
        index = self._index_from(span.after)
        self._wait_for(index, span.through)
        positions: array[int] = index.positions_in(span.after, span.through)
        rows = partition_rows(len(positions), rows_per_partition)
        return [*divide_span(span, positions, rows, self._bus.session())]

    def forget(self, through: int) -> None:
        if self._index is not None:
            self._index.forget(through)

    def close(self) -> None:
        if self._index is not None:
            self._index.close()

    def _index_from(self, after: int) -> PositionIndex:
        # An index drops what was committed. A query that goes back further needs a new one.
        if self._index is None or not self._index.covers(after):
            if self._index is not None:
                self._index.close()
            self._index = PositionIndex(self._bus, after, self._clock)
            if self._tip is not None:
                self._index.aim(self._tip)
        return self._index

    def _bounded_cut(self, index: PositionIndex, after: int, max_rows: int | None) -> int:
        # Decided once: a bounded query must end although new events keep arriving.
        if self._end is None:
            wanted = max_rows if max_rows is not None else 1 << 62
            if index.wait_for_rows(after, wanted, self._settle_s):
                found = index.cut(after, max_rows)
                return found if self._tip is None else min(found, self._tip)
            reached = index.cut(after, None)
            self._end = reached if self._tip is None else min(reached, self._tip)
        self._wait_for(index, self._end)
        return min(self._end, index.cut(after, max_rows))

    def _wait_for(self, index: PositionIndex, position: int) -> None:
        limit_s = max(self._bus.settings.retry_s, ANSWER_S)
        if not index.wait_for(position, limit_s):
            raise ServerUnreachable(f"the server did not send the events up to {position} in {limit_s:.0f} s")

    def _watch_tip(self) -> None:
        """Learn the end of the log from the server, also while the log is too busy to fall quiet."""
        try:
            tip = self._bus.tip()
        except (PlatformError, ValueError):  # grpc's word for a connection that was closed meanwhile
            return  # the index runs into the same error and reports it
        self._tip = tip
        if tip is not None and self._index is not None:
            self._index.aim(tip)


class ExportPlanner:
    """Plans with the server's export, which counts rows without sending them."""

    def __init__(self, bus: Bus, url: str, clock: Clock) -> None:
        self._bus = bus
        self._url = url
        self._clock = clock
        self._export = LogExport(bus, url)
        self._target: int | None = None
        self._newest: LogPlan | None = None
        self._asked: tuple[tuple[int, int | None], float] | None = None

    def starting(self, at: int | str) -> int:
        if isinstance(at, int):
            # A bounded read requests nothing past its end, so a position that was never assigned is rejected here.
            self._noted(self._export.plan(at, limit=0))
            return at
        if at.startswith("@"):
            return self._export.position_at(int(at[1:]))
        state = self._noted(self._export.plan(START, limit=0))
        return state.head if at == "latest" else state.after

    def check(self, offset: Offset) -> None:
        if is_org_id(offset.incarnation):
            check_org(offset, self._bus)
            return
        # Any plan lists the incarnations, so the newest one saves a request.
        state = self._newest or self._noted(self._export.plan(START, limit=0))
        state.check(offset)

    def bound(self) -> None:
        self._target = self._noted(self._export.plan(START, limit=0)).head

    def cut(self, after: int, max_rows: int | None) -> int:
        if self._target is not None and after >= self._target:
            return after
        # An empty answer is reused briefly: Spark would otherwise send a request every few milliseconds.
        question, now_s = (after, max_rows), self._clock.monotonic_s()
        if self._asked is not None and self._asked[0] == question and now_s < self._asked[1] + _ASK_EVERY_S:
            return after  # there was nothing new at the last check
        if max_rows is None:
            plan = self._noted(self._export.plan(after, limit=0))
            through = plan.head if self._target is None else min(plan.head, self._target)
        else:
            limit = min(max_rows, MAX_ROWS)
            through = self._noted(self._export.plan(after, through=self._target, limit=limit)).through
        self._asked = (question, now_s) if through <= after else None
        return max(after, through)

    def newest(self) -> int | None:
        return None if self._newest is None else self._newest.head

    def incarnation_of(self, position: int) -> str:
        return "" if self._newest is None else self._newest.incarnation_of(position)

    def divide(self, span: Span, rows_per_partition: int) -> list[Partition]:
        session = self._bus.session()
        parts: list[tuple[Span, int]] = []
        reached = span.after
        # Small units first, merged below: the total is known only after the last plan.
        unit = rows_per_partition or _LEAST_ROWS
        limit = min(MAX_ROWS, unit * _MOST_PARTS)
        while reached < span.through:
            plan = self._export.plan(reached, through=span.through, limit=limit, rows=unit)
            # The batch was planned up to an end that the log no longer has. Fewer rows must not pass as the batch.
            if plan.through <= reached or not plan.parts:
                raise ServerUnreachable(f"the log no longer reaches {span.through}")
            parts += plan.parts
            reached = plan.through
        rows = partition_rows(sum(count for _, count in parts), rows_per_partition)
        return [ExportPartition(each, count, self._url, session) for each, count in _join(span, parts, rows)]

    def forget(self, through: int) -> None:
        """No-op: nothing is held."""

    def close(self) -> None:
        self._export.close()

    def _noted(self, plan: LogPlan) -> LogPlan:
        self._newest = plan
        return plan


def _join(span: Span, parts: Sequence[tuple[Span, int]], rows: int) -> list[tuple[Span, int]]:
    """Merge adjacent spans up to about `rows` rows each."""
    joined: list[tuple[Span, int]] = []
    after, count = span.after, 0
    for part, found in parts:
        count += found
        if count >= rows:
            joined.append((Span(after, part.through), count))
            after, count = part.through, 0
    # The rest joins the last partition unless it has rows of its own, so that all spans together cover the batch.
    if after < span.through:
        if count or not joined:
            joined.append((Span(after, span.through), count))
        else:
            last, found = joined[-1]
            joined[-1] = (Span(last.after, span.through), found)
    return joined
