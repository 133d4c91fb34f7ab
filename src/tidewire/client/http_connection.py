"""An asynchronous keep-alive HTTP/1.1 connection, for clients that post and wait long for the response.

Requests run one after the other. A connection that the server closed between two requests is reopened. A request that
fails on the way is not repeated, because only the caller knows whether that is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from tidewire.client.http_blocking import parse_server
from tidewire.errors import ConfigInvalid, ServerUnreachable

MAX_ANSWER_BYTES = 64 << 20
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response. `cookies` are those that it sets, by name."""

    status: int
    body: bytes
    cookies: Mapping[str, str]


class HttpConnection:
    """A connection to the host of `url`. `tls_ca` holds PEM roots to trust besides the system's."""

    def __init__(self, url: str, tls_ca: bytes | None = None, connect_timeout_s: float = 15.0) -> None:
        self._host, self._port, self._tls = parse_server(url, tls_ca)
        self._authority = urlsplit(url).netloc.rpartition("@")[2]
        self._connect_timeout_s = connect_timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> HttpAnswer:
        """Post and wait for the whole response. Raises ServerUnreachable if there is none in time."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {self._authority}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any(character in line for line in lines for character in "\r\n\0"):
            raise ConfigInvalid("a path or header of the request contains a line break")
        head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._exchange(head + body)
            except (OSError, EOFError, httptools.HttpParserError) as error:
                self.close()
                raise ServerUnreachable.at(self._authority, repr(error)) from error
            except BaseException:
                # Cancelled on the way: the rest of the response would be taken for the next one.
                self.close()
                raise

    def close(self) -> None:
        """Close the connection; the next request opens another. Idempotent."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, request: bytes) -> HttpAnswer:
        reader, writer = await self._open()
        writer.write(request)
        await writer.drain()
        parts = _ResponseParts()
        parser = httptools.HttpResponseParser(parts)
        while not parts.is_complete:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise EOFError("the server closed the connection")
            parser.feed_data(data)
        if not parser.should_keep_alive():
            self.close()
        return HttpAnswer(parser.get_status_code(), b"".join(parts.body), parts.cookies)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None:
            reader, writer = self._streams
            if not reader.at_eof() and not writer.is_closing():
                return self._streams
            self.close()
        async with asyncio.timeout(self._connect_timeout_s):
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        return self._streams


class _ResponseParts:
    """Collects one response from httptools' callbacks."""

    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.cookies: dict[str, str] = {}
        self.is_complete = False
        self._size_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"set-cookie":
            pair = value.split(b";", 1)[0].decode("latin-1")
            cookie, _, content = pair.partition("=")
            self.cookies[cookie.strip()] = content.strip()

    def on_body(self, data: bytes) -> None:
        self._size_bytes += len(data)
        if self._size_bytes > MAX_ANSWER_BYTES:
            raise httptools.HttpParserError("the answer is too large")
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = True
