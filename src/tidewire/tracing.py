"""OpenTelemetry traces of a change, from request to commit to delivery.

Off unless the environment names a collector: OTEL_EXPORTER_OTLP_ENDPOINT, or
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT with the whole URL. A thread sends the spans as OTLP/HTTP in JSON; a
collector that is slow or down costs spans, never a request. A caller's `traceparent` is continued. Names and
attributes contain no record values, tokens or query texts. docs/dependencies.md explains why this is not
OpenTelemetry's own SDK.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import secrets
import threading
import urllib.request
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import unquote

from tidewire.clock import SystemClock
from tidewire.telemetry import counters

log = logging.getLogger(__name__)

SERVER, INTERNAL, PRODUCER = 2, 1, 4
"""Span kinds, by their numbers in the protocol."""

_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MAX_QUEUED = 10_000
_MAX_SENT = 500
_EVERY_S = 1.0
_TIMEOUT_S = 5.0
_ERROR_STATUS = 2

Attributes = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Trace:
    """The identity of a span, which its children name as their parent."""

    trace_id: str
    span_id: str

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


@dataclass(frozen=True, slots=True)
class Span:
    """A span under way. Times are of the monotonic clock."""

    trace: Trace
    parent_id: str
    begun_s: float


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)
_exporter: Exporter | None = None


def configure_tracing(environment: Mapping[str, str], part: str = "core") -> None:
    """Start tracing if the environment asks for it. Called once in each process."""
    global _exporter  # one for the process, like logging; a call costs nothing while it is off
    address = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    if not address and environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        address = environment["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/") + "/v1/traces"
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_disabled or not address.startswith(("http://", "https://")):
        return
    headers = {}
    for pair in environment.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","):
        name, found, value = pair.partition("=")
        if found:
            headers[name.strip()] = unquote(value.strip())
    name = environment.get("OTEL_SERVICE_NAME") or "tidewire"
    _exporter = Exporter(address, headers, {"service.name": name, "tidewire.process": part})


def end_tracing() -> None:
    """Flush the remaining spans and stop. Blocks for some seconds at most."""
    global _exporter  # as above
    if _exporter is not None:
        _exporter.close()
        _exporter = None


def begin_request(traceparent: str) -> Span | None:
    """Start the span of a request, current for the rest of its task. None while tracing is off."""
    if _exporter is None:
        return None
    given = _PARENT.fullmatch(traceparent.strip().lower()) if traceparent else None
    if given is not None and given[3] == "00":
        return None  # the caller does not sample this trace
    trace_id = given[1] if given is not None else secrets.token_hex(16)
    trace = Trace(trace_id, secrets.token_hex(8))
    _current.set(trace)
    return Span(trace, given[2] if given is not None else "", _exporter.clock.monotonic_s())


def end_request(span: Span, name: str, attributes: Attributes, *, is_error: bool) -> None:
    """End the span of a request."""
    if _exporter is not None:
        _exporter.add(span.trace, span.parent_id, name, SERVER, span.begun_s, attributes, is_error=is_error)


def follow_trace(parent: str) -> None:
    """Make a span of another process, given as text, the current one of this task."""
    given = _PARENT.fullmatch(parent)
    if _exporter is not None and given is not None:
        _current.set(Trace(given[1], given[2]))


def current_trace() -> Trace | None:
    """Return the current span of this task."""
    return None if _exporter is None else _current.get()


def add_span(
    parent: Trace | str, name: str, kind: int, begun_s: float, attributes: Attributes
) -> Trace | None:
    """Record a span that began at `begun_s` and ends now; `parent` is text if it comes from another process."""
    exporter = _exporter
    if exporter is None:
        return None
    if isinstance(parent, str):
        given = _PARENT.fullmatch(parent)
        if given is None:
            return None
        parent = Trace(given[1], given[2])
    trace = Trace(parent.trace_id, secrets.token_hex(8))
    exporter.add(trace, parent.span_id, name, kind, begun_s, attributes)
    return trace


class Exporter:
    """Queues spans of any thread and sends them every second."""

    def __init__(self, address: str, headers: Mapping[str, str], resource: Attributes) -> None:
        self._address = address
        self._headers = {"Content-Type": "application/json", **headers}
        self._resource = {"attributes": _render_attributes(resource)}
        self._queue: queue.Queue[dict[str, object] | None] = queue.Queue(_MAX_QUEUED)
        self._has_failed = False
        self.clock = SystemClock()
        self._epoch_ns = self.clock.now_ms() * 1_000_000 - round(self.clock.monotonic_s() * 1e9)
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def add(
        self,
        trace: Trace,
        parent_id: str,
        name: str,
        kind: int,
        begun_s: float,
        attributes: Attributes,
        *,
        is_error: bool = False,
    ) -> None:
        """Queue a span that ends now. Never blocks: if the queue is full, the span is dropped and counted."""
        span = {
            "traceId": trace.trace_id,
            "spanId": trace.span_id,
            "parentSpanId": parent_id,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(self._epoch_ns + round(begun_s * 1e9)),
            "endTimeUnixNano": str(self._epoch_ns + round(self.clock.monotonic_s() * 1e9)),
            "attributes": _render_attributes(attributes),
            "status": {"code": _ERROR_STATUS} if is_error else {},
        }
        try:
            self._queue.put_nowait(span)
        except queue.Full:
            counters["tracing.spans_dropped"] += 1

    def close(self) -> None:
        """Flush the queue and stop the thread."""
        try:
            self._queue.put(None, timeout=_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(2 * _TIMEOUT_S)

    def _run(self) -> None:
        is_ending = False
        pause = threading.Event()
        while not is_ending:
            spans = [self._queue.get()]
            if spans[0] is not None:
                pause.wait(_EVERY_S if self._queue.empty() else 0)
            while len(spans) < _MAX_SENT and spans[-1] is not None:
                try:
                    spans.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            is_ending = spans[-1] is None
            kept = [span for span in spans if span is not None]
            if kept:
                self._send(kept)

    def _send(self, spans: list[dict[str, object]]) -> None:
        scope = {"scope": {"name": "tidewire"}, "spans": spans}
        body = {"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope]}]}
        request = urllib.request.Request(self._address, json.dumps(body).encode(), self._headers)  # noqa: S310  # checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
                pass
        except (OSError, ValueError) as error:
            counters["tracing.spans_dropped"] += len(spans)
            if not self._has_failed:  # only once: a collector that is down for a night would fill the log
                log.warning("tracing.export_failed", extra={"reason": str(error)[:200]})
            self._has_failed = True
        else:
            counters["tracing.spans_sent"] += len(spans)
            self._has_failed = False


def _render_attributes(attributes: Attributes) -> list[dict[str, object]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]
