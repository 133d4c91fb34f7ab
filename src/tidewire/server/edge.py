"""An edge: a process that serves clients' connections. It stores nothing.

Started by `server.edges` with one end of a socket to the core, over which it learns everything else. It exits
when the core tells it to, and at once when the core is gone: clients reconnect to the next server and resume
by replay id.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from tidewire.clock import SystemClock
from tidewire.config import Settings, parse_address
from tidewire.delivery.front_end import Listener
from tidewire.errors import PlatformError
from tidewire.server import wire_link as kinds
from tidewire.server.edge_orgs import EdgeOrgs
from tidewire.server.forwarding import Forwarding, home_of
from tidewire.server.front_ends import ADDRESSES, make_router, open_listeners
from tidewire.server.process_tuning import freeze_startup_objects, return_large_blocks
from tidewire.server.wire_link import CoreWire, Message, Wire
from tidewire.telemetry import configure_logging, take_snapshot
from tidewire.tracing import configure_tracing, end_tracing
from tidewire.transport.http_server import HttpListener, serve_http
from tidewire.transport.tls import server_ssl_context, tls_files

log = logging.getLogger(__name__)

_DRAIN_S = 5.0


class Edge:
    """The state of one edge process."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._core = CoreWire()
        self._orgs: EdgeOrgs | None = None
        self._listeners: list[HttpListener | Listener] = []
        self._starting: asyncio.Task[None] | None = None
        self._handlers: dict[int, Callable[..., None]] = {
            **self._core.handlers,
            kinds.HELLO: self._take_hello,
            kinds.STOP: lambda: self._stop.set(),
            kinds.ASK_ALIVE: lambda: self._core.send(kinds.ALIVE, take_snapshot()),
        }
        self._stop = asyncio.Event()
        self._ended: asyncio.Event | None = None

    async def run(self, link: socket.socket) -> None:
        """Serve until the core sends STOP."""
        wire = self._core.wire = Wire(self._receive, self._lose_core)
        await asyncio.get_running_loop().create_unix_connection(lambda: wire, sock=link)
        await self._stop.wait()
        await self._close()
        # Closing flushes: the last counts and positions must still reach the core.
        ended = self._ended = asyncio.Event()
        wire.close()
        await ended.wait()

    def _lose_core(self) -> None:
        if self._ended is None:
            # The core is gone, and without it no client can be answered.
            os._exit(1)
        self._ended.set()

    def _receive(self, message: Message) -> None:
        self._handlers[message[0]](*message[1:])

    def _take_hello(self, settings: dict[str, Any], *rest: Any) -> None:
        self._starting = asyncio.create_task(self._start(Settings(**settings), *rest))

    async def _start(self, settings: Settings, *rest: Any) -> None:
        configure_logging(settings.log_level, form=settings.log_format)
        configure_tracing(os.environ, "edge")
        try:
            await self._listen(settings, *rest)
        except PlatformError as error:
            self._core.send(kinds.REFUSED, error.message, str(error.details.get("setting", "")))
            return
        freeze_startup_objects()
        self._core.send(kinds.READY)

    async def _listen(
        self,
        settings: Settings,
        index: int,
        first_id: str,
        listening: tuple[int, int],
        ports: dict[str, int],
    ) -> None:
        home = home_of(index, settings.edges)
        orgs = self._orgs = EdgeOrgs(self._core, settings, self._clock, first_id, home)
        forwarding = Forwarding(self._core, index, settings.edges, orgs.park)
        self._handlers |= orgs.handlers | forwarding.handlers
        await orgs.start()
        router = make_router(settings, self._core.call_http, forwarding.make_routes(settings))
        files = tls_files(Path(settings.data) / "tls")  # made by the core
        for fd, ssl in zip(listening, (None, server_ssl_context(files)), strict=True):
            self._listeners.append(
                await serve_http(router, sock=socket.socket(fileno=fd), clock=self._clock, ssl=ssl)
            )
        addresses = {
            setting: (parse_address(getattr(settings, setting), setting)[0], ports[setting])
            for setting in ADDRESSES
        }
        for listener in open_listeners(orgs.find_calls, settings, shares_ports=True):
            self._listeners.append(listener)
            await listener.start(addresses, files)

    async def _close(self) -> None:
        """Answer all held requests and finish those under way."""
        if self._orgs is not None:
            await self._orgs.end_clients()
        await asyncio.gather(*(listener.close(_DRAIN_S) for listener in self._listeners))
        if self._orgs is not None:
            await self._orgs.close()


def main() -> None:
    """Run an edge. The only argument is the file descriptor of its link to the core."""
    # A terminal or a service manager signals the whole process group; the core decides when edges stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    return_large_blocks()
    link = socket.socket(fileno=int(sys.argv[1]))
    uvloop.run(Edge().run(link))
    end_tracing()
    os._exit(0)


if __name__ == "__main__":
    main()
