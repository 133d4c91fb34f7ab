"""Edges that hang or die: what it costs their clients, and what it does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.edges import CHANGES, Client, edged, edges_of, record_ids, until, wait_ended
from tests.running import Rest
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


@contextmanager
def writing(server: ServerProcess) -> Iterator[Rest]:
    rest = Rest(server.http, server.login())
    yield rest
    rest.close()


def open_at(server: ServerProcess, home: int) -> Client:
    """A client that shook hands with one edge of several."""
    token = server.login()
    for _ in range(200):
        client = Client(server, token)
        client.open()
        if client.client_id.startswith(str(home)):
            return client
        client.ask(channel="/meta/disconnect")
    raise AssertionError(f"edge {home} got no handshake")


def test_edge_that_hangs_is_replaced_and_the_others_serve_meanwhile(tmp_path: Path) -> None:
    with edged(tmp_path / "data", 2, "--bayeux-hold-s", "5") as server:
        clients = [open_at(server, home) for home in (0, 1)]
        hung, healthy = edges_of(server)
        os.kill(hung, signal.SIGSTOP)
        with writing(server) as rest:
            meanwhile = rest.create("Account", {"Name": "Meanwhile"})
        assert record_ids(clients[1].next_events()) == [meanwhile]
        wait_ended(hung)
        until(lambda: len(edges_of(server)) == 2)
        assert healthy in edges_of(server)
        while True:
            try:
                clients[0].open(-2)
                break
            except (OSError, HTTPException, AssertionError):
                continue  # the one that replaces it is still starting
        assert meanwhile in record_ids(clients[0].next_events())
        server.stop(timeout_s=60)


def test_server_stops_although_an_edge_hangs(tmp_path: Path) -> None:
    with edged(tmp_path / "data", 2) as server:
        with writing(server) as rest:
            written = rest.create("Account", {"Name": "Kept"})
        hung, _ = edges_of(server)
        os.kill(hung, signal.SIGSTOP)
        server.stop(timeout_s=120)
        server.start()
        with writing(server) as rest:
            assert [r["Id"] for r in rest.query("SELECT Id FROM Account WHERE Name = 'Kept'")] == [written]


def test_clients_of_an_edge_that_dies_no_longer_count_against_the_allocation(tmp_path: Path) -> None:
    with edged(tmp_path / "data", 1, "--edition", "free") as server:
        token = server.login()

        def shake_hands() -> bool:
            (reply,) = Client(server, token).ask(
                channel="/meta/handshake", supportedConnectionTypes=["long-polling"]
            )
            return bool(reply["successful"])

        assert [shake_hands() for _ in range(21)] == [True] * 20 + [False]
        (edge,) = edges_of(server)
        os.kill(edge, signal.SIGKILL)
        until(lambda: edges_of(server) not in ([edge], []))
        assert shake_hands()


@pytest.mark.parametrize("is_own", [True, False])
def test_kept_session_goes_on_when_its_edge_dies(tmp_path: Path, is_own: bool) -> None:
    with edged(tmp_path / "data", 2, "--bayeux-durable-sessions", "--bayeux-hold-s", "5") as server:
        client = open_at(server, 0)
        edges = edges_of(server)
        os.kill(edges[0 if is_own else 1], signal.SIGKILL)
        until(lambda: len(edges_of(server)) == 2 and edges_of(server) != edges)
        with writing(server) as rest:
            written = [rest.create("Account", {"Name": f"Kept {number}"}) for number in range(3)]
        seen: list[str] = []
        while len(seen) < 3:
            try:
                seen += record_ids(client.next_events())
            except (OSError, HTTPException, AssertionError):
                continue  # 503 while the edge starts
        assert seen == written
        (reply,) = client.ask(channel="/meta/unsubscribe", subscription=CHANGES)
        assert reply["successful"], reply
