"""Render responses as bytes; compress and decompress bodies. Pure."""

from __future__ import annotations

import zlib
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from tidewire.errors import BodyMalformed, BodyTooLarge, InternalError
from tidewire.transport.http import HttpRequest, HttpResponse

_SAFE = b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
JSON_HEADERS = b"Content-Type: application/json;charset=UTF-8\r\n" + _SAFE
HTML_HEADERS = b"Content-Type: text/html;charset=UTF-8\r\n" + _SAFE
TEXT_HEADERS = b"Content-Type: text/plain;charset=UTF-8\r\n" + _SAFE
CLOSE_LINE = b"Connection: close\r\n"
KEEP_LINE = b"Connection: keep-alive\r\n"

GZIP_WORTHWHILE_BYTES = 1400  # a smaller body fits one packet anyway
_COMPRESSIBLE = ("text/", "application/json", "application/xml", "application/javascript", "image/svg+xml")
_BODILESS = frozenset({204, 304})

STATUS_LINES: dict[int, bytes] = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def render_date_line(now_ms: int) -> bytes:
    """Render the Date header line of a time."""
    return _date_line(now_ms // 1000)


@lru_cache(maxsize=2)
def _date_line(now_s: int) -> bytes:
    return f"Date: {formatdate(now_s, usegmt=True)}\r\n".encode()


def render_response(
    status: int, body: bytes, headers: bytes, date_line: bytes, tail: bytes, is_head: bool
) -> bytes:
    """Render one whole response.

    `headers` and `tail` are ready lines; a HEAD gets the length without the body.
    """
    line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    if status in _BODILESS:
        return b"%b%b%b%b\r\n" % (line, date_line, headers, tail)
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    return b"".join((line, date_line, headers, tail, length, b"" if is_head else body))


def render_stream_head(
    status: int, headers: bytes, date_line: bytes, tail: bytes, *, is_chunked: bool
) -> bytes:
    """Render the head of a response of unknown length, which ends with its last chunk or with the connection."""
    line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    framing = b"Transfer-Encoding: chunked\r\n" if is_chunked else b""
    return b"".join((line, date_line, headers, tail, framing, b"\r\n"))


def render_chunk(piece: bytes) -> bytes:
    """Render a piece of a chunked body; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def render_header_lines(response: HttpResponse) -> bytes:
    """Render the header lines of a response. Raises InternalError if a value contains a line break."""
    pairs = [("Content-Type", response.content_type)] if response.content_type else []
    pairs.extend(response.headers)
    lines = "".join([f"{name}: {value}\r\n" for name, value in pairs])
    if lines.count("\r") != len(pairs) or lines.count("\n") != len(pairs) or "\0" in lines:
        names = ", ".join(name.strip()[:40] for name, _ in pairs)
        raise InternalError(f"one of the response headers {names!r} contains a control character")
    return lines.encode("latin-1", "replace")


def wants_gzip(request: HttpRequest, response: HttpResponse) -> bool:
    """Whether compressing this response is possible and worth it."""
    is_small = response.pieces is None and len(response.body) < GZIP_WORTHWHILE_BYTES
    if is_small or not response.content_type.startswith(_COMPRESSIBLE):
        return False
    if any(name.lower() == "content-encoding" for name, _ in response.headers):
        return False
    for offer in request.headers.get("accept-encoding", "").split(","):
        coding, _, weight = offer.partition(";")
        if coding.strip().lower() in ("gzip", "x-gzip"):
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def compress_body(body: bytes) -> bytes:
    """Gzip at the cheapest level: on a local network, time matters more than the last tenth of the size."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def decompress_body(body: bytes, limit_bytes: int) -> bytes:
    """Gunzip without ever holding more than the limit. Raises BodyTooLarge or BodyMalformed."""
    unpacker = zlib.decompressobj(31)
    try:
        plain = unpacker.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise BodyMalformed("the request body is not valid gzip") from error
    if len(plain) > limit_bytes:
        raise BodyTooLarge("the request body is too large when unpacked", limit_bytes=limit_bytes)
    if not unpacker.eof or unpacker.unused_data:
        raise BodyMalformed("the request body is not one whole gzip member")
    return plain
