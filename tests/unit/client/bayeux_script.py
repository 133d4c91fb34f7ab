"""A scripted Bayeux server over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tidewire.client.login import Login

Message = dict[str, Any]


class DropConnection(Exception):
    """Raised by an answer to close the socket instead."""


class BayeuxScript:
    """Says yes to everything. `on_connect` makes the answer to the nth connect, counted from 1; from where it returns
    None, connects are held for good.
    """

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.tokens: list[str] = []
        self.cookies: list[str] = []
        self.logins = 0
        self.url = ""
        self.connects = 0
        self.handshakes = 0
        self.is_chunked = False
        self.refusals: dict[str, Message] = {}
        self.on_connect: Callable[[int], Awaitable[list[Message] | None]] = self._hold
        self._seen = asyncio.Condition()

    def sign_in(self) -> Login:
        """Another token for the same server at every call."""
        self.logins += 1
        return Login(f"token {self.logins}", self.url, "00D1")

    def sent(self, channel: str) -> list[Message]:
        """The requests of one kind so far."""
        return [message for message in self.requests if message["channel"] == channel]

    async def wait_sent(self, channel: str, count: int) -> None:
        """Wait until so many requests of a kind have come."""
        async with self._seen:
            await self._seen.wait_for(lambda: len(self.sent(channel)) >= count)

    async def _hold(self, number: int) -> list[Message] | None:
        return [reply()] if number == 1 else None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = dict(
                    line.decode().lower().split(": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
                )
                body = await reader.readexactly(int(headers["content-length"]))
                self.tokens.append(headers["authorization"])
                self.cookies.append(headers.get("cookie", ""))
                answer = [message for item in json.loads(body) for message in await self._answer(item)]
                writer.write(self._render(json.dumps(answer).encode()))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, DropConnection, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _render(self, body: bytes) -> bytes:
        head = b"HTTP/1.1 200 OK\r\nSet-Cookie: BAYEUX_BROWSER=b1; Path=/cometd/\r\n"
        if not self.is_chunked:
            return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        parts = [body[:5], body[5:]]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

    async def _answer(self, message: Message) -> list[Message]:
        self.requests.append(message)
        async with self._seen:
            self._seen.notify_all()
        match message["channel"]:
            case "/meta/handshake":
                self.handshakes += 1
                if "/meta/handshake" in self.refusals:
                    return [self.refusals["/meta/handshake"]]
                return [{"channel": "/meta/handshake", "successful": True, "clientId": f"c{self.handshakes}"}]
            case "/meta/connect":
                self.connects += 1
                answer = await self.on_connect(self.connects)
                if answer is None:
                    await asyncio.Event().wait()
                return answer or []
            case channel:
                named = str(message.get("subscription", ""))
                refused = self.refusals.get(named) if channel == "/meta/subscribe" else None
                return [refused or {"channel": channel, "subscription": named, "successful": True}]


def reply(**fields: Any) -> Message:
    """A connect's reply, successful unless told otherwise."""
    return {"channel": "/meta/connect", "successful": True, **fields}


def refusal(error: str, **fields: Any) -> Message:
    """An unsuccessful connect."""
    return reply(successful=False, error=error, **fields)


def event(replay_id: int, channel: str = "/topic/T") -> Message:
    """A notification."""
    data = {"event": {"replayId": replay_id, "type": "created"}, "sobject": {"Id": str(replay_id)}}
    return {"channel": channel, "data": data}


@asynccontextmanager
async def running_script() -> AsyncIterator[BayeuxScript]:
    """A script that listens."""
    script = BayeuxScript()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(script.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield script
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
