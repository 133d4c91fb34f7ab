"""The peer of the path bench: a bare asyncio server that does nothing but hand on what it is given.

    python bare_server.py TEMPLATE

Any PATCH is answered with 204 and handed to every parked POST as a copy of TEMPLATE with the stamp of the
PATCH in it; a POST waits until there is something that its connection has not had. No disk, no users, no
records: what remains is the cost of HTTP on one asyncio loop (uvloop, httptools), the floor for any server
built on it. Prints its port.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import cast

import httptools
import uvloop

STAMP = re.compile(rb"@\d{16}@")
_KEPT = 20_000


class Board:
    """What was handed in, and who waits for more."""

    def __init__(self, template: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self.before, self.after = STAMP.split(template, maxsplit=1)
        self.events: list[bytes] = []
        self.dropped = 0
        self.parked: set[Connection] = set()
        self._loop = loop
        self._is_waking = False

    def add(self, stamp: bytes) -> None:
        """Hand in one event; those parked are answered once in this turn of the loop."""
        self.events.append(self.before + stamp + self.after)
        if len(self.events) > _KEPT:
            del self.events[: _KEPT // 2]
            self.dropped += _KEPT // 2
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        parked, self.parked = self.parked, set()
        for connection in parked:
            connection.answer_poll()


class Connection(asyncio.Protocol):
    """One client. A poll is answered with everything since its last answer."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._position = board.dropped + len(board.events)
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._board.parked.discard(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._body += body

    def on_message_complete(self) -> None:
        """Called by the parser."""
        assert self._transport is not None
        body, self._body = self._body, b""
        if self._parser.get_method() == b"PATCH":
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            found = STAMP.search(body)
            if found is not None:
                self._board.add(found.group())
        elif self._position < self._board.dropped + len(self._board.events):
            self.answer_poll()
        else:
            self._board.parked.add(self)

    def answer_poll(self) -> None:
        """Send what is new."""
        assert self._transport is not None
        board = self._board
        events = board.events[max(self._position - board.dropped, 0) :]
        self._position = board.dropped + len(board.events)
        body = b"[" + b",".join(events) + b"]"
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json;charset=UTF-8\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )


async def serve(template: bytes) -> None:
    """Listen on a free port until killed."""
    loop = asyncio.get_running_loop()
    board = Board(template, loop)
    server = await loop.create_server(lambda: Connection(board), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]).read_bytes()))
