"""Bodies in pieces, both ways: responses that are streamed, and uploads that go to a file."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewire.clock import SystemClock
from tidewire.errors import BodyMalformed, BodyTooLarge
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.http_server import serve_http
from tidewire.transport.routes import Route, Router, UploadRule
from tidewire.transport.uploads import Upload

pytestmark = pytest.mark.anyio

PIECE = b"0123456789" * 10_000
LIMIT = 3_000_000


class Stage:
    """A listener whose handler streams what it is told to, and keeps what was uploaded."""

    def __init__(self) -> None:
        self.pieces = [b"one", b"", b"two"]
        self.fails_at_end = False
        self.sent = 0
        self.uploaded = b""
        self.admitted = 100

    async def admit(self, request: HttpRequest) -> HttpResponse:
        assert request.is_head_only
        return HttpResponse(self.admitted, b"" if self.admitted == 100 else b'"no"')

    async def handle(self, request: HttpRequest) -> HttpResponse:
        if request.upload is not None:
            self.uploaded = b"".join(request.upload.iter_blocks(LIMIT))
            return HttpResponse(201)
        return HttpResponse(200, b"", "text/csv", (), self._iter_pieces())

    async def _iter_pieces(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            self.sent += 1
            yield piece
        if self.fails_at_end:
            raise BodyMalformed("on purpose")


async def talk(stage: Stage, directory: Path, request: bytes, *, reads: bool = True) -> bytes:
    """All that comes back on one connection until the server closes it."""
    rule = UploadRule(re.compile("/up/[0-9]+"), directory, LIMIT, stage.admit)
    router = Router([Route("/", handle=stage.handle, uploads=rule)])
    listener = await serve_http(router, "127.0.0.1", 0, clock=SystemClock())
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(request)
        answer = await reader.read() if reads else await reader.read(10)
        writer.close()
        return answer
    except ConnectionResetError:
        return b""
    finally:
        await listener.close(0.1)


async def test_stream_is_chunked_and_the_connection_stays_open(tmp_path: Path) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await talk(Stage(), tmp_path, request)
    first, second = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"Transfer-Encoding: chunked\r\n" in first
    assert first.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert second.endswith(b"\r\n\r\nonetwo")


async def test_stream_to_an_old_client_ends_with_the_connection(tmp_path: Path) -> None:
    answer = await talk(Stage(), tmp_path, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"Connection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\nonetwo")


async def test_stream_is_packed_for_who_takes_it(tmp_path: Path) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    head, _, body = (await talk(Stage(), tmp_path, request)).partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert gzip.decompress(body) == b"onetwo"


async def test_head_of_a_stream_has_no_body(tmp_path: Path) -> None:
    stage = Stage()
    request = b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert (await talk(stage, tmp_path, request)).endswith(b"\r\n\r\n")
    assert stage.sent == 0


async def test_stream_that_fails_is_cut_without_its_end(tmp_path: Path) -> None:
    stage = Stage()
    stage.fails_at_end = True
    answer = await talk(stage, tmp_path, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert not answer.endswith(b"0\r\n\r\n")


async def test_stream_waits_for_a_peer_that_does_not_read(tmp_path: Path) -> None:
    stage = Stage()
    stage.pieces = [PIECE] * 1_000
    await talk(stage, tmp_path, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", reads=False)
    assert stage.sent < 500


@pytest.mark.parametrize("size", [0, 10, 2_500_000])
async def test_upload_arrives_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    stage = Stage()
    data = (b"0123456789" * 250_000)[:size]
    head = f"PUT /up/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
    answer = await talk(stage, tmp_path, head.encode() + data)
    assert answer.startswith(b"HTTP/1.1 201")
    assert stage.uploaded == data


async def test_upload_that_is_not_admitted_is_rejected_before_its_body_comes(tmp_path: Path) -> None:
    stage = Stage()
    stage.admitted = 401
    head = b"PUT /up/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n"
    for rest in (b"\r\n", b"Expect: 100-continue\r\n\r\n", b"\r\nthe first bytes"):
        answer = await talk(stage, tmp_path, head + rest)
        assert answer.startswith(b"HTTP/1.1 401")
        assert answer.endswith(b'\r\n\r\n"no"')
    assert stage.uploaded == b""


async def test_request_before_a_rejected_upload_is_answered_first(tmp_path: Path) -> None:
    stage = Stage()
    stage.admitted = 401
    get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    put = b"PUT /up/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n"
    answer = await talk(stage, tmp_path, get + put)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 401" in answer


async def test_admitted_upload_gets_100_continue(tmp_path: Path) -> None:
    stage = Stage()
    head = b"PUT /up/1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n"
    assert await talk(stage, tmp_path, head, reads=False) == b"HTTP/1.1 1"


async def test_upload_over_its_limit_is_rejected(tmp_path: Path) -> None:
    head = f"PUT /up/1 HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT + 1}\r\n\r\n"
    assert (await talk(Stage(), tmp_path, head.encode())).startswith(b"HTTP/1.1 413")


def test_packed_upload_is_unpacked_within_its_limit(tmp_path: Path) -> None:
    upload = Upload(tmp_path)
    upload.append(gzip.compress(PIECE * 20))
    upload.is_packed = True
    assert b"".join(upload.iter_blocks(len(PIECE) * 20)) == PIECE * 20
    with pytest.raises(BodyTooLarge):
        list(upload.iter_blocks(len(PIECE) * 20 - 1))
    upload.close()


@pytest.mark.parametrize("data", [gzip.compress(PIECE)[:-4], b"no gzip", gzip.compress(PIECE) + b"more"])
def test_upload_that_is_not_one_gzip_member_is_rejected(tmp_path: Path, data: bytes) -> None:
    upload = Upload(tmp_path)
    upload.append(data)
    upload.is_packed = True
    with pytest.raises(BodyMalformed):
        list(upload.iter_blocks(LIMIT))
    upload.close()
