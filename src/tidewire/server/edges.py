"""Supervise the edge processes: start them, restart those that die or hang, stop them.

Theory of operation. `start` opens the listening sockets in the core and passes the HTTP ones to every edge,
so a port stays open while an edge is replaced: clients that connect meanwhile wait in the backlog instead of
being rejected. gRPC opens its own sockets with SO_REUSEPORT; for those the core only reserves the ports. Each
edge gets one end of a socket pair, over which it learns everything else. One supervisor task per edge
restarts it, with back-off. One task pings all edges.

The core also relays requests between edges, see `forwarding`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tidewire.config import Settings, parse_address
from tidewire.errors import ConfigInvalid
from tidewire.server import wire_link as kinds
from tidewire.server.edge_session import EdgeSession, Feeds
from tidewire.server.forwarding import UNAVAILABLE
from tidewire.server.front_ends import ADDRESSES
from tidewire.server.orgs import Orgs
from tidewire.server.wire_link import Message
from tidewire.telemetry import Snapshot, counters
from tidewire.transport.routes import AsyncHandler

log = logging.getLogger(__name__)

MAX_EDGES = 32  # one character names an edge, see `forwarding`
# The directory of this copy of the package, so that edges run the same code, installed or not.
_PACKAGES = str(Path(__file__).resolve().parents[2])
_BACKLOG = 1024
_STOP_S = 15.0  # more than an edge takes to drain
_RESTART_DELAY_S = 0.2
_MAX_RESTART_DELAY_S = 5.0
_PING_EVERY_S = 1.0
_MAX_MISSED_PINGS = 10  # an edge whose loop is blocked for that long is stuck
_MAX_MISSED_AT_START = 60  # an edge answers no ping before it has started


class Edges:
    """All edges of one server. `start` returns once all of them are listening."""

    def __init__(self, settings: Settings, orgs: Orgs, answer_http: AsyncHandler) -> None:
        self._settings = settings
        self._orgs = orgs
        self._answer_http = answer_http
        self._feeds = Feeds()
        self._sessions: dict[int, EdgeSession] = {}
        self._supervisors: list[asyncio.Task[None]] = []
        self._pinger: asyncio.Task[None] | None = None
        self._processes: dict[int, Process] = {}
        # Forwarded requests under way: edge that asked and its number -> edge that answers.
        self._forwards: dict[tuple[int, int], int] = {}
        self._sockets: dict[str, socket.socket] = {}

    async def start(self) -> dict[str, tuple[str, int]]:
        """Open the ports and start all edges; returns the addresses by setting. Raises ConfigInvalid."""
        settings = self._settings
        if not 1 <= settings.edges <= MAX_EDGES:
            raise ConfigInvalid(f"edges must be from 0 to {MAX_EDGES}", setting="edges")
        for name in ("http", "https", *ADDRESSES):
            self._sockets[name] = _open_socket(getattr(settings, name), name, reserves=name in ADDRESSES)
        self._pinger = asyncio.create_task(
            self._ping_forever()
        )  # also finds an edge that hangs while it starts
        sessions = [await self._launch(index) for index in range(settings.edges)]
        for session in sessions:
            message, setting = await session.ready
            if message:  # at first start, a setting that an edge rejects is the operator's to fix
                raise ConfigInvalid(message, setting=setting)
        self._supervisors = [asyncio.create_task(self._supervise(index)) for index in range(settings.edges)]
        return {name: s.getsockname()[:2] for name, s in self._sockets.items()}

    def counted(self) -> list[Snapshot]:
        """Return the counts of each running edge, about a second old."""
        return [s.counted for s in self._sessions.values() if s.ready.done() and not s.wire.is_lost]

    async def stop(self) -> None:
        """Let every edge drain and exit.

        The core must serve them until then: they flush their last reports to it.
        """
        # First the supervisors, or they would restart what stops now.
        for task in (*self._supervisors, self._pinger):
            if task is not None:
                task.cancel()
        for listening in self._sockets.values():
            listening.close()
        for session in self._sessions.values():
            session.wire.send((kinds.STOP,))
        waits = [asyncio.create_task(process.wait()) for process in self._processes.values()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=_STOP_S)
            if late:
                log.warning("server.edges_cut", extra={"count": len(late)})
                for process in self._processes.values():
                    _kill(process)
                await asyncio.wait(late)
        for session in self._sessions.values():
            session.wire.close()

    async def _launch(self, index: int) -> EdgeSession:
        ours, theirs = socket.socketpair()
        directory = Path(self._settings.data)
        session = EdgeSession(index, self._orgs, self._answer_http, self._feeds, self, directory)
        http, https = self._sockets["http"].fileno(), self._sockets["https"].fileno()
        path = os.pathsep.join([_PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])])
        with theirs:
            process = self._processes[index] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # modules in the working directory must not shadow ours
                "-m",
                "tidewire.server.edge",
                str(theirs.fileno()),
                stdin=DEVNULL,
                stdout=DEVNULL,
                pass_fds=(theirs.fileno(), http, https),
                env={**os.environ, "PYTHONPATH": path},
            )
        # `theirs` is closed here now: the link ends when the edge's process does.
        await asyncio.get_running_loop().create_unix_connection(lambda: session.wire, sock=ours)
        ports = {name: self._sockets[name].getsockname()[1] for name in ADDRESSES}
        session.wire.send(
            (
                kinds.HELLO,
                asdict(self._settings),
                index,
                self._orgs.first_id,
                (http, https),
                ports,
            )
        )
        self._sessions[index] = session
        log.info("server.edge_started", extra={"edge": index, "pid": process.pid})
        return session

    async def _supervise(self, index: int) -> None:
        """Restart an edge whenever it dies."""
        delay_s = _RESTART_DELAY_S
        while True:
            await self._sessions[index].lost.wait()
            self._drop_forwards(index)
            process = self._processes[index]
            _kill(process)  # the link may be lost although the process lives
            status = await process.wait()
            counters["server.edges_lost"] += 1
            log.error("server.edge_lost", extra={"edge": index, "status": status})
            await asyncio.sleep(delay_s)  # back off: an edge that dies at once must not keep the core busy
            delay_s = min(2 * delay_s, _MAX_RESTART_DELAY_S)
            try:
                session = await self._launch(index)
            except OSError:
                log.exception("server.edge_start_failed")
                continue
            message, _ = await session.ready
            if message:
                log.error("server.edge_refused", extra={"edge": index, "reason": message})
                _kill(self._processes[index])  # the next turn of this loop tries again
            else:
                delay_s = _RESTART_DELAY_S  # it started well

    async def _ping_forever(self) -> None:
        """Kill an edge that hangs, so that it is restarted.

        Counts unanswered pings instead of time: while the core itself is blocked, no edge looks silent.
        """
        while True:
            await asyncio.sleep(_PING_EVERY_S)
            for index, session in self._sessions.items():
                most = _MAX_MISSED_PINGS if session.ready.done() else _MAX_MISSED_AT_START
                if session.silences >= most and not session.wire.is_lost:
                    log.error("server.edge_hung", extra={"edge": index})
                    _kill(self._processes[index])
                session.silences += 1
                session.wire.send((kinds.ASK_ALIVE,))

    # requests that reached another edge than the one with their client's session; see `edge_session.Relay`

    def forward(self, origin: int, number: int, home: int, request: Message) -> None:
        """Pass a request from one edge to another."""
        session = self._sessions.get(home)
        # A restarted edge takes no requests before it is ready.
        if session is None or session.wire.is_lost or not session.ready.done():
            self._answer(origin, number, UNAVAILABLE)
            return
        self._forwards[origin, number] = home
        session.wire.send((kinds.FORWARDED, origin, number, *request))

    def reply(self, origin: int, number: int, reply: Message) -> None:
        """Pass the response back."""
        # The edge that asked may have been restarted: its successor must not get a response to an old number.
        if self._forwards.pop((origin, number), None) is not None:
            self._answer(origin, number, reply)

    def _answer(self, origin: int, number: int, reply: Message) -> None:
        session = self._sessions.get(origin)
        if session is not None:
            session.wire.send((kinds.ANSWERED, number, *reply))

    def leave(self, origin: int, number: int) -> None:
        """Cancel a forwarded request whose client has gone."""
        home = self._forwards.pop((origin, number), None)
        session = None if home is None else self._sessions.get(home)
        if session is not None:
            session.wire.send((kinds.LEFT, origin, number))

    def _drop_forwards(self, index: int) -> None:
        for (origin, number), home in tuple(self._forwards.items()):
            if origin == index:
                self.leave(origin, number)
            elif home == index:
                self.reply(origin, number, UNAVAILABLE)


def _open_socket(address: str, setting: str, *, reserves: bool) -> socket.socket:
    """Open a listening socket, or one that only reserves a port for the edges to share.

    Raises ConfigInvalid.
    """
    host, port = parse_address(address, setting)
    try:
        family, _, _, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            if not reserves:
                made.listen(_BACKLOG)
                made.setblocking(False)
                return made
            # First bind without SO_REUSEPORT: it fails if another server has the port, even one that would
            # share it.
            where = made.getsockname()
        except BaseException:
            made.close()
            raise
        made.close()
        reserved = socket.socket(family, socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # SO_REUSEADDR ignores connections of a previous server in TIME_WAIT. It is switched off after the
        # bind, or another process could bind the reserved port with it.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(where)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError as error:
        raise ConfigInvalid(
            f"{setting}: cannot listen on {address}: {error.strerror}", setting=setting
        ) from error
    return reserved


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
