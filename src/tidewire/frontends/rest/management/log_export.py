"""`log` and `log/plan`: ranges of the event log as Arrow batches, for pipelines.

`log` streams the events after a position as an Arrow stream, page by page, as fast as the peer reads. The metadata of
each batch has the position that the log was read through (`tidewire.through`); that of the last batch, which may be
empty, is the end of the answer. `plan` divides the same range into parts of a given number of rows, which readers can
fetch in parallel. Expired and unknown replay ids fail as they do for a subscription.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

from tidewire.access.principal import Principal
from tidewire.errors import DemandInvalid, FeatureUnavailable, ReplayIdInvalid
from tidewire.events import Event, Family
from tidewire.frontends.rest.calls import ApiCall, Route
from tidewire.frontends.rest.management.calls import Services, render_result
from tidewire.frontends.rest.wire import NO_STORE, parse_token, try_parse_number
from tidewire.matching.log_ranges import EARLIEST, LogState, RangeStart
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse

if TYPE_CHECKING:
    import pyarrow as pa

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
MAX_ROWS = 1_000_000
_DEFAULT_ROWS = 20_000
_DEFAULT_PART_ROWS = 5_000
_MAX_PARTS = 10_000
_MAX_POSITION = 2**63 - 1
_ROOTS = {Family.CHANGE: "/data/", Family.PLATFORM: "/event/"}


async def export_log(services: Services, call: ApiCall) -> HttpResponse:
    """Stream the events after a position."""
    wanted, start = await _open(services, call)
    head = start.state.head
    end = head if wanted.through is None else min(wanted.through, head)
    headers = (
        NO_STORE,
        ("Tidewire-Head", str(head)),
        ("Tidewire-Incarnation", render_incarnation(call.principal, start.state, start.after)),
    )
    pieces = _iter_batches(services, call, wanted, start, end, dict(headers[1:]))
    return HttpResponse(200, b"", MEDIA_TYPE, headers, pieces)


async def plan_export(services: Services, call: ApiCall) -> HttpResponse:
    """Divide a range of the log into parts that readers can fetch in parallel."""
    wanted, _ = await _open(services, call)
    rows = _parse_count(
        call.request, "rows", _DEFAULT_PART_ROWS, max(1, wanted.limit // _MAX_PARTS), MAX_ROWS
    )
    principal, after, at_ms = call.principal, wanted.after, _parse_time(call.request)
    if at_ms is not None:
        after = await services.ranges.find_time(principal, wanted.channel, at_ms)
    plan = await services.ranges.plan(principal, wanted.channel, after, wanted.through, wanted.limit, rows)
    body = {
        "after": plan.after,
        "through": plan.through,
        "head": plan.state.head,
        "rows": sum(rows for _, rows in plan.parts),
        "parts": [{"through": end, "rows": rows} for end, rows in plan.parts],
        "incarnation": render_incarnation(principal, plan.state, plan.through),
        "incarnations": [
            {"id": f"{principal.org_id}-{each.first}", "first": each.first, "last": each.last}
            for each in plan.state.incarnations
        ],
    }
    return render_result(call, body)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The range of a request: after one position, through another or the head, at most `limit` events."""

    channel: str
    after: int
    through: int | None
    limit: int


async def _open(services: Services, call: ApiCall) -> tuple[_Wanted, RangeStart]:
    request = call.request
    wanted = _Wanted(
        request.query.get("topic", ""),
        _parse_after(request),
        _try_parse_position(request, "through"),
        _parse_count(request, "limit", _DEFAULT_ROWS, 0, MAX_ROWS),
    )
    # Checks the caller's rights, so it comes before all other errors.
    start = await services.ranges.start(call.principal, wanted.channel, wanted.after)
    await _load_arrow()
    return wanted, start


async def _iter_batches(
    services: Services, call: ApiCall, wanted: _Wanted, start: RangeStart, end: int, metadata: dict[str, str]
) -> AsyncIterator[bytes]:
    writer = BatchWriter(metadata)
    token, channel = parse_token(call.request), wanted.channel
    position, sent = start.after, 0
    while position < end and sent < wanted.limit:
        page = await services.ranges.read_page(call.principal, channel, start, position, wanted.limit - sent)
        # A session that was revoked meanwhile gets no further page.
        await services.logins.sessions.peek(token)
        events = [event for event in page.events if event.position <= end]
        position = min(page.through, end)
        sent += len(events)
        counters["rest.events_exported"] += len(events)
        is_last = position >= end or sent >= wanted.limit
        if events or is_last:
            yield await asyncio.to_thread(writer.render, events, channel, position, is_last=is_last)
    if not writer.is_closed:
        yield writer.render([], channel, max(position, start.after), is_last=True)


class BatchWriter:
    """Renders pages of events as pieces of one Arrow stream."""

    def __init__(self, metadata: dict[str, str]) -> None:
        import pyarrow as pa

        self.is_closed = False
        named = {
            f"tidewire.{name.lower().removeprefix('tidewire-')}": text for name, text in metadata.items()
        }
        self._schema = export_schema().with_metadata(named)
        self._buffer = _Buffer()
        self._writer = pa.ipc.new_stream(self._buffer, self._schema)

    def render(self, events: Sequence[Event], channel: str, through: int, *, is_last: bool) -> bytes:
        """Render the next piece; the last one closes the stream."""
        import pyarrow as pa

        topics = [(channel or _ROOTS[event.family] + event.topic).encode() for event in events]
        arrays = [
            _numbers([event.position for event in events]),
            _bytes([event.event_uuid.encode() for event in events], pa.string()),
            _bytes([event.schema_id.encode() for event in events], pa.string()),
            _bytes([event.payload for event in events], pa.binary()),
            _numbers([event.transaction_last for event in events]),
            _bytes(topics, pa.string()),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writer.write_batch(batch, custom_metadata={"tidewire.through": str(through)})
        if is_last:
            self._writer.close()
            self.is_closed = True
        return self._buffer.take()


# Arrays are built from buffers: this is faster, and pa.array() would import pandas into the server.


def _numbers(values: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(array("q", values))])


def _bytes(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    ends = array("i", accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(
        kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    )


class _Buffer:
    """A file object that returns what was written since the last `take`."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._written.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """No-op."""

    def take(self) -> bytes:
        taken = b"".join(self._written)
        self._written.clear()
        return taken


def export_schema() -> pa.Schema:
    """Return the columns of an export, which are those of the Spark source."""
    import pyarrow as pa

    return pa.schema(
        [
            ("replay_id", pa.int64()),
            ("event_id", pa.string()),
            ("schema_id", pa.string()),
            ("payload", pa.binary()),
            ("transaction_last", pa.int64()),
            ("topic", pa.string()),
        ]
    )


def render_incarnation(principal: Principal, state: LogState, position: int) -> str:
    """Return the globally unique name of the log incarnation that a position belongs to."""
    return f"{principal.org_id}-{state.incarnation_of(position)}"


async def _load_arrow() -> None:
    """Import Arrow, which is slow the first time. Raises FeatureUnavailable if it is not installed."""

    def load() -> None:
        import pyarrow.ipc  # noqa: F401

    try:
        await asyncio.to_thread(load)
    except ImportError as error:
        raise FeatureUnavailable(
            "Exporting the log needs Arrow on the server; install tidewire[spark] there"
        ) from error


def _try_parse_position(request: HttpRequest, name: str) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    position = try_parse_number(text, 19)
    if position is None:
        raise ReplayIdInvalid(f"{text[:40]!r} is not a replay id")
    return position


def _parse_after(request: HttpRequest) -> int:
    if request.query.get("after", "") in ("", "earliest"):
        return EARLIEST
    after = _try_parse_position(request, "after")
    if after is None or after > _MAX_POSITION:
        raise ReplayIdInvalid(f"'{after}' is not a replay id")
    return after


def _parse_time(request: HttpRequest) -> int | None:
    text = request.query.get("at", "")
    if not text:
        return None
    try:
        if text.isascii() and text.isdecimal():
            return int(text[:16])
        # A plus sign that the client did not encode arrives as a blank.
        moment = datetime.fromisoformat(text[:10] + text[10:].replace(" ", "+"))
    except ValueError as error:
        raise DemandInvalid(f"the parameter at must be a time, not {text[:40]!r}") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _parse_count(request: HttpRequest, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return max(default, least)
    count = try_parse_number(text)
    if count is None:
        raise DemandInvalid(f"the parameter {name} must be a number from {least} to {most}")
    return max(least, min(most, count))


ROUTES: tuple[Route[Services], ...] = (
    Route(("log",), {"GET": export_log}),
    Route(("log", "plan"), {"GET": plan_export}),
)
