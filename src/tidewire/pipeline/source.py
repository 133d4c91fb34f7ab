"""The Spark data source `tidewire`: a channel of the Pub/Sub API as a streaming or batch DataFrame.

    spark.dataSource.register(TidewireSource)
    spark.readStream.format("tidewire").option("endpoint", "localhost:7011").option("topic", ...)

Options: endpoint, topic; token and org_id, or username, password, login_url and perhaps client_id,
client_secret; tls_ca (path) or tls; starting (`earliest` or a replay id to read after), max_rows per batch,
rows_per_partition, settle_s, retry_s, marks.

Offsets are `{"v": 1, "replay": "<position>"}`, position 0 standing before the oldest event. A partition is
a span of positions, and reading it is a pure function of the span: subscribe after its start, stop at its
end. With `marks`, each partition ends with a mark: a row without payload whose replay_id is the end of the
span and whose transaction_last is its start (see spans.py).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidewire.client.login import Login
from tidewire.client.pubsub_messages import Received
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid, PlatformError, StoreClosed
from tidewire.pipeline.bus import (
    TRANSACTION_LAST,
    Bus,
    BusSettings,
    parse_number,
    parse_settings,
    position_after,
)
from tidewire.pipeline.index import PositionIndex
from tidewire.pipeline.spans import START, Span

ROWS = pa.schema(
    [
        ("replay_id", pa.int64()),
        ("event_id", pa.string()),
        ("schema_id", pa.string()),
        ("payload", pa.binary()),
        ("transaction_last", pa.int64()),
        ("topic", pa.string()),
    ]
)
ROWS_DDL = (
    "replay_id LONG, event_id STRING, schema_id STRING, payload BINARY, transaction_last LONG, topic STRING"
)
BATCH_ROWS = 2_000
OFFSET_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a channel is read, apart from where it is."""

    starting: int = START
    max_rows: int = 20_000
    rows_per_partition: int = 5_000
    settle_s: float = 2.0
    with_marks: bool = False


def parse_read_settings(options: Mapping[str, str]) -> ReadSettings:
    """Raises ConfigInvalid for an option that makes no sense."""
    starting = options.get("starting", "earliest")
    if starting != "earliest" and not starting.isdecimal():
        raise ConfigInvalid("the option 'starting' must be 'earliest' or a replay id", setting="starting")
    defaults = ReadSettings()
    return ReadSettings(
        starting=START if starting == "earliest" else int(starting),
        max_rows=max(1, int(parse_number(options, "max_rows", defaults.max_rows))),
        rows_per_partition=max(
            1, int(parse_number(options, "rows_per_partition", defaults.rows_per_partition))
        ),
        settle_s=parse_number(options, "settle_s", defaults.settle_s),
        with_marks=options.get("marks", "false").lower() == "true",
    )


def render_offset(position: int) -> dict[str, Any]:
    """A position as Spark stores it. Text, because JSON readers may round large numbers."""
    return {"v": OFFSET_VERSION, "replay": str(position)}


def parse_offset(offset: Mapping[str, Any]) -> int:
    """The position of a stored offset. Raises ConfigInvalid for one that another version wrote."""
    if offset.get("v") != OFFSET_VERSION:
        raise ConfigInvalid(
            f"the checkpoint holds an offset of version {offset.get('v')!r}, not {OFFSET_VERSION}",
            setting="checkpoint",
        )
    return int(offset["replay"])


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """A span to read. `last_row` is the position of its last event, None if it has none."""

    span: Span
    last_row: int | None
    session: Login | None


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


def read_span(settings: BusSettings, part: SpanPartition, with_marks: bool) -> Iterator[pa.RecordBatch]:
    """The events of a span as Arrow batches, then its mark. Runs on an executor; blocks."""
    if part.last_row is not None:
        bus = Bus(settings, SystemClock(), part.session)
        waiting: list[Received] = []
        reached = part.span.after
        for fetched in bus.stream(part.span.after, threading.Event()):
            waiting += [event for event in fetched.events if event.replay_id <= part.span.through]
            reached = position_after(fetched, reached)
            if len(waiting) >= BATCH_ROWS or reached >= part.last_row:
                yield _render_rows(waiting, settings.topic)
                waiting = []
            if reached >= part.last_row:
                break
    if with_marks:
        mark = {
            "replay_id": part.span.through,
            "transaction_last": part.span.after,
            "topic": settings.topic,
        }
        yield pa.RecordBatch.from_pylist([mark], schema=ROWS)


def _render_rows(events: Sequence[Received], topic: str) -> pa.RecordBatch:
    lasts = [event.headers.get(TRANSACTION_LAST) for event in events]
    columns = [
        [event.replay_id for event in events],
        [event.event_id for event in events],
        [event.schema_id for event in events],
        [event.payload for event in events],
        [int(last) if last else None for last in lasts],
        [topic] * len(events),
    ]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, ROWS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


class TidewireStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver; `read` runs on executors.

    Spark pickles this object to executors, so what lives in the driver only is made on first use.
    """

    def __init__(self, bus_settings: BusSettings, read_settings: ReadSettings) -> None:
        self._bus_settings = bus_settings
        self._read_settings = read_settings
        # in the driver only
        self._bus: Bus | None = None
        self._index: PositionIndex | None = None
        self._is_bounded = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without checkpoint starts."""
        return render_offset(self._read_settings.starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most `max_rows` rows a batch."""
        return ReadMaxRows(self._read_settings.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Called once at the start of such a query: from now on new events do not move its end."""
        self._is_bounded = True
        threading.Thread(target=self._watch_tip, name="tidewire-tip", daemon=True).start()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Called before each batch, often. From memory; waits only for a bounded query's next rows."""
        after = parse_offset(start)
        index = self._index_from(after)
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._max_rows(limit)
        if not self._is_bounded:
            return render_offset(index.cut(after, max_rows))
        return render_offset(max(after, self._bounded_cut(index, after, max_rows)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For progress reports only."""
        return render_offset(self._index.cut(self._index.after, None)) if self._index is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SpanPartition]:
        """Called for each batch, also for one that a restart repeats: then the index first has to catch up
        with it.
        """
        span = Span(parse_offset(start), parse_offset(end))
        if span.through <= span.after:
            return []
        index = self._index_from(span.after)
        return _partitions_of(index, span, self._read_settings, self._bus_settings, self._connected())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Called on an executor."""
        if not isinstance(partition, SpanPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return read_span(self._bus_settings, partition, self._read_settings.with_marks)

    def commit(self, end: dict[str, Any]) -> None:
        """Called when a batch is done for good."""
        if self._index is not None:
            self._index.forget(parse_offset(end))

    def stop(self) -> None:
        """Called when the query ends."""
        if self._index is not None:
            self._index.close()

    def _max_rows(self, limit: ReadLimit) -> int:
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._read_settings.max_rows

    def _connected(self) -> Bus:
        if self._bus is None:
            self._bus = Bus(self._bus_settings, SystemClock())
        return self._bus

    def _index_from(self, after: int) -> PositionIndex:
        if self._index is None or not self._index.covers(after):
            if self._index is not None:
                self._index.close()
            self._index = PositionIndex(self._connected(), after, SystemClock())
        return self._index

    def _bounded_cut(self, index: PositionIndex, after: int, max_rows: int | None) -> int:
        while True:
            if self._target is None:
                wanted = max_rows if max_rows is not None else 1 << 62
                if index.wait_for_rows(after, wanted, self._read_settings.settle_s):
                    return index.cut(after, max_rows)
                if self._target is None:
                    self._target = index.cut(after, None)
            if index.wait_for(self._target, self._read_settings.settle_s):
                return min(self._target, index.cut(after, max_rows))

    def _watch_tip(self) -> None:
        """Learn where the log stands from the server, for a log so busy that it never falls quiet."""
        try:
            tip = self._connected().tip()
        except PlatformError:
            return  # the index meets the same trouble and reports it
        if self._target is None:
            self._target = tip


def _partitions_of(
    index: PositionIndex, span: Span, read_settings: ReadSettings, bus_settings: BusSettings, bus: Bus
) -> list[SpanPartition]:
    if not index.wait_for(span.through, bus_settings.retry_s):
        raise StoreClosed(
            f"the server did not send the events up to {span.through} in {bus_settings.retry_s} s"
        )
    positions: array[int] = index.positions_in(span.after, span.through)
    return divide_span(span, positions, read_settings.rows_per_partition, bus.session())


class TidewireBatchReader(DataSourceReader):
    """Reads what the channel holds now, once."""

    def __init__(self, bus_settings: BusSettings, read_settings: ReadSettings) -> None:
        self._bus_settings = bus_settings
        self._read_settings = read_settings

    def partitions(self) -> Sequence[SpanPartition]:
        """Called in the driver; waits until the server has nothing more to say."""
        bus = Bus(self._bus_settings, SystemClock())
        index = PositionIndex(bus, self._read_settings.starting, SystemClock())
        try:
            index.wait_for_rows(index.after, 1 << 62, self._read_settings.settle_s)
            span = Span(index.after, index.cut(index.after, None))
            return _partitions_of(index, span, self._read_settings, self._bus_settings, bus)
        finally:
            index.close()

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Called on an executor."""
        if not isinstance(partition, SpanPartition):
            return iter(())
        return read_span(self._bus_settings, partition, self._read_settings.with_marks)


class TidewireSource(DataSource):
    """What Spark knows under the name `tidewire`."""

    @classmethod
    def name(cls) -> str:
        """The format name."""
        return "tidewire"

    def schema(self) -> str:
        """The columns of the DataFrame."""
        return ROWS_DDL

    def reader(self, schema: StructType) -> TidewireBatchReader:
        """Called for `spark.read`."""
        return TidewireBatchReader(parse_settings(self.options), parse_read_settings(self.options))

    def streamReader(self, schema: StructType) -> TidewireStreamReader:
        """Called for `spark.readStream`, by keyword: the parameter's name matters."""
        return TidewireStreamReader(parse_settings(self.options), parse_read_settings(self.options))
