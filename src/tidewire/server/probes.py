"""What those who watch over a server ask without signing in: `/healthz`, `/readyz` and `/metrics`.

Metrics are sums over all open orgs and all processes of the server, by protocol and family: no user, client,
channel or record is named, so the set of labels is bounded and holds nothing that a stranger should not see.
With the setting `metrics_token` only its bearer is answered. They are made at most once a second, however
many ask.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from tidewire import __version__
from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.delivery.open_streams import StreamingStatus
from tidewire.errors import PlatformError
from tidewire.events import Family
from tidewire.server.exposition import Exposition
from tidewire.server.front_ends import CORE_NAMES, EDGE_NAMES, core_sides
from tidewire.server.orgs import Orgs
from tidewire.telemetry import Histogram, Snapshot, counters, take_snapshot
from tidewire.transport.http import HttpRequest, HttpResponse

PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_NO_STORE = ("Cache-Control", "no-store")
_MADE_EVERY_S = 1.0
_BEARER = re.compile(r"(?:bearer|oauth) +(\S+) *", re.IGNORECASE)
_FAMILIES = {"/topic/": "push_topic", "/u/": "generic", "/event/": "platform", "/data/": "change"}
_HISTOGRAMS = {
    "tidewire_request_seconds": ("time to answer a request", CORE_NAMES, "request_answered"),
    "tidewire_delivery_seconds": (
        "time from a commit's arrival where clients are served to its bytes being written",
        EDGE_NAMES,
        "commit_delivered",
    ),
}


class Probes:
    """`edges` gives what each edge process has counted, `why_unready` what stands in the way of serving."""

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
        self._making = asyncio.Lock()
        self._made = b""
        self._made_s = float("-inf")

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
        """Why the first org takes no writes, if so; the others are opened again by themselves."""
        for org in self._orgs.open_orgs:
            if org.org_id == self._orgs.first_id:
                return "" if org.core.failure is None else "the store has failed"
        return "the org is not open"

    async def _answer_metrics(self, request: HttpRequest) -> HttpResponse:
        if self._token:
            found = _BEARER.fullmatch(request.headers.get("authorization", ""))
            given = "" if found is None else found[1]
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                refusal = (("WWW-Authenticate", "Bearer"),)
                return HttpResponse(401, b"the metrics token is needed\n", "text/plain", refusal)
        async with self._making:
            if self._clock.monotonic_s() - self._made_s >= _MADE_EVERY_S:
                self._made = (await self._render()).encode()
                self._made_s = self._clock.monotonic_s()
        return HttpResponse(200, self._made, _TEXT, (_NO_STORE,))

    async def _render(self) -> str:
        out = Exposition()
        out.gauge("tidewire_info", "the version that runs", [({"version": __version__}, 1)])
        is_ready = not (self._failure() or self._why_unready())
        out.gauge("tidewire_ready", "1 while requests are served", [({}, int(is_ready))])
        snapshots = [take_snapshot(), *self._edges()]
        out.gauge("tidewire_edges", "edge processes that are up", [({}, len(snapshots) - 1)])
        out.gauge("tidewire_edges_wanted", "edge processes that there should be", [({}, self._edge_count)])
        open_orgs = self._orgs.open_orgs
        out.gauge("tidewire_orgs_open", "orgs that are open", [({}, len(open_orgs))])
        queued = sum(org.core.writer.waiting_count for org in open_orgs)
        out.gauge("tidewire_writer_queue", "pieces of work that wait for their commit", [({}, queued)])
        statuses = []
        for org in open_orgs:
            try:
                statuses.append(await org.core.streams.read_status())
            except PlatformError:
                continue  # it is being closed
        _render_streams(out, statuses)
        _render_log(out, statuses, self._clock.now_ms())
        self._render_gauges(out)
        _render_counts(out, snapshots)
        return out.text()

    def _render_gauges(self, out: Exposition) -> None:
        """Render what front ends add, for the first org: an edition's allocations are per org."""
        for org in self._orgs.open_orgs:
            if org.org_id == self._orgs.first_id:
                for side in core_sides().values():
                    for each in side.read_gauges(org.core) if side.read_gauges is not None else ():
                        out.gauge(each.name, each.help_text, each.rows)


def _render_streams(out: Exposition, statuses: list[StreamingStatus]) -> None:
    sessions = {
        "bayeux": sum(status.bayeux_sessions for status in statuses),
        "pubsub": sum(status.pubsub_streams for status in statuses),
    }
    out.gauge(
        "tidewire_sessions", "clients that are connected", [({"protocol": k}, v) for k, v in sessions.items()]
    )
    counts: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    most: Counter[tuple[str, str]] = Counter()
    for stream in (stream for status in statuses for stream in status.streams):
        key = (stream.state.protocol, _family_of(stream.state.topic))
        counts[key] += 1
        total[key] += stream.lag
        most[key] = max(most[key], stream.lag)
    for name, help_text, values in (
        ("tidewire_subscriptions", "open subscriptions; of Bayeux those that are furthest behind", counts),
        ("tidewire_subscription_lag_sum", "positions that they are behind, together", total),
        ("tidewire_subscription_lag_max", "positions that the last of them is behind", most),
    ):
        rows = [({"protocol": p, "family": f}, values[p, f]) for p, f in sorted(counts)]
        out.gauge(name, help_text, rows)
    lags = [m.lag for status in statuses for m in status.managed if m.lag is not None]
    managed = sum(len(status.managed) for status in statuses)
    out.gauge("tidewire_managed_subscriptions", "managed subscriptions", [({}, managed)])
    out.gauge(
        "tidewire_managed_lag_max", "positions that the last of them is behind", [({}, max(lags, default=0))]
    )
    delivered = {f.name.lower(): sum(s.delivered.get(f, 0) for s in statuses) for f in Family}
    out.counter(
        "tidewire_events_delivered_total",
        "events that reached clients, since their org was opened",
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
        ("tidewire_log_events", "events that the log keeps", events),
        ("tidewire_log_payload_bytes", "bytes of their payloads", payload),
        ("tidewire_log_oldest_age_seconds", "age of the oldest one", age_s),
        ("tidewire_log_retention_hours", "how long they are kept; 0 is for ever", kept),
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
    out.histogram("tidewire_writer_wait_seconds", "time that work waits for the writer", [({}, waits)])
    out.histogram("tidewire_writer_commit_seconds", "time that a group's commit takes", [({}, commits)])
    for key, count in sorted(total.items()):
        name = "tidewire_" + key.replace(".", "_") + "_total"
        out.counter(name, f"{key} since the process was started", [({}, count)])


def _family_of(topic: str) -> str:
    return next((family for prefix, family in _FAMILIES.items() if topic.startswith(prefix)), "other")
