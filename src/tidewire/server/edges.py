"""The edges of a server: started, told to stop, and started again when one dies.

The core opens the listening sockets and keeps them, so that clients who dial while an edge is being replaced
wait instead of being refused. gRPC opens its own; the core only holds the two ports.
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

MAX_EDGES = 32  # one character of a Bayeux client id tells them apart
# Where an edge finds this very package, installed or not.
_PACKAGES = str(Path(__file__).resolve().parents[2])
_BACKLOG = 1024
_STOP_S = 15.0
_AGAIN_S = 0.2
_MOST_AGAIN_S = 5.0
_LOOK_EVERY_S = 1.0
_SILENCES = 10  # a loop that does not turn for so many looks will not turn again
_FIRST_SILENCES = 60  # an edge says nothing before it has started


class Edges:
    """All edges of one server. `start` returns when every one of them listens."""

    def __init__(self, settings: Settings, orgs: Orgs, answer_http: AsyncHandler) -> None:
        self._settings = settings
        self._orgs = orgs
        self._answer_http = answer_http
        self._feeds = Feeds()
        self._sessions: dict[int, EdgeSession] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._watcher: asyncio.Task[None] | None = None
        self._processes: dict[int, Process] = {}
        self._forwards: dict[tuple[int, int], int] = {}  # edge and number it came with -> edge it went to
        self._sockets: dict[str, socket.socket] = {}

    async def start(self) -> dict[str, tuple[str, int]]:
        """Open the ports and start every edge; returns the addresses by setting. Raises ConfigInvalid."""
        settings = self._settings
        if not 1 <= settings.edges <= MAX_EDGES:
            raise ConfigInvalid(f"edges must be from 0 to {MAX_EDGES}", setting="edges")
        for name in ("http", "https", *ADDRESSES):
            self._sockets[name] = _open_socket(getattr(settings, name), name, is_held=name in ADDRESSES)
        self._watcher = asyncio.create_task(self._watch())
        sessions = [await self._launch(index) for index in range(settings.edges)]
        for session in sessions:
            message, setting = await session.ready
            if message:
                raise ConfigInvalid(message, setting=setting)
        self._keepers = [asyncio.create_task(self._keep(index)) for index in range(settings.edges)]
        return {name: s.getsockname()[:2] for name, s in self._sockets.items()}

    def counted(self) -> list[Snapshot]:
        """What each edge that is up has counted, about a second ago."""
        return [s.counted for s in self._sessions.values() if s.ready.done() and not s.wire.is_lost]

    async def stop(self) -> None:
        """Have every edge answer what it holds and end; the core must serve them until then."""
        for task in (*self._keepers, self._watcher):
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
                "-P",  # whatever lies in the working directory is no part of it
                "-m",
                "tidewire.server.edge",
                str(theirs.fileno()),
                stdin=DEVNULL,
                stdout=DEVNULL,
                pass_fds=(theirs.fileno(), http, https),
                env={**os.environ, "PYTHONPATH": path},
            )
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

    async def _keep(self, index: int) -> None:
        """Replace an edge whenever it dies."""
        again_s = _AGAIN_S
        while True:
            await self._sessions[index].lost.wait()
            self._drop_forwards(index)
            process = self._processes[index]
            _kill(process)
            status = await process.wait()
            counters["server.edges_lost"] += 1
            log.error("server.edge_lost", extra={"edge": index, "status": status})
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, _MOST_AGAIN_S)
            try:
                session = await self._launch(index)
            except OSError:
                log.exception("server.edge_start_failed")
                continue
            message, _ = await session.ready
            if message:
                log.error("server.edge_refused", extra={"edge": index, "reason": message})
                _kill(self._processes[index])  # to be tried again
            else:
                again_s = _AGAIN_S

    async def _watch(self) -> None:
        """End an edge that hangs, so that it is replaced.

        Asked and not timed: while the core itself stands still, nobody is found silent.
        """
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            for index, session in self._sessions.items():
                most = _SILENCES if session.ready.done() else _FIRST_SILENCES
                if session.silences >= most and not session.wire.is_lost:
                    log.error("server.edge_hung", extra={"edge": index})
                    _kill(self._processes[index])
                session.silences += 1
                session.wire.send((kinds.ASK_ALIVE,))

    # Bayeux requests that reached another edge than their client's; see `Relay`

    def forward(self, origin: int, number: int, home: int, request: Message) -> None:
        """A request of an edge, for another."""
        session = self._sessions.get(home)
        # One that has just been started takes no requests yet.
        if session is None or session.wire.is_lost or not session.ready.done():
            self._answer(origin, number, UNAVAILABLE)
            return
        self._forwards[origin, number] = home
        session.wire.send((kinds.FORWARDED, origin, number, *request))

    def reply(self, origin: int, number: int, reply: Message) -> None:
        """The answer to one."""
        # One that nobody waits for must not reach the edge that has replaced whoever did.
        if self._forwards.pop((origin, number), None) is not None:
            self._answer(origin, number, reply)

    def _answer(self, origin: int, number: int, reply: Message) -> None:
        session = self._sessions.get(origin)
        if session is not None:
            session.wire.send((kinds.ANSWERED, number, *reply))

    def leave(self, origin: int, number: int) -> None:
        """Whoever sent one has gone."""
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


def _open_socket(address: str, setting: str, *, is_held: bool) -> socket.socket:
    """A listening socket, or for gRPC one that holds a port which the edges will share.

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
            if not is_held:
                made.listen(_BACKLOG)
                made.setblocking(False)
                return made
            # Bound alone first, so that two servers cannot share a port by mistake.
            where = made.getsockname()
        except BaseException:
            made.close()
            raise
        made.close()
        held = socket.socket(family, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Connections of a server that was here a minute ago do not count; who comes later must share, not take it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(where)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError as error:
        raise ConfigInvalid(
            f"{setting}: cannot listen on {address}: {error.strerror}", setting=setting
        ) from error
    return held


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
