"""The blocking HTTP client: connection reuse, stale connections and broken responses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tidewire.client.http_blocking import BlockingHttp
from tidewire.errors import ConfigInvalid, ServerUnreachable


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("X-Told", self.headers.get("X-Asked", ""))
        length = 50 if self.path == "/short" else 10
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(b"0123456789")
        if self.path in ("/short", "/last"):
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Tests stay quiet."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    made.connections = 0  # type: ignore[attr-defined]
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def http(server: ThreadingHTTPServer) -> Iterator[BlockingHttp]:
    made = BlockingHttp(f"http://127.0.0.1:{server.server_address[1]}", timeout_s=120)
    yield made
    made.close()


def connections(server: ThreadingHTTPServer) -> int:
    count: int = server.connections  # type: ignore[attr-defined]
    return count


def test_answers_come_over_one_connection(server: ThreadingHTTPServer, http: BlockingHttp) -> None:
    for word in ("a", "b"):
        head, body = http.get("/", {"X-Asked": word})
        assert (head.status, head.headers["x-told"], body) == (200, word, b"0123456789")
    assert http.get("/none", {})[0].status == 404
    assert connections(server) == 1


def test_connection_closed_by_the_server_is_reopened(server: ThreadingHTTPServer, http: BlockingHttp) -> None:
    for _ in range(3):
        assert http.get("/last", {})[1] == b"0123456789"
    assert connections(server) == 3


def test_unread_body_is_not_taken_for_the_next_response(http: BlockingHttp) -> None:
    with http.open("/", {}) as (_, body):
        assert body.read(3) == b"012"
    assert http.get("/", {})[1] == b"0123456789"


def test_answer_that_breaks_off_is_worth_another_try(http: BlockingHttp) -> None:
    with pytest.raises(ServerUnreachable) as failure:
        http.get("/short", {})
    assert failure.value.retryable
    assert http.get("/", {})[1] == b"0123456789"


def test_unreachable_server_is_retryable() -> None:
    with pytest.raises(ServerUnreachable):
        BlockingHttp("http://127.0.0.1:1").get("/", {})


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", ""])
def test_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid):
        BlockingHttp(url)
