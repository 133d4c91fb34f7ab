"""Bytes to requests, without I/O: framing, limits and refusals of HTTP/1.1.

A long poller sends the same head again and again, with a body of the same length. The reader keeps the last
head as raw bytes; when a read is exactly that head and such a body, the parser, which waits at the start of a
request, is passed by and the parsed head is used again. Equal bytes parse alike, so this changes the cost
only. While such a poller waits for its answer there is no parser: it would be most of what an idle connection
costs.

The connection feeds what it reads; complete requests come out in `ready`, in order. Once `refusal` is set the
input makes no more sense (the next byte could belong to anything) and nothing further may be fed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from sys import intern
from typing import NoReturn

import httptools

from tidewire.errors import BodyMalformed, BodyTooLarge
from tidewire.transport.http import HEAD_ONLY, HttpRequest
from tidewire.transport.responses import CLOSE_LINE, KEEP_LINE, decompress_body
from tidewire.transport.routes import AsyncHandler, Route, Router, UploadRule
from tidewire.transport.uploads import Upload

log = logging.getLogger(__name__)

_READY_LIMIT = 256  # one read can hold many tiny requests; a peer that sends more of them gets no further
_CHUNK_OVERHEAD_BYTES = 64 * 1024
_KEPT_HEAD_BYTES = 2048
# Heads with one of these have more to them than their bytes and the length of the body.
_NEVER_KEPT = frozenset({"transfer-encoding", "expect", "content-encoding", "upgrade"})
_ONE_LINE_ONLY = frozenset({"host", "content-length", "transfer-encoding", "authorization", "content-type"})

# Values of these are alike for many clients, of which each keeps its last head. No secret is among them:
# what is interned may stay for as long as the process.
_ALIKE = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "connection",
        "content-length",
        "content-type",
        "host",
        "origin",
        "user-agent",
    }
)
_ALIKE_BYTES = 100

_COMMON_NAMES = (
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "origin",
    "transfer-encoding",
    "upgrade",
    "user-agent",
)
# Spellings that clients really send, so that most names cost one lookup instead of a decode and a fold.
_NAMES: dict[bytes, str] = {
    spelling.encode(): name for name in _COMMON_NAMES for spelling in (name, name.title())
}


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds that protect the listener from its peers.

    A request's head must be complete `head_timeout_s` after its first byte (or after the connection was
    opened); its body may then take `body_timeout_s` plus a second for each `body_rate_bytes` received. An
    idle connection is closed after `idle_timeout_s`; one whose peer stops reading, after `write_timeout_s`; a
    refused one, `linger_s` after the refusal. Times are as coarse as `sweep_s`.
    """

    head_bytes: int = 32 * 1024
    target_bytes: int = 16 * 1024
    head_timeout_s: float = 10.0
    body_timeout_s: float = 10.0
    body_rate_bytes: int = 16 * 1024
    idle_timeout_s: float = 120.0
    write_timeout_s: float = 30.0
    linger_s: float = 2.0
    sweep_s: float = 1.0


class _Refused(Exception):
    """Stops the parser; never leaves this module. The cause stands in `RequestReader.refusal`."""


class RequestReader:
    """The reading half of one connection."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_completed",
        "_feed_bytes",
        "_has_body",
        "_head_bytes",
        "_headers",
        "_is_resumed",
        "_is_small",
        "_kept_body_bytes",
        "_kept_head",
        "_kept_request",
        "_limits",
        "_method",
        "_parser",
        "_peer",
        "_raw_bytes",
        "_route",
        "_router",
        "_scheme",
        "_tail",
        "_target",
        "_upload",
        "_upload_rule",
        "awaits",
        "begun_s",
        "has_head",
        "is_last",
        "is_reading",
        "now_s",
        "owes_continue",
        "ready",
        "refusal",
    )

    def __init__(self, router: Router, limits: HttpLimits, scheme: str, peer: str) -> None:
        # per connection
        self._router = router
        self._limits = limits
        self._scheme = scheme
        self._peer = peer
        self._parser: httptools.HttpRequestParser | None = None
        self._feed_bytes = 0
        self._is_small = (
            False  # all of this read is below the limit for heads, so nothing in it needs counting
        )
        self._completed = 0  # requests that this read completed
        self._kept_head = b""
        self._kept_request: HttpRequest | None = None
        self._kept_body_bytes = 0
        self.ready: list[tuple[Route, HttpRequest, bytes]] = []
        self.refusal: tuple[int, str] | None = None
        self.is_last = False  # the peer announced that it sends no further request
        self.now_s = 0.0
        # per request being read
        self.is_reading = False
        self.has_head = False
        self.owes_continue = False
        self.awaits: tuple[AsyncHandler, HttpRequest] | None = None  # whoever admits an upload, and its head
        self.begun_s = 0.0
        self._is_resumed = False  # its head was read by an earlier parser
        self._has_body = False
        self._method = ""
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._raw_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._route: Route | None = None
        self._upload: Upload | None = None
        self._upload_rule: UploadRule | None = None
        self._tail = b""

    def feed(self, data: bytes, now_s: float) -> None:
        """Parse what came. Never raises: what cannot be understood becomes `refusal`."""
        size_bytes = len(data)
        kept = self._kept_request
        if kept is not None and not self.is_reading:
            head_bytes = size_bytes - self._kept_body_bytes
            if head_bytes == len(self._kept_head) and data.startswith(self._kept_head):
                self._repeat(kept, data[head_bytes:])
                return
        self.now_s = now_s
        starts_afresh = not self.is_reading
        self._is_small = self._raw_bytes + size_bytes <= self._limits.head_bytes
        self._feed(data)
        if self.is_reading:
            if self.refusal is None:
                self._raw_bytes += size_bytes
                self._bound_framing()
        elif starts_afresh:
            self._keep_head(data)

    def deadline_s(self) -> float:
        """When the request being read is too late."""
        limits = self._limits
        deadline_s = self.begun_s + limits.head_timeout_s
        if self.has_head:
            deadline_s += limits.body_timeout_s + self._body_bytes / limits.body_rate_bytes
        return deadline_s

    def refused_request(self) -> HttpRequest:
        """What is known of the request that `refusal` is about."""
        target = self._target.decode("latin-1") if self.is_reading or self._completed else ""
        method = self._method if self.has_head else ""
        return HttpRequest(method, target, self._headers, b"", self._scheme, self._peer)

    def is_head_request(self) -> bool:
        """Whether the request being read, if its head is known, is a HEAD."""
        return self.has_head and self._method == "HEAD"

    # called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_resumed:
            return
        self.is_reading = True
        self.has_head = False
        self.begun_s = self.now_s
        self._kept_head = b""
        self._kept_request = None
        self._has_body = False
        self._target = b""
        self._headers = {}
        self._head_bytes = 0
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        if self._is_resumed:
            return
        self._target += url
        if len(self._target) > self._limits.target_bytes:
            self._refuse(414, "URI Too Long")
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line, or a trailer line, which nobody reads."""
        if self.has_head:
            return
        if not self._is_small:
            self._count_head(len(name) + len(value) + 4)
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if key in _ALIKE and len(value) <= _ALIKE_BYTES:
            text = intern(text)
        headers = self._headers
        if key in headers:
            if key in _ONE_LINE_ONLY:
                self._refuse(400, f"Repeated header {key}")
            headers[key] = f"{headers[key]}{'; ' if key == 'cookie' else ', '}{text}"
        else:
            headers[key] = text

    def on_headers_complete(self) -> None:
        """The head is complete: decide whether the body may come."""
        if self._is_resumed:
            return
        self.has_head = True
        parser = self._parsing()
        version = parser.get_http_version()
        if version != "1.1" and version != "1.0":
            self._refuse(505, "HTTP version not supported")
        if version == "1.1" and "host" not in self._headers:
            self._refuse(400, "Missing Host header")
        self._method = parser.get_method().decode("ascii")
        if self._method == "CONNECT":
            self._refuse(405, "Method not allowed")
        if not parser.should_keep_alive():
            self._tail = CLOSE_LINE
        else:
            self._tail = b"" if version == "1.1" else KEEP_LINE
        path = self._normalise_target()
        self._route = route = self._router.find(path)
        self._upload_rule = rule = route.try_upload(self._method, path)
        self._upload = None if rule is None else Upload(rule.directory)
        self._has_body = self._expects_body(route, version)
        expectation = self._headers.get("expect")
        if expectation is not None and version == "1.1":
            if expectation.lower() != "100-continue":
                self._refuse(417, "Expectation failed")
            self.owes_continue = self._has_body
        if rule is not None and rule.admit is not None and self._has_body:
            target = self._target.decode("ascii")
            headers = {**self._headers, HEAD_ONLY: ""}
            head = HttpRequest(self._method, target, headers, b"", self._scheme, self._peer)
            self.awaits = (rule.admit, head)

    def on_body(self, body: bytes) -> None:
        """A piece of the body, without its chunk framing."""
        self.owes_continue = False
        self._body_bytes += len(body)
        route = self._route
        if route is not None and self._body_bytes > self._body_limit(route):
            self._refuse(413, route.too_large_text)
        if self._upload is None:
            self._body.append(body)
            return
        try:
            self._upload.append(body)
        except OSError:
            log.exception("transport.upload_failed")
            self._refuse(503, "The upload cannot be stored now")

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._has_body and not self._is_resumed and self._parsing().should_upgrade():
            return  # the parser skips the body of an upgrade; `_go_on_without_upgrade` reads it after all
        pieces = self._body
        if pieces:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._body = []
        else:
            body = b""
        self._completed += 1
        self.is_reading = False
        self.owes_continue = False
        self.awaits = None  # all of it came at once: its handler asks the same
        self._is_resumed = False
        self._raw_bytes = -self._feed_bytes  # what else this read holds belongs to the next request
        route = self._route
        if route is None or len(self.ready) >= _READY_LIMIT:
            self._refuse(429, "Too many requests in one go")
        headers = self._headers
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.is_packed = self._is_packed(headers.get("content-encoding", "identity"))
        elif body and "content-encoding" in headers:
            body = self._decode(body, headers["content-encoding"], route)
        target = self._target.decode("ascii")
        request = HttpRequest(self._method, target, headers, body, self._scheme, self._peer, upload)
        self.ready.append((route, request, self._tail))
        if self._tail is CLOSE_LINE:
            self.is_last = True

    def _repeat(self, request: HttpRequest, body: bytes) -> None:
        route = self._route
        if route is None or len(self.ready) >= _READY_LIMIT:
            self.refusal = (429, "Too many requests in one go")
            return
        self.ready.append((route, request.repeated(body), b""))

    def _keep_head(self, data: bytes) -> None:
        """Remember the head of a request that came alone in one read and left nothing open."""
        body_bytes = self._body_bytes
        head_bytes = len(data) - body_bytes
        if (
            head_bytes <= _KEPT_HEAD_BYTES
            and self._completed == 1
            and self.refusal is None
            and not self._tail
            and self._upload_rule is None
            and _NEVER_KEPT.isdisjoint(self._headers)
        ):
            self._kept_head = data[:head_bytes]
            self._kept_request = replace(self.ready[-1][1], body=b"")
            self._kept_body_bytes = body_bytes
            if self._route is not None and self._route.park is not None:
                self._parser = None

    def _parsing(self) -> httptools.HttpRequestParser:
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        return parser

    def _count_head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > self._limits.head_bytes:
            self._refuse(431, "Request header fields too large")

    def _feed(self, data: bytes) -> None:
        self._feed_bytes = len(data)
        self._completed = 0
        offset = -1
        try:
            self._parsing().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            offset = upgrade.args[0]
        except httptools.HttpParserError as error:
            self._note_parse_error(error)
        if offset >= 0 and not self.is_last:
            self._go_on_without_upgrade(data[offset:])

    def _note_parse_error(self, error: httptools.HttpParserError) -> None:
        if self.refusal is not None or self.is_last:
            return
        if isinstance(error, httptools.HttpParserCallbackError):
            log.error("transport.parse_failed", exc_info=error)
            self.refusal = (500, "Internal error")
        else:
            self.refusal = (400, "Bad request")

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        # Java's client offers h2c on every plain request, body included. We decline by ignoring the offer,
        # but the parser has stopped at the head, so a new one takes over from a head that makes no offer.
        self._parser = None
        if self.is_reading:
            self._is_resumed = True
            if "transfer-encoding" in self._headers:
                framing = b"Transfer-Encoding: chunked"
            else:
                framing = b"Content-Length: " + self._headers["content-length"].encode("ascii")
            self._parsing().feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
        if rest:
            self._feed(rest)

    def drop(self) -> None:
        """Let go of what waits or is being read: nobody will handle it."""
        for _, request, _ in self.ready:
            if request.upload is not None:
                request.upload.close()
        self.ready.clear()
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()

    def give_up(self) -> None:
        """Let go of the request being read: the rest of its body will not be."""
        self.is_reading = False
        self.owes_continue = False
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()

    def _refuse(self, status: int, text: str) -> NoReturn:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()
        self.refusal = (status, text)
        raise _Refused

    def _normalise_target(self) -> str:
        target = self._target
        if not target.startswith(b"/"):
            scheme, mark, rest = target.partition(b"://")
            if mark and scheme.lower() in (b"http", b"https"):
                _, slash, path = rest.partition(b"/")
                target = slash + path if slash else b"/"
            elif target != b"*":
                self._refuse(400, "Bad request target")
        if target.startswith(b"//"):  # as from clients that keep a base address with its slash
            target = b"/" + target.lstrip(b"/")
        if b"#" in target:
            self._refuse(400, "Bad request target")
        self._target = target
        return target.split(b"?", 1)[0].decode("ascii")

    def _expects_body(self, route: Route, version: str) -> bool:
        encoding = self._headers.get("transfer-encoding")
        length = self._headers.get("content-length")
        if encoding is not None:
            # One hop that goes by the length and another by the chunks is how requests are smuggled.
            if length is not None or version == "1.0" or encoding.lower() != "chunked":
                self._refuse(400, "Ambiguous request framing")
            return True
        if length is None:
            return False
        if not (length.isascii() and length.isdigit()):
            self._refuse(400, "Malformed Content-Length")
        if len(length) > 18 or int(length) > self._body_limit(route):
            self._refuse(413, route.too_large_text)
        return int(length) > 0

    def _body_limit(self, route: Route) -> int:
        rule = self._upload_rule
        return route.body_limit_bytes if rule is None else rule.limit_bytes

    def _is_packed(self, encoding: str) -> bool:
        coding = encoding.strip().lower()
        if coding not in ("identity", "gzip", "x-gzip"):
            self._refuse(415, "Content-Encoding not supported")
        return coding != "identity"

    def _decode(self, body: bytes, encoding: str, route: Route) -> bytes:
        if not self._is_packed(encoding):
            return body
        try:
            return decompress_body(body, route.body_limit_bytes)
        except BodyTooLarge:
            self._refuse(413, route.too_large_text)
        except BodyMalformed as error:
            self._refuse(400, error.message)

    def _bound_framing(self) -> None:
        # Header lines and chunk framing pile up inside the parser before any callback sees them.
        if not self.has_head:
            if self._raw_bytes > self._limits.head_bytes:
                self.refusal = (431, "Request header fields too large")
        elif self._raw_bytes - self._head_bytes > 8 * self._body_bytes + _CHUNK_OVERHEAD_BYTES:
            self.refusal = (400, "Too much chunk framing")
