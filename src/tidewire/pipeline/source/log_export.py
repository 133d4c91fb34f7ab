"""Client of the Arrow export of a Tidewire server's log: plans that count rows, and spans in batches.

Only our server has it. It spares the driver from receiving every event, and executors from parsing gRPC
messages. `find_export` returns where it is, if the server has one for this user; otherwise the Pub/Sub API is
used, as with any other server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from tidewire.errors import PlatformError, ReplayIdInvalid, RequestRefused, ServerUnreachable
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.source.bus import Bus, Retry
from tidewire.pipeline.source.offsets import Offset
from tidewire.pipeline.source.server_http import ServerHttp

LOG = "/services/tidewire/v1/log"
OFF = "off"
MAX_ROWS = 1_000_000
_THROUGH = b"tidewire.through"


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One incarnation of the log: its name and its positions; `last` is None for the current one."""

    id: str
    first: int
    last: int | None

    def has(self, position: int) -> bool:
        """Return whether the position belongs to it, or directly precedes its first."""
        return self.first - 1 <= position and (self.last is None or position <= self.last)


@dataclass(frozen=True, slots=True)
class LogPlan:
    """The log after a position: adjacent spans with their row counts, up to `through`."""

    after: int
    through: int
    head: int
    parts: tuple[tuple[Span, int], ...]
    incarnations: tuple[Incarnation, ...]

    def incarnation_of(self, position: int) -> str:
        """Return the name of the incarnation that assigned a position; empty if none did."""
        return next((each.id for each in reversed(self.incarnations) if each.has(position)), "")

    def check(self, offset: Offset) -> None:
        """Raise ReplayIdInvalid if another log assigned the offset."""
        if not offset.incarnation or offset.position == START:
            return
        known = {each.id: each for each in self.incarnations}
        named = known.get(offset.incarnation)
        if named is None:
            raise ReplayIdInvalid(
                f"replay id {offset.position} belongs to incarnation {offset.incarnation} of a log, and this server "
                f"has {', '.join(known)}: it is another org, or its data was recreated",
                replay_id=offset.position,
            )
        if not named.has(offset.position):
            raise ReplayIdInvalid(
                f"replay id {offset.position} is later than incarnation {offset.incarnation} of this server's log, "
                f"which ended at {named.last}: the server was restored from a backup without the last events",
                replay_id=offset.position,
            )


class LogExport:
    """One channel of an export, for one thread."""

    def __init__(self, bus: Bus, url: str = "") -> None:
        self._bus = bus
        self._web = ServerHttp(bus, url)

    def plan(self, after: int, *, through: int | None = None, limit: int, rows: int = MAX_ROWS) -> LogPlan:
        """Count what follows a position: at most `limit` rows, in spans of about `rows`. Blocks; retries.

        Raises ReplayIdExpired or ReplayIdInvalid.
        """
        asked: dict[str, int] = {"after": after, "limit": limit, "rows": rows}
        if through is not None:
            asked["through"] = through
        _, answer = self._web.get_json(self._path("/plan", asked), after)
        return _parse_plan(answer)

    def try_state(self) -> LogPlan | None:
        """Return the state of the log; None if the server has no export for this user. Does not retry."""
        answer = self._web.try_get_json(self._path("/plan", {"limit": 0}))
        return _parse_plan(answer) if isinstance(answer, dict) and "incarnations" in answer else None

    def position_at(self, time_ms: int) -> int:
        """Return the position before the first kept event at or after a time."""
        _, answer = self._web.get_json(self._path("/plan", {"limit": 0, "at": time_ms}))
        return _parse_plan(answer).after

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yield the events of a span. A broken connection resumes after the last complete batch. Blocks."""
        position = span.after
        retry = Retry(self._bus, threading.Event())
        while position < span.through:
            try:
                for batch, reached in self._read_once(position, span.through):
                    position = reached
                    retry.succeeded()
                    if batch.num_rows:
                        yield batch
            except PlatformError as error:
                retry.failed(error, position)

    def close(self) -> None:
        """Close the connection."""
        self._web.close()

    def _read_once(self, after: int, through: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        asked = {"after": after, "through": through, "limit": MAX_ROWS}
        with self._web.open(self._path("", asked)) as body:
            try:
                reader = pa.ipc.open_stream(body)
                reached = after
                for found in reader.iter_batches_with_custom_metadata():
                    reached = int(found.custom_metadata[_THROUGH])
                    yield found.batch, reached
            except (pa.ArrowInvalid, EOFError) as error:
                raise ServerUnreachable(f"the export broke off: {error}") from error
            if reached <= after:
                raise ServerUnreachable(f"the export sends nothing after {after}")

    def _path(self, resource: str, asked: Mapping[str, int]) -> str:
        return f"{LOG}{resource}?{urlencode({'topic': self._bus.settings.topic, **asked})}"


def find_export(bus: Bus) -> str | None:
    """Return the URL of the server's export, or None to use the Pub/Sub API. Blocks."""
    configured = bus.settings.export
    if configured == OFF:
        return None
    url = configured or bus.session().instance_url
    if not url:
        return None
    with closing(LogExport(bus, url)) as export:
        if configured:
            export.plan(START, limit=0)  # raises, since the option names it
            return url
        return url if export.try_state() is not None else None


def _parse_plan(answer: Any) -> LogPlan:
    try:
        parts: list[tuple[Span, int]] = []
        after = int(answer["after"])
        for part in answer["parts"]:
            parts.append((Span(after, int(part["through"])), int(part["rows"])))
            after = parts[-1][0].through
        return LogPlan(
            int(answer["after"]),
            int(answer["through"]),
            int(answer["head"]),
            tuple(parts),
            tuple(Incarnation(each["id"], each["first"], each["last"]) for each in answer["incarnations"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RequestRefused("the server's plan of its log cannot be read") from error
