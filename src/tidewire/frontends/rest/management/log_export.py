"""`/services/tidewire/v1/log` and `/log/plan`: ranges of the event log as Arrow batches, for pipelines.

`log` streams the events after a position in Arrow's streaming form, page by page, as fast as the peer takes
them. Each batch says in its metadata how far the log has been read with it (`tidewire.through`), and the last
one, which may be empty, how far the answer goes. `plan` counts: it divides the same range into parts of so
many rows, which readers can then fetch side by side. Replay ids that are too old or unknown are refused as
for a subscription.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

from tidewire.access.logins import Logins
from tidewire.errors import (
    DemandInvalid,
    FeatureUnavailable,
    MethodNotAllowed,
    ReplayIdInvalid,
    ResourceUnknown,
)
from tidewire.events import Event, Family
from tidewire.frontends.rest.wire import NO_STORE, parse_token, render_json
from tidewire.gate.requests import Call
from tidewire.matching.log_ranges import EARLIEST, LogRanges, LogState, RangeStart
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


class LogExportApi:
    """Answers the two resources for one org."""

    def __init__(self, logins: Logins, ranges: LogRanges) -> None:
        self._logins = logins
        self._ranges = ranges

    async def answer(self, request: HttpRequest, segments: tuple[str, ...], call: Call) -> HttpResponse:
        """Answer what follows `/services/tidewire/v1/log`."""
        if segments not in ((), ("plan",)):
            raise ResourceUnknown("The requested resource does not exist")
        if request.method != "GET":
            raise MethodNotAllowed(f"HTTP Method '{request.method[:16]}' not allowed", allowed=("GET",))
        after, through = _parse_after(request), _parse_through(request)
        limit = _parse_count(request, "limit", _DEFAULT_ROWS, 0, MAX_ROWS)
        channel = request.query.get("topic", "")
        # Who may not read the log is told so before anything else is found wrong.
        start = await self._ranges.start(call.principal, channel, after)
        await _load_arrow()
        if segments:
            return await self._plan(request, call, channel, after, through, limit)
        head = start.state.head
        end = head if through is None else min(through, head)
        headers = (
            NO_STORE,
            ("Tidewire-Head", str(head)),
            ("Tidewire-Incarnation", render_incarnation(call, start.state, start.after)),
        )
        pieces = self._stream(parse_token(request), call, channel, start, end, limit, dict(headers[1:]))
        return HttpResponse(200, b"", MEDIA_TYPE, headers, pieces)

    async def _plan(
        self, request: HttpRequest, call: Call, channel: str, after: int, through: int | None, limit: int
    ) -> HttpResponse:
        rows = _parse_count(request, "rows", _DEFAULT_PART_ROWS, max(1, limit // _MAX_PARTS), MAX_ROWS)
        at_ms = _parse_time(request)
        if at_ms is not None:
            after = await self._ranges.find_time(call.principal, channel, at_ms)
        plan = await self._ranges.plan(call.principal, channel, after, through, limit, rows)
        body = {
            "after": plan.after,
            "through": plan.through,
            "head": plan.state.head,
            "rows": sum(rows for _, rows in plan.parts),
            "parts": [{"through": end, "rows": rows} for end, rows in plan.parts],
            "incarnation": render_incarnation(call, plan.state, plan.through),
            "incarnations": [
                {
                    "id": f"{call.principal.org_id}-{each.first}",
                    "first": each.first,
                    "last": each.last,
                }
                for each in plan.state.incarnations
            ],
        }
        return render_json(request, 200, body, (NO_STORE,))

    async def _stream(
        self,
        token: str,
        call: Call,
        channel: str,
        start: RangeStart,
        end: int,
        limit: int,
        metadata: dict[str, str],
    ) -> AsyncIterator[bytes]:
        writer = BatchWriter(metadata)
        position, sent = start.after, 0
        while position < end and sent < limit:
            page = await self._ranges.read_page(call.principal, channel, start, position, limit - sent)
            # Whoever was signed out meanwhile gets no more of it.
            await self._logins.sessions.peek(token)
            events = [event for event in page.events if event.position <= end]
            position = min(page.through, end)
            sent += len(events)
            counters["rest.events_exported"] += len(events)
            is_last = position >= end or sent >= limit
            if events or is_last:
                yield await asyncio.to_thread(writer.render, events, channel, position, is_last=is_last)
        if not writer.is_closed:
            yield writer.render([], channel, max(position, start.after), is_last=True)


class BatchWriter:
    """Turns pages of events into pieces of one Arrow stream."""

    def __init__(self, metadata: dict[str, str]) -> None:
        import pyarrow as pa

        self.is_closed = False
        named = {
            f"tidewire.{name.lower().removeprefix('tidewire-')}": text for name, text in metadata.items()
        }
        self._schema = export_schema().with_metadata(named)
        self._taken = _Taken()
        self._writer = pa.ipc.new_stream(self._taken, self._schema)

    def render(self, events: Sequence[Event], channel: str, through: int, *, is_last: bool) -> bytes:
        """The next piece."""
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
        return self._taken.take()


# Arrays are put together from their buffers: it is quicker, and the usual way loads pandas into the server.


def _numbers(values: Sequence[int]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(array("q", values))])


def _bytes(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    ends = array("i", accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(
        kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    )


class _Taken:
    """A file that hands out what was written to it since the last time."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._written.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken = b"".join(self._written)
        self._written.clear()
        return taken


def export_schema() -> pa.Schema:
    """The columns of an export, the same as those of the Spark source."""
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


def render_incarnation(call: Call, state: LogState, position: int) -> str:
    """The name of the incarnation that a position belongs to; no two logs share one."""
    return f"{call.principal.org_id}-{state.incarnation_of(position)}"


async def _load_arrow() -> None:
    """Raises FeatureUnavailable if this server was installed without Arrow."""

    def load() -> None:
        import pyarrow.ipc  # noqa: F401  # takes long the first time, so not on the loop

    try:
        await asyncio.to_thread(load)
    except ImportError as error:
        raise FeatureUnavailable(
            "the export of the log needs Arrow on the server; install tidewire[spark] there"
        ) from error


def _parse_after(request: HttpRequest) -> int:
    text = request.query.get("after", "")
    if text in ("", "earliest"):
        return EARLIEST
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > _MAX_POSITION:
        raise ReplayIdInvalid(f"{text[:40]!r} is not a replay id")
    return int(text)


def _parse_through(request: HttpRequest) -> int | None:
    text = request.query.get("through", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise ReplayIdInvalid(f"{text[:40]!r} is not a replay id")
    return int(text)


def _parse_time(request: HttpRequest) -> int | None:
    text = request.query.get("at", "")
    if not text:
        return None
    try:
        if text.isascii() and text.isdecimal():
            return int(text[:16])
        # A plus sign that was not escaped has become a blank.
        moment = datetime.fromisoformat(text[:10] + text[10:].replace(" ", "+"))
    except ValueError as error:
        raise DemandInvalid(f"the parameter at must be a time, not {text[:40]!r}") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _parse_count(request: HttpRequest, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return max(default, least)
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise DemandInvalid(f"the parameter {name} must be a number from {least} to {most}")
    return max(least, min(most, int(text)))
