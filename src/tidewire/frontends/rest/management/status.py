"""Streaming status: who reads the log, how far behind they are, and what the log keeps."""

from __future__ import annotations

from dataclasses import asdict

from tidewire.delivery.open_streams import StreamingStatus
from tidewire.eventlog.log import FamilySize
from tidewire.events import Family
from tidewire.frontends.rest.calls import ApiCall, Route
from tidewire.frontends.rest.management.calls import Services, render_result
from tidewire.frontends.rest.wire import NO_STORE
from tidewire.telemetry import counters, render_labels
from tidewire.transport.http import HttpResponse

_MAX_SERIES = 1000  # the streams furthest behind: a monitoring system keeps every series it has ever seen
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def show_status(services: Services, call: ApiCall) -> HttpResponse:
    """Return streams, sessions, deliveries, log sizes and counters as JSON."""
    status = await services.streams.status(call.principal)
    body = {
        "head": status.head,
        "streams": [asdict(each.state) | {"lag": each.lag} for each in status.streams],
        "managed": [asdict(m) for m in status.managed],
        "sessions": dict(status.clients),
        "delivered": {family.name.lower(): status.delivered.get(family, 0) for family in Family},
        "log": [_render_size(status, size) for size in status.sizes],
        "usage": [asdict(each) for each in status.usage],
        "counts": dict(sorted(counters.items())) if services.is_first else {},
    }
    return render_result(call, body)


async def show_metrics(services: Services, call: ApiCall) -> HttpResponse:
    """Return lags and counters in Prometheus' text format."""
    status = await services.streams.status(call.principal)
    counts = dict(counters) if services.is_first else {}
    return HttpResponse(200, _render_metrics(status, counts).encode(), _TEXT, (NO_STORE,))


def _render_size(status: StreamingStatus, size: FamilySize) -> dict[str, object]:
    return {
        "family": size.family.name.lower(),
        "events": size.events,
        "payload_bytes": size.payload_bytes,
        "oldest_ms": size.oldest_ms,
        "is_counted": size.is_counted,
        "kept_hours": status.kept_hours[size.family],
    }


def _render_metrics(status: StreamingStatus, counts: dict[str, int]) -> str:
    lines = [
        "# TYPE tidewire_log_head gauge",
        f"tidewire_log_head {status.head}",
        "# TYPE tidewire_pubsub_stream_lag gauge",
    ]
    streams = [stream for stream in status.streams if stream.state.protocol == "pubsub"]
    for stream in sorted(streams, key=lambda each: -each.lag)[:_MAX_SERIES]:
        state = stream.state
        labels = {"client": state.client_id, "topic": state.topic, "username": state.username}
        lines.append(f"tidewire_pubsub_stream_lag{render_labels(labels)} {stream.lag}")
    lines.append("# TYPE tidewire_managed_subscription_lag gauge")
    for managed in status.managed:
        if managed.lag is not None:
            labels = {"name": managed.name, "topic": managed.topic}
            lines.append(f"tidewire_managed_subscription_lag{render_labels(labels)} {managed.lag}")
    if counts:
        lines.append("# TYPE tidewire_events_total counter")
        lines += [
            f"tidewire_events_total{render_labels({'event': k})} {v}" for k, v in sorted(counts.items())
        ]
    return "\n".join(lines) + "\n"


ROUTES: tuple[Route[Services], ...] = (
    Route(("status",), {"GET": show_status}),
    Route(("metrics",), {"GET": show_metrics}),
)
