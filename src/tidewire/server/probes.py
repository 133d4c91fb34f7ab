"""The probes `/healthz` and `/readyz`, and `/metrics`, all without a login.

Metrics are sums over all open orgs and all processes of the server, by protocol and family. They name no
user, client, channel or record, so the set of labels is bounded and reveals nothing. With the setting
`metrics_token` they require that token. They are rendered at most once a second.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from tidewire import __version__
from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.delivery.open_streams import StreamingStatus
from tidewire.errors import PlatformError
from tidewire.events import Family
from tidewire.server.front_ends import CORE_NAMES, EDGE_NAMES, core_sides
from tidewire.server.orgs import Orgs
from tidewire.telemetry import BOUNDS_S, Histogram, Snapshot, counters, render_labels, take_snapshot
from tidewire.transport.http import HttpRequest, HttpResponse

PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_NO_STORE = ("Cache-Control", "no-store")
_RENDER_EVERY_S = 1.0
_BEARER = re.compile(r"(?:bearer|oauth) +(\S+) *", re.IGNORECASE)
_FAMILIES = {"/topic/": "push_topic", "/u/": "generic", "/event/": "platform", "/data/": "change"}
_HISTOGRAMS = {
    "tidewire_request_seconds": ("time to answer a request", CORE_NAMES, "request_answered"),
    "tidewire_delivery_seconds": (
        "time from the arrival of a commit at the process that serves clients until it is written to them",
        EDGE_NAMES,
        "commit_delivered",
    ),
}

Rows = Iterable[tuple[Mapping[str, str], float]]


class Probes:
    """Answers the probes.

    `edges` returns the counts of edge processes, `why_unready` why it cannot serve yet, or "".
    """

    def __init__(
        self,
        settings: Settings,
        orgs: Orgs,
        clock: Clock,
        edges: Callable[[], Iterable[Snapshot]],
        why_unready: Callable[[], str],
    ) -> None:
        self._token = settings.metrics_token
        self._edge_count = settings.edges
        self._orgs = orgs
        self._clock = clock
        self._edges = edges
        self._why_unready = why_unready
        self._rendering = asyncio.Lock()
        self._rendered = b""
        self._rendered_s = float("-inf")

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one of `PATHS`. Never raises."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, b"", headers=(("Allow", "GET, HEAD"),))
        if request.raw_path == "/metrics":
            return await self._answer_metrics(request)
        failure = self._failure()
        if request.raw_path == "/healthz":
            body: dict[str, object] = {
                "ok": not failure,
                "transactions": counters["storage.transactions_committed"],
            }
        else:
            failure = failure or self._why_unready()
            body = {"ok": not failure}
        if failure:
            body["reason"] = failure
        return HttpResponse(503 if failure else 200, json.dumps(body).encode(), headers=(_NO_STORE,))

    def _failure(self) -> str:
        """Return why the first org cannot write, or "". Additional orgs are reopened automatically."""
        org = self._orgs.try_open(self._orgs.first_id)
        if org is None:
            return "the first org is not open"
        return "" if org.core.writer.failure is None else "the store has failed; restart the server"

    async def _answer_metrics(self, request: HttpRequest) -> HttpResponse:
        if self._token:
            found = _BEARER.fullmatch(request.headers.get("authorization", ""))
            given = "" if found is None else found[1]
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                refusal = (("WWW-Authenticate", "Bearer"),)
                return HttpResponse(401, b"the metrics token is required\n", "text/plain", refusal)
        async with self._rendering:
            if self._clock.monotonic_s() - self._rendered_s >= _RENDER_EVERY_S:
                self._rendered = (await self._render()).encode()
                self._rendered_s = self._clock.monotonic_s()
        return HttpResponse(200, self._rendered, _TEXT, (_NO_STORE,))

    async def _render(self) -> str:
        out = Exposition()
        out.gauge("tidewire_info", "the running version", [({"version": __version__}, 1)])
        is_ready = not (self._failure() or self._why_unready())
        out.gauge("tidewire_ready", "1 while the server is ready", [({}, int(is_ready))])
        snapshots = [take_snapshot(), *self._edges()]
        out.gauge("tidewire_edges", "running edge processes", [({}, len(snapshots) - 1)])
        out.gauge("tidewire_edges_wanted", "configured edge processes", [({}, self._edge_count)])
        open_orgs = self._orgs.open_orgs
        out.gauge("tidewire_orgs_open", "open orgs", [({}, len(open_orgs))])
        queued = sum(org.core.writer.queued_count for org in open_orgs)
        out.gauge("tidewire_writer_queue", "transactions queued for the writer", [({}, queued)])
        statuses = []
        for org in open_orgs:
            try:
                statuses.append(await org.core.streams.read_status())
            except PlatformError:
                continue  # the org is being closed
        _render_streams(out, statuses)
        _render_log(out, statuses, self._clock.now_ms())
        self._render_gauges(out)
        _render_counts(out, snapshots)
        return out.text()

    def _render_gauges(self, out: Exposition) -> None:
        """Render what front ends add, for the first org: an edition's allocations are per org."""
        org = self._orgs.try_open(self._orgs.first_id)
        for side in core_sides().values():
            if org is not None and side.read_gauges is not None:
                for each in side.read_gauges(org.core):
                    out.gauge(each.name, each.help_text, each.rows)


def _render_streams(out: Exposition, statuses: list[StreamingStatus]) -> None:
    clients = [({"protocol": name}, sum(status.clients[name] for status in statuses)) for name in EDGE_NAMES]
    out.gauge("tidewire_sessions", "connected clients", clients)
    counts: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    most: Counter[tuple[str, str]] = Counter()
    for stream in (stream for status in statuses for stream in status.streams):
        key = (stream.state.protocol, _family_of(stream.state.topic))
        counts[key] += 1
        total[key] += stream.lag
        most[key] = max(most[key], stream.lag)
    for name, help_text, values in (
        ("tidewire_subscriptions", "open subscriptions; of Bayeux only the most lagging", counts),
        ("tidewire_subscription_lag_sum", "total lag of the subscriptions, in positions", total),
        ("tidewire_subscription_lag_max", "largest lag, in positions", most),
    ):
        rows = [({"protocol": p, "family": f}, values[p, f]) for p, f in sorted(counts)]
        out.gauge(name, help_text, rows)
    lags = [m.lag for status in statuses for m in status.managed if m.lag is not None]
    managed = sum(len(status.managed) for status in statuses)
    out.gauge("tidewire_managed_subscriptions", "managed subscriptions", [({}, managed)])
    out.gauge("tidewire_managed_lag_max", "largest lag, in positions", [({}, max(lags, default=0))])
    delivered = {f.name.lower(): sum(s.delivered.get(f, 0) for s in statuses) for f in Family}
    out.counter(
        "tidewire_events_delivered_total",
        "events delivered to clients since their org was opened",
        [({"family": name}, count) for name, count in delivered.items()],
    )


def _render_log(out: Exposition, statuses: list[StreamingStatus], now_ms: int) -> None:
    sizes = [size for status in statuses for size in status.sizes]
    events = {f: sum(size.events for size in sizes if size.family is f) for f in Family}
    payload = {f: sum(size.payload_bytes for size in sizes if size.family is f) for f in Family}
    oldest = {f: [s.oldest_ms for s in sizes if s.family is f and s.oldest_ms is not None] for f in Family}
    age_s = {f: max(0, now_ms - min(made)) / 1000 if made else 0 for f, made in oldest.items()}
    kept = {f: max((status.kept_hours[f] for status in statuses), default=0) for f in Family}
    for name, help_text, by_family in (
        ("tidewire_log_events", "events in the log", events),
        ("tidewire_log_payload_bytes", "size of their payloads", payload),
        ("tidewire_log_oldest_age_seconds", "age of the oldest event", age_s),
        ("tidewire_log_retention_hours", "retention; 0 is forever", kept),
    ):
        out.gauge(name, help_text, [({"family": f.name.lower()}, value) for f, value in by_family.items()])


def _render_counts(out: Exposition, snapshots: list[Snapshot]) -> None:
    total: Counter[str] = Counter()
    timings: defaultdict[str, Histogram] = defaultdict(Histogram)
    for counted, observed in snapshots:
        total.update(counted)
        for name, (buckets, total_s) in observed.items():
            timings[name].add(buckets, total_s)
    for name, (help_text, front_ends, verb) in _HISTOGRAMS.items():
        out.histogram(name, help_text, [({"frontend": f}, timings[f"{f}.{verb}"]) for f in front_ends])
    waits, commits = timings["storage.work_queued"], timings["storage.group_committed"]
    out.histogram("tidewire_writer_wait_seconds", "time that transactions wait for the writer", [({}, waits)])
    out.histogram("tidewire_writer_commit_seconds", "duration of a group commit", [({}, commits)])
    for key, count in sorted(total.items()):
        name = "tidewire_" + key.replace(".", "_") + "_total"
        out.counter(name, f"{key} since the process started", [({}, count)])


def _family_of(topic: str) -> str:
    return next((family for prefix, family in _FAMILIES.items() if topic.startswith(prefix)), "other")


class Exposition:
    """Metrics in Prometheus's text format 0.0.4; each has its help and type even without rows."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, help_text: str, rows: Rows) -> None:
        """Add a value that can rise and fall."""
        self._begin(name, help_text, "gauge")
        self._lines += [f"{name}{render_labels(labels)} {_number(value)}" for labels, value in rows]

    def counter(self, name: str, help_text: str, rows: Rows) -> None:
        """Add a value that only rises until the process restarts."""
        self._begin(name, help_text, "counter")
        self._lines += [f"{name}{render_labels(labels)} {_number(value)}" for labels, value in rows]

    def histogram(
        self, name: str, help_text: str, rows: Iterable[tuple[Mapping[str, str], Histogram]]
    ) -> None:
        """Add a histogram of durations."""
        self._begin(name, help_text, "histogram")
        for labels, seen in rows:
            below = list(accumulate(seen.buckets))
            bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
            self._lines += [
                f"{name}_bucket{render_labels({**labels, 'le': bound})} {count}"
                for bound, count in zip(bounds, below, strict=True)
            ]
            self._lines.append(f"{name}_sum{render_labels(labels)} {seen.total_s:.6f}")
            self._lines.append(f"{name}_count{render_labels(labels)} {below[-1]}")

    def text(self) -> str:
        """Return the whole text."""
        return "\n".join(self._lines) + "\n"

    def _begin(self, name: str, help_text: str, kind: str) -> None:
        self._lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"
