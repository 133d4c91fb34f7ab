"""Where batches of the source `tidewire` end and how they are divided: by a subscription, or by the server's
export.

A planner lives in the driver. What it hands out is read by executors: a partition is a span of positions and
all that is needed to read it, so a partition that is read twice gives the same rows.
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
_MOST_PARTS = 5_000  # of one plan: a server makes them larger rather than more
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
    """A span to read from the export of the server at `url`; `rows` is what the plan has counted."""

    span: Span
    rows: int
    url: str
    session: Login | None


@dataclass(frozen=True)
class ArchivePartition(InputPartition):
    """The part of a span that one bronze file has; without a file it has no rows."""

    span: Span
    path: str | None


Partition = SpanPartition | ExportPartition | ArchivePartition


class SourcePlanner(Protocol):
    """What a stream reader asks in the driver. Calls may block, and raise what reading has met."""

    def starting(self, at: int | str) -> int:
        """The position that `earliest`, `latest`, a replay id or a time in milliseconds (as `@ms`) stands
        for.
        """

    def check(self, offset: Offset) -> None:
        """Raises ReplayIdInvalid if the offset is known to be of another log."""

    def bound(self) -> None:
        """From now on new events do not move the end."""

    def cut(self, after: int, max_rows: int | None) -> int:
        """The end of the next batch: about `max_rows` rows after a position, or all there are."""

    def newest(self) -> int | None:
        """How far the log is known, for progress reports."""

    def incarnation_of(self, position: int) -> str:
        """The incarnation of a position, empty if the server does not tell."""

    def divide(self, span: Span, rows_per_partition: int) -> list[Partition]:
        """Partitions that make up a span."""

    def forget(self, through: int) -> None:
        """A batch up to there is done for good."""

    def close(self) -> None:
        """Stop what runs in the background."""


def open_planner(bus: Bus, clock: Clock, settle_s: float) -> BusPlanner | ExportPlanner:
    """A planner over the server's export if it has one, otherwise over a subscription."""
    url = find_export(bus)
    return BusPlanner(bus, clock, settle_s) if url is None else ExportPlanner(bus, url, clock)


def is_org_id(incarnation: str) -> bool:
    """Whether an offset names only the org that it belongs to."""
    return _ORG_ID.fullmatch(incarnation) is not None


def check_org(offset: Offset, bus: Bus) -> None:
    """Raises ReplayIdInvalid if the offset names another org than the login led to, by itself or as the beginning of
    an incarnation's name.
    """
    named, present = _ORG_ID.match(offset.incarnation), bus.session().org_id
    if named is not None and present and named[0][:15] != present[:15]:
        raise ReplayIdInvalid(
            f"replay id {offset.position} belongs to org {named[0]}, and the login leads to org {present}: "
            "a checkpoint goes on in the org that it began with",
            replay_id=offset.position,
        )


def partition_rows(rows: int, asked: int) -> int:
    """Rows of one partition: what was asked for, or enough to keep a few tasks busy and no more of them."""
    return asked or max(_LEAST_ROWS, -(-rows // _MOST_PARTITIONS))


def divide_span(
    span: Span, positions: Sequence[int], rows: int, session: Login | None
) -> list[SpanPartition]:
    """Partitions of about `rows` rows that together make up the span; events that share a position stay
    together.
    """
    parts: list[SpanPartition] = []
    after = span.after
    begin = 0
    while begin < len(positions):
        end = min(begin + rows, len(positions))
        while end < len(positions) and positions[end] == positions[end - 1]:
            end += 1
        last_row = positions[end - 1]
        through = span.through if end == len(positions) else last_row
        parts.append(SpanPartition(Span(after, through), last_row, session))
        after, begin = through, end
    if not parts and span.through > span.after:
        parts.append(SpanPartition(span, None, session))
    return parts


class BusPlanner:
    """Plans from one background subscription, which any server of the protocol grants."""

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
        """Positions that the server does not know it refuses itself; those of another org it might know."""
        check_org(offset, self._bus)

    def bound(self) -> None:
        self._is_bounded = True
        threading.Thread(target=self._watch_tip, name="tidewire-tip", daemon=True).start()

    def cut(self, after: int, max_rows: int | None) -> int:
        index = self._index_from(after)
        if not self._is_bounded:
            return index.cut(after, max_rows)
        return max(after, self._bounded_cut(index, after, max_rows))

    def newest(self) -> int | None:
        if self._index is None or not self._index.is_heard():
            return None  # what was heard before a break may be long past
        return self._index.cut(self._index.after, None)

    def incarnation_of(self, position: int) -> str:
        return self._bus.session().org_id  # the server tells no more

    def divide(self, span: Span, rows_per_partition: int) -> list[Partition]:
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
        if self._index is None or not self._index.covers(after):
            if self._index is not None:
                self._index.close()
            self._index = PositionIndex(self._bus, after, self._clock)
            if self._tip is not None:
                self._index.aim(self._tip)
        return self._index

    def _bounded_cut(self, index: PositionIndex, after: int, max_rows: int | None) -> int:
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
        """Learn where the log stands from the server, for one that tells it at once, and for a log so busy that it
        never falls quiet.
        """
        try:
            tip = self._bus.tip()
        except (PlatformError, ValueError):  # grpc's word for a connection that was closed meanwhile
            return  # the index meets the same trouble and reports it
        self._tip = tip
        if tip is not None and self._index is not None:
            self._index.aim(tip)


class ExportPlanner:
    """Plans by asking the server's export, which counts rows without sending them."""

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
            # A bounded read asks for nothing past its end, so a position that was never given out is refused here.
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
        state = self._newest or self._noted(self._export.plan(START, limit=0))
        state.check(offset)

    def bound(self) -> None:
        self._target = self._noted(self._export.plan(START, limit=0)).head

    def cut(self, after: int, max_rows: int | None) -> int:
        if self._target is not None and after >= self._target:
            return after
        question, now_s = (after, max_rows), self._clock.monotonic_s()
        if self._asked is not None and self._asked[0] == question and now_s < self._asked[1] + _ASK_EVERY_S:
            return after  # there was nothing new a moment ago
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
        unit = rows_per_partition or _LEAST_ROWS
        limit = min(MAX_ROWS, unit * _MOST_PARTS)
        while reached < span.through:
            plan = self._export.plan(reached, through=span.through, limit=limit, rows=unit)
            if plan.through <= reached or not plan.parts:
                raise ServerUnreachable(f"the log does not reach {span.through} any more")
            parts += plan.parts
            reached = plan.through
        rows = partition_rows(sum(count for _, count in parts), rows_per_partition)
        return [ExportPartition(each, count, self._url, session) for each, count in _join(span, parts, rows)]

    def forget(self, through: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        self._export.close()

    def _noted(self, plan: LogPlan) -> LogPlan:
        self._newest = plan
        return plan


def _join(span: Span, parts: Sequence[tuple[Span, int]], rows: int) -> list[tuple[Span, int]]:
    """Neighbours joined until they have so many rows; together they make up the span."""
    joined: list[tuple[Span, int]] = []
    after, count = span.after, 0
    for part, found in parts:
        count += found
        if count >= rows:
            joined.append((Span(after, part.through), count))
            after, count = part.through, 0
    if after < span.through:
        if count or not joined:
            joined.append((Span(after, span.through), count))
        else:
            last, found = joined[-1]
            joined[-1] = (Span(last.after, span.through), found)
    return joined
