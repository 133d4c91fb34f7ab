"""`/services/tidewire/v1/status` and `/metrics`: who reads the log, how far they are, and what it keeps."""

from __future__ import annotations

from dataclasses import asdict

from tidewire.delivery.open_streams import OpenStreams, StreamingStatus
from tidewire.errors import MethodNotAllowed, ResourceUnknown
from tidewire.eventlog.log import FamilySize
from tidewire.events import Family
from tidewire.frontends.rest.wire import NO_STORE, render_json
from tidewire.gate.requests import Call
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest, HttpResponse

_MAX_SERIES = 1000  # those furthest behind: a monitoring system keeps each name that it has ever seen
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class StreamsApi:
    """Answers the two resources. What the process counts is of all orgs together, and told in the first one only."""

    def __init__(self, streams: OpenStreams, *, is_first: bool) -> None:
        self._streams = streams
        self._is_first = is_first

    async def answer(self, request: HttpRequest, segments: tuple[str, ...], call: Call) -> HttpResponse:
        """Answer what follows `/services/tidewire/v1/`."""
        if segments not in (("status",), ("metrics",)):
            raise ResourceUnknown("The requested resource does not exist")
        if request.method != "GET":
            raise MethodNotAllowed(f"HTTP Method '{request.method[:16]}' not allowed", allowed=("GET",))
        status = await self._streams.status(call.principal)
        if segments == ("metrics",):
            counts = dict(counters) if self._is_first else {}
            return HttpResponse(200, _render_metrics(status, counts).encode(), _TEXT, (NO_STORE,))
        streams = [asdict(each.state) | {"lag": each.lag} for each in status.streams]
        body = {
            "head": status.head,
            "streams": streams,
            "managed": [asdict(m) for m in status.managed],
            "sessions": {"bayeux": status.bayeux_sessions, "pubsub": status.pubsub_streams},
            "delivered": {family.name.lower(): status.delivered.get(family, 0) for family in Family},
            "log": [_render_size(status, size) for size in status.sizes],
            "usage": [asdict(each) for each in status.usage],
            "counts": dict(sorted(counters.items())) if self._is_first else {},
        }
        return render_json(request, 200, body, (NO_STORE,))


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
    """In the text form that Prometheus reads. `counts` are those of the process that answers."""
    lines = [
        "# TYPE tidewire_log_head gauge",
        f"tidewire_log_head {status.head}",
        "# TYPE tidewire_pubsub_stream_lag gauge",
    ]
    streams = [stream for stream in status.streams if stream.state.protocol == "pubsub"]
    for stream in sorted(streams, key=lambda each: -each.lag)[:_MAX_SERIES]:
        state = stream.state
        labels = {"client": state.client_id, "topic": state.topic, "username": state.username}
        lines.append(f"tidewire_pubsub_stream_lag{_labels(labels)} {stream.lag}")
    lines.append("# TYPE tidewire_managed_subscription_lag gauge")
    for managed in status.managed:
        if managed.lag is not None:
            labels = {"name": managed.name, "topic": managed.topic}
            lines.append(f"tidewire_managed_subscription_lag{_labels(labels)} {managed.lag}")
    if counts:
        lines.append("# TYPE tidewire_events_total counter")
        lines += [f"tidewire_events_total{_labels({'event': k})} {v}" for k, v in sorted(counts.items())]
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
