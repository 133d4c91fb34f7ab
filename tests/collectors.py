"""An OpenTelemetry collector for tests: takes OTLP over HTTP in JSON, and keeps the spans."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Span = dict[str, Any]


class Collector:
    """`spans` are all that have come; `wait_for` waits for more."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: list[str] = []
        self._spans: list[Span] = []
        self._came = threading.Condition()

    def take(self, path: str, body: dict[str, Any]) -> None:
        with self._came:
            self.paths.append(path)
            for resource in body["resourceSpans"]:
                told = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}
                self._spans += [
                    span | {"resource": told} for s in resource["scopeSpans"] for span in s["spans"]
                ]
            self._came.notify_all()

    def wait_for(self, is_wanted: Callable[[Span], bool], timeout_s: float = 120.0) -> Span:
        """The first span of a kind, once it has come."""
        with self._came:
            found: list[Span] = []

            def look() -> bool:
                found[:] = [span for span in self._spans if is_wanted(span)]
                return bool(found)

            assert self._came.wait_for(look, timeout_s), [span["name"] for span in self._spans]
            return found[0]


@contextmanager
def running_collector() -> Iterator[Collector]:
    """A collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{listening.server_address[1]}")
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
