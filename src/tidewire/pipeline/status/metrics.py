"""The status of a pipeline in the Prometheus text format, and a small HTTP listener for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tidewire.errors import ConfigInvalid
from tidewire.pipeline.status.lake_status import HEALTH, PipelineStatus
from tidewire.telemetry import counters, render_labels

_TIMEOUT_S = 10.0


def render_metrics(status: PipelineStatus, counts: Mapping[str, int]) -> str:
    """Return every number of a status, and the counters of this process."""
    lines: list[str] = []
    simple = {
        "archived_position": status.archived_through,
        "applied_position": status.applied_through,
        "archived_events": status.archived,
        "waiting_events": status.waiting,
        "lag_seconds": status.lag_ms / 1000,
        "open_transaction_seconds": status.open_transaction_ms / 1000,
        "dirty_records": status.dirty,
        "given_up_records": status.given_up,
        "resyncing_objects": len(status.resyncing),
        "failed_objects": len(status.failed),
        "unread_positions": status.unread,
        "status_time_seconds": status.at_ms / 1000,
    }
    for name, value in simple.items():
        if value is not None:
            lines += _render(name, [({}, value)])
    lines += _render("health", [({"state": word}, int(word == status.health)) for word in HEALTH])
    lines += _render(
        "dead_letters", [({"reason": word}, n) for word, n in sorted(status.dead_letters.items())]
    )
    for name in ("live", "deleted", "stale", "pending", "base_position"):
        rows = [({"entity": each.entity}, getattr(each, name)) for each in status.replicas]
        lines += _render(f"replica_{name}", rows)
    lines += _render("table_version", [({"table": name}, v) for name, v in status.table_versions.items()])
    own = [({"event": name}, n) for name, n in sorted(counts.items()) if name.startswith("pipeline.")]
    lines += _render("events_total", own, "counter")
    return "\n".join(lines) + "\n"


def _render(name: str, rows: Sequence[tuple[Mapping[str, str], float]], kind: str = "gauge") -> list[str]:
    if not rows:
        return []
    whole = f"tidewire_pipeline_{name}"
    return [f"# TYPE {whole} {kind}", *(f"{whole}{render_labels(labels)} {value}" for labels, value in rows)]


@contextmanager
def serve_metrics(address: str, status: Callable[[], PipelineStatus]) -> Iterator[str]:
    """Serve `GET /metrics` on HOST:PORT from a thread and yield the address. Raises ConfigInvalid.

    An empty address listens nowhere.
    """
    if not address:
        yield ""
        return
    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), _handler(status))
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigInvalid(
            f"cannot listen for metrics on {address!r}: {error}", setting="metrics"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="pipeline-metrics", daemon=True)
    thread.start()
    try:
        yield f"{server.server_address[0]!s}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(status: Callable[[], PipelineStatus]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers one request."""

        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            """Send the metrics, whatever the query string."""
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = render_metrics(status(), counters).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """No-op: a scrape every few seconds is not worth a log line."""

    return Handler
