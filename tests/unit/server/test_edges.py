"""Requests that pass from one edge to another, without processes: who gets which answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewire.clock import ManualClock
from tidewire.config import Settings
from tidewire.server import wire_link as kinds
from tidewire.server.edge_session import EdgeSession, Feeds
from tidewire.server.edges import Edges
from tidewire.server.orgs import Orgs
from tidewire.server.wire_link import Message, Wire
from tidewire.transport.http import HttpRequest, HttpResponse

REQUEST: Message = ("POST", "/cometd", {}, b"[]", "http", "")


async def _no_http(request: HttpRequest) -> HttpResponse:
    return HttpResponse(404)


class Edge:
    """The other end of an edge's wire."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[Message] = asyncio.Queue()
        self.wire = Wire(self._heard.put_nowait, lambda: None)

    async def hear(self) -> Message:
        async with asyncio.timeout(120):
            return await self._heard.get()


class Relayed:
    """The core's side, with edges that come and go as a test says."""

    def __init__(self, directory: Path) -> None:
        settings = Settings(data=str(directory / "data"), dev=True)
        self._orgs = Orgs(settings, ManualClock(), has_fronts=False)
        self._directory = directory
        self.edges = Edges(settings, self._orgs, _no_http)
        self.sessions = self.edges._sessions  # noqa: SLF001 - which only a process joins otherwise

    async def join(self, index: int) -> Edge:
        loop = asyncio.get_running_loop()
        edge, feeds = Edge(), Feeds()
        session = EdgeSession(index, self._orgs, _no_http, feeds, self.edges, self._directory)
        ours, theirs = socket.socketpair()
        await loop.create_unix_connection(lambda: edge.wire, sock=theirs)
        await loop.create_unix_connection(lambda: session.wire, sock=ours)
        edge.wire.send((kinds.READY,))
        await session.ready
        self.sessions[index] = session
        return edge

    def lose(self, index: int) -> None:
        self.sessions[index].wire.close()
        self.edges._drop_forwards(index)  # noqa: SLF001 - as whoever keeps the process does


@pytest.fixture
async def relayed(tmp_path: Path) -> AsyncIterator[Relayed]:
    core = Relayed(tmp_path)
    yield core
    for session in core.sessions.values():
        session.wire.close()
        await session.lost.wait()


async def test_answer_reaches_the_edge_that_asked(relayed: Relayed) -> None:
    asking, home = await relayed.join(0), await relayed.join(1)
    asking.wire.send((kinds.FORWARD, 1, 1, *REQUEST))
    assert await home.hear() == (kinds.FORWARDED, 0, 1, *REQUEST)
    home.wire.send((kinds.REPLY, 0, 1, 200, b"[1]", b""))
    assert await asking.hear() == (kinds.ANSWERED, 1, 200, b"[1]", b"")


async def test_late_answer_does_not_reach_the_edge_that_replaced_the_asking_one(relayed: Relayed) -> None:
    asking, home = await relayed.join(0), await relayed.join(1)
    asking.wire.send((kinds.FORWARD, 1, 1, *REQUEST))
    await home.hear()
    relayed.lose(0)
    replacing = await relayed.join(0)
    home.wire.send((kinds.REPLY, 0, 1, 200, b"[1]", b""))
    assert await home.hear() == (kinds.LEFT, 0, 1)
    # What comes back from home now was sent after that answer.
    replacing.wire.send((kinds.FORWARD, 2, 1, *REQUEST))
    await home.hear()
    home.wire.send((kinds.REPLY, 0, 2, 200, b"[2]", b""))
    assert await replacing.hear() == (kinds.ANSWERED, 2, 200, b"[2]", b"")


async def test_request_for_an_edge_that_is_down_is_rejected(relayed: Relayed) -> None:
    asking = await relayed.join(0)
    asking.wire.send((kinds.FORWARD, 1, 3, *REQUEST))
    assert (await asking.hear())[:3] == (kinds.ANSWERED, 1, 503)
