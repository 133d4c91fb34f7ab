"""The list of front ends: a front end that is added to it is served, and edges load no more than they need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from anyio.to_thread import run_sync

from tidewire.config import Settings
from tidewire.delivery.front_end import EdgeApp, EdgeContext, EdgeHttp, EdgeSide, FrontEnd
from tidewire.server import front_ends
from tidewire.server.front_ends import FRONT_ENDS, edge_sides, render_listener_error
from tidewire.server.run import Server
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import Exchange, ParkingHandler, Route

HERE = "127.0.0.1:0"
CORE_ONLY = (
    "gate",
    "records",
    "access.logins",
    "jobs.service",
    "frontends.rest.serve",
    "frontends.soap.serve",
)


class Streams:
    """A small front end as another protocol would be: own paths, own tokens, own form of errors."""

    def __init__(self) -> None:
        self.opened = 0
        self.ended = 0
        side = EdgeSide(
            self._open,
            EdgeHttp(
                self._make_routes, lambda request: request.query.get("token", ""), HttpResponse(503, b"{}")
            ),
        )
        self.front_end = FrontEnd(
            "streams", re.compile(r"/streams(?:/.*)?"), self._render_error, load_edge=lambda: side
        )

    def _open(self, context: EdgeContext) -> EdgeApp:
        self.opened += 1

        def park(request: HttpRequest, exchange: Exchange) -> None:
            exchange.respond_with(HttpResponse(200, json.dumps({"path": request.raw_path}).encode()))

        async def end_clients() -> None:
            self.ended += 1

        return EdgeApp(end_clients, park=park)

    def _make_routes(self, settings: Settings, park: ParkingHandler) -> Sequence[Route]:
        return [Route("/streams", park=park, body_limit_bytes=10)]

    def _render_error(self, request: HttpRequest, status: int, text: str) -> HttpResponse:
        return HttpResponse(status, json.dumps({"meta": {"code": status, "error_message": text}}).encode())


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    """The server's list with one more front end."""
    added = Streams()
    monkeypatch.setattr(front_ends, "FRONT_ENDS", (added.front_end, *FRONT_ENDS))
    edge_sides.cache_clear()
    yield added
    edge_sides.cache_clear()


async def test_front_end_in_the_list_is_opened_routed_and_ended(streams: Streams, tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path), dev=True, http=HERE, https=HERE, grpc=HERE, grpc_tls=HERE)
    server = Server(settings)
    try:
        await server.start()
        assert streams.opened == 1
        address = server.ready["http"] + "/streams/1"
        status, body = await run_sync(_post, address, b"")
        assert (status, body) == (200, {"path": "/streams/1"})
        status, body = await run_sync(_post, address, b"x" * 11)
        assert (status, body["meta"]["code"]) == (413, 413)
    finally:
        await server.close()
    assert streams.ended >= 1


def _post(address: str, body: bytes) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body), timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize(
    "path, content_type, start",
    [
        ("/services/data/v60.0/query", "application/json", b'[{"'),
        ("/services/Soap/u/60.0", "text/xml", b"<?xml"),
        ("/cometd/60.0", "text/plain", b"Too slow"),
        ("/", "text/plain", b"Too slow"),
        ("", "text/plain", b"Too slow"),
    ],
)
def test_listener_error_has_the_form_of_its_path(path: str, content_type: str, start: bytes) -> None:
    response = render_listener_error(HttpRequest("", path, {}), 408, "Too slow")
    assert response.status == 408
    assert response.content_type.startswith(content_type)
    assert response.body.startswith(start)


def test_edge_loads_no_module_of_the_core() -> None:
    program = (
        "import sys, tidewire.server.edge\n"
        "from tidewire.server.front_ends import edge_sides\n"
        "edge_sides()\n"
        "print(*(m for m in sys.modules if m.startswith('tidewire.')))\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "tidewire.frontends.bayeux.serve" in loaded.split()
    assert not [name for name in CORE_ONLY if f"tidewire.{name}" in loaded.split()]
