"""HTTP/1.1 request parsing without I/O: framing, limits and errors.

Theory of operation. The connection feeds every read to `feed`; complete requests come out in `ready`, in
order. httptools calls the `on_*` methods while it parses. A callback rejects a request by setting `error` and
raising, which stops the parser. Once `error` is set, the framing is lost (the next byte could belong to
anything), so nothing more may be fed.

Fast path. A long poller sends the same head again and again, with a body of the same length. The reader keeps
the last head as raw bytes. A read that is exactly this head plus a body of this length bypasses the parser
and reuses the parsed head. Equal bytes parse alike, so only the cost changes. While such a poller waits for
its response the parser is freed, because it is most of the memory of an idle connection.
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

_READY_LIMIT = 256  # one read can hold many tiny pipelined requests; more than this are rejected
_CHUNK_OVERHEAD_BYTES = 64 * 1024  # chunk framing beyond 8 bytes per body byte, see `_bound_framing`
_KEPT_HEAD_BYTES = 2048  # every idle connection keeps one head: larger ones are not worth their memory
# Requests with one of these headers need the parser each time: their body length or meaning is not in the
# head alone.
_NEVER_KEPT = frozenset({"transfer-encoding", "expect", "content-encoding", "upgrade"})
# Two values of these would let two hops read one request differently, which is how requests are smuggled.
_ONE_LINE_ONLY = frozenset({"host", "content-length", "transfer-encoding", "authorization", "content-type"})

# Values of these headers are the same for many clients, and each connection keeps its last head: interning
# them saves memory. No header here may carry a secret, because interned strings can live as long as the
# process.
_SHARED_VALUES = frozenset(
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
_SHARED_VALUES_BYTES = 100

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
# Spellings that clients really send: most names then cost one lookup instead of a decode and a case fold.
_NAMES: dict[bytes, str] = {
    spelling.encode(): name for name in _COMMON_NAMES for spelling in (name, name.title())
}


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits that protect the listener from its peers.

    A request's head must be complete `head_timeout_s` after its first byte, or after the connection was
    opened. Its body may then take `body_timeout_s` plus one second for each `body_rate_bytes` received. A
    connection is closed after `idle_timeout_s` without a request, `write_timeout_s` after its peer stops
    reading, and `linger_s` after an error response. Deadlines are checked every `sweep_s`.
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


class _Rejected(Exception):
    """Raised in a callback to stop the parser; never leaves this module.

    The reason is in `RequestReader.error`.
    """


class RequestReader:
    """The reading half of one connection. Every method is synchronous and belongs on the loop."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_completed",
        "_feed_bytes",
        "_has_body",
        "_head_bytes",
        "_headers",
        "_is_small",
        "_kept_body_bytes",
        "_kept_head",
        "_kept_request",
        "_limits",
        "_method",
        "_parser",
        "_peer",
        "_raw_bytes",
        "_resumes_body",
        "_route",
        "_router",
        "_scheme",
        "_tail",
        "_target",
        "_upload",
        "_upload_rule",
        "admission",
        "begun_s",
        "error",
        "has_head",
        "is_last",
        "is_reading",
        "now_s",
        "owes_continue",
        "ready",
    )

    def __init__(self, router: Router, limits: HttpLimits, scheme: str, peer: str) -> None:
        # per connection
        self._router = router
        self._limits = limits
        self._scheme = scheme
        self._peer = peer
        self._parser: httptools.HttpRequestParser | None = None
        self._feed_bytes = 0  # size of the current read
        self._is_small = False  # the current read cannot pass the head limit, so its headers need no counting
        self._completed = 0  # requests completed by the current read
        # The fast path's head as bytes and as parsed, and the length of the body that must follow it.
        self._kept_head = b""
        self._kept_request: HttpRequest | None = None
        self._kept_body_bytes = 0
        self.ready: list[tuple[Route, HttpRequest, bytes]] = []
        self.error: tuple[int, str] | None = None
        self.is_last = False  # the last request asked for `Connection: close`
        self.now_s = 0.0
        # per request being read
        self.is_reading = False
        self.has_head = False
        self.owes_continue = False  # the peer waits for `100 Continue` before it sends the body
        self.admission: tuple[AsyncHandler, HttpRequest] | None = (
            None  # handler to ask about an upload, and its head
        )
        self.begun_s = 0.0
        self._resumes_body = False  # the head was read by an earlier parser, see `_resume_after_upgrade`
        self._has_body = False
        self._method = ""
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._raw_bytes = 0  # as received, with framing: the parser buffers bytes that no callback has seen
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._route: Route | None = None
        self._upload: Upload | None = None
        self._upload_rule: UploadRule | None = None
        self._tail = b""

    def feed(self, data: bytes, now_s: float) -> None:
        """Parse one read. Never raises: malformed input sets `error`."""
        size_bytes = len(data)
        kept = self._kept_request
        if kept is not None and not self.is_reading:  # mid-request, the same bytes would be part of a body
            head_bytes = size_bytes - self._kept_body_bytes
            if head_bytes == len(self._kept_head) and data.startswith(self._kept_head):
                self._repeat(kept, data[head_bytes:])
                return
        self.now_s = now_s
        starts_request = not self.is_reading
        self._is_small = self._raw_bytes + size_bytes <= self._limits.head_bytes
        self._feed(data)
        if self.is_reading:
            if self.error is None:
                # Only after parsing is it known how many of these bytes belong to the unfinished request.
                self._raw_bytes += size_bytes
                self._bound_framing()
        elif starts_request:
            self._keep_head(data)

    def deadline_s(self) -> float:
        """Return when the request being read times out."""
        limits = self._limits
        deadline_s = self.begun_s + limits.head_timeout_s
        if self.has_head:
            deadline_s += limits.body_timeout_s + self._body_bytes / limits.body_rate_bytes
        return deadline_s

    def rejected_request(self) -> HttpRequest:
        """Return as much as is known of the request that caused `error`."""
        target = self._target.decode("latin-1") if self.is_reading or self._completed else ""
        method = self._method if self.has_head else ""
        return HttpRequest(method, target, self._headers, b"", self._scheme, self._peer)

    def is_head_request(self) -> bool:
        """Whether the request being read is a HEAD; False while its head is incomplete."""
        return self.has_head and self._method == "HEAD"

    # called by the parser

    def on_message_begin(self) -> None:
        """Reset the state of the previous request."""
        if self._resumes_body:
            return  # the made-up head of `_resume_after_upgrade`, not a new request
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
        """Take a piece of the request target; a long one arrives in several."""
        if self._resumes_body:
            return
        self._target += url
        if len(self._target) > self._limits.target_bytes:
            self._reject(414, "URI Too Long")
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header line. Trailer lines after a chunked body are ignored."""
        if self.has_head:
            return
        if not self._is_small:
            self._count_head(len(name) + len(value) + 4)
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if key in _SHARED_VALUES and len(value) <= _SHARED_VALUES_BYTES:
            text = intern(text)
        headers = self._headers
        if key in headers:
            if key in _ONE_LINE_ONLY:
                self._reject(400, f"Repeated header {key}")
            # RFC 9110 5.3: repeated fields join with a comma; RFC 9113 8.2.3 joins cookies with a semicolon.
            headers[key] = f"{headers[key]}{'; ' if key == 'cookie' else ', '}{text}"
        else:
            headers[key] = text

    def on_headers_complete(self) -> None:
        """Check the complete head and find its route, before any of the body is read."""
        if self._resumes_body:
            return
        self.has_head = True
        parser = self._ensure_parser()
        version = parser.get_http_version()
        if version != "1.1" and version != "1.0":
            self._reject(505, "HTTP version not supported")
        # RFC 9112 3.2: a server must answer 400 to an HTTP/1.1 request without a Host header.
        if version == "1.1" and "host" not in self._headers:
            self._reject(400, "Missing Host header")
        self._method = parser.get_method().decode("ascii")
        if self._method == "CONNECT":
            self._reject(405, "Method not allowed")
        # The Connection line of the response: none for HTTP/1.1, where keep-alive is the default.
        if not parser.should_keep_alive():
            self._tail = CLOSE_LINE
        else:
            self._tail = b"" if version == "1.1" else KEEP_LINE
        path = self._normalise_target()
        # The route decides how large the body may be, and whether it goes to a file.
        self._route = route = self._router.find(path)
        self._upload_rule = rule = route.try_upload(self._method, path)
        self._upload = None if rule is None else Upload(rule.directory)
        self._has_body = self._expects_body(route, version)
        expectation = self._headers.get("expect")
        if expectation is not None and version == "1.1":
            if expectation.lower() != "100-continue":
                self._reject(417, "Expectation failed")
            self.owes_continue = self._has_body
        # Large uploads are authorised by their head, so that nobody can fill the disk without credentials.
        if rule is not None and rule.admit is not None and self._has_body:
            target = self._target.decode("ascii")
            headers = {**self._headers, HEAD_ONLY: ""}
            head = HttpRequest(self._method, target, headers, b"", self._scheme, self._peer)
            self.admission = (rule.admit, head)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, without its chunk framing."""
        self.owes_continue = False  # the peer did not wait for it
        self._body_bytes += len(body)
        route = self._route
        # A declared length was checked with the head; a chunked body can only be checked as it grows.
        if route is not None and self._body_bytes > self._body_limit(route):
            self._reject(413, route.too_large_text)
        if self._upload is None:
            self._body.append(body)
            return
        try:
            self._upload.append(body)
        except OSError:
            log.exception("transport.upload_failed")
            self._reject(503, "The upload cannot be stored at the moment; retry later")

    def on_message_complete(self) -> None:
        """Move the complete request to `ready`."""
        if self._has_body and not self._resumes_body and self._ensure_parser().should_upgrade():
            return  # the parser skips the body of an upgrade request; `_resume_after_upgrade` reads it
        pieces = self._body
        if pieces:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._body = []
        else:
            body = b""
        self._completed += 1
        self.is_reading = False
        self.owes_continue = False
        self.admission = None  # the whole upload came in one read: its handler checks the same credentials
        self._resumes_body = False
        # `feed` adds the whole read later; from here on only the next request's part of it must remain.
        self._raw_bytes = -self._feed_bytes
        route = self._route
        if route is None or len(self.ready) >= _READY_LIMIT:
            self._reject(429, "Too many pipelined requests")
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
        # Not inside the parser, so the error is set without raising.
        route = self._route
        if route is None or len(self.ready) >= _READY_LIMIT:
            self.error = (429, "Too many pipelined requests")
            return
        self.ready.append((route, request.repeated(body), b""))

    def _keep_head(self, data: bytes) -> None:
        """Keep the head for the fast path, if the request came alone and whole in one read."""
        body_bytes = self._body_bytes
        head_bytes = len(data) - body_bytes
        if (
            head_bytes <= _KEPT_HEAD_BYTES
            and self._completed == 1
            and self.error is None
            and not self._tail  # HTTP/1.0 or `Connection: close`
            and self._upload_rule is None
            and _NEVER_KEPT.isdisjoint(self._headers)
        ):
            self._kept_head = data[:head_bytes]
            self._kept_request = replace(self.ready[-1][1], body=b"")
            self._kept_body_bytes = body_bytes
            if self._route is not None and self._route.park is not None:
                self._parser = None  # a long poll is held for minutes

    def _ensure_parser(self) -> httptools.HttpRequestParser:
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        return parser

    def _count_head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > self._limits.head_bytes:
            self._reject(431, "Request header fields too large")

    def _feed(self, data: bytes) -> None:
        self._feed_bytes = len(data)
        self._completed = 0
        offset = -1
        try:
            self._ensure_parser().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            offset = upgrade.args[0]  # where the parser stopped, just after the head
        except httptools.HttpParserError as error:
            self._reject_parse_error(error)
        if offset >= 0 and not self.is_last:
            self._resume_after_upgrade(data[offset:])

    def _reject_parse_error(self, error: httptools.HttpParserError) -> None:
        if self.error is not None or self.is_last:
            return  # our own rejection, or garbage after the last request, which is ignored
        if isinstance(error, httptools.HttpParserCallbackError):  # a bug in a callback
            log.error("transport.parse_failed", exc_info=error)
            self.error = (500, "Internal error")
        else:
            self.error = (400, "Bad request")

    def _resume_after_upgrade(self, rest: bytes) -> None:
        # Java's HTTP client offers an upgrade to h2c with every plain request, bodies included. RFC 9110 7.8
        # lets a server ignore the offer, but httptools has stopped after the head. A new parser reads the
        # body after a made-up head with the same framing and no offer; the callbacks ignore that head.
        self._parser = None
        if self.is_reading:
            self._resumes_body = True
            if "transfer-encoding" in self._headers:
                framing = b"Transfer-Encoding: chunked"
            else:
                framing = b"Content-Length: " + self._headers["content-length"].encode("ascii")
            self._ensure_parser().feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
        if rest:
            self._feed(rest)

    def drop(self) -> None:
        """Discard all unhandled requests and their upload files."""
        for _, request, _ in self.ready:
            if request.upload is not None:
                request.upload.close()
        self.ready.clear()
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()

    def abandon_request(self) -> None:
        """Discard the request being read; the rest of its body is ignored."""
        self.is_reading = False
        self.owes_continue = False
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()

    def _reject(self, status: int, text: str) -> NoReturn:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.close()  # now, not when the connection ends: its file takes space
        self.error = (status, text)
        raise _Rejected

    def _normalise_target(self) -> str:
        target = self._target
        if not target.startswith(b"/"):
            # RFC 9112 3.2.2: a server must accept the absolute form, as proxies send it. `*` is for OPTIONS.
            scheme, mark, rest = target.partition(b"://")
            if mark and scheme.lower() in (b"http", b"https"):
                _, slash, path = rest.partition(b"/")
                target = slash + path if slash else b"/"
            elif target != b"*":
                self._reject(400, "Bad request target")
        if target.startswith(b"//"):  # clients that join a base address with its slash to a path
            target = b"/" + target.lstrip(b"/")
        if b"#" in target:
            self._reject(400, "Bad request target")
        self._target = target
        return target.split(b"?", 1)[0].decode("ascii")

    def _expects_body(self, route: Route, version: str) -> bool:
        encoding = self._headers.get("transfer-encoding")
        length = self._headers.get("content-length")
        if encoding is not None:
            # RFC 9112 6.1: length and chunks together are an attempt at request smuggling.
            if length is not None or version == "1.0" or encoding.lower() != "chunked":
                self._reject(400, "Ambiguous request framing")
            return True
        if length is None:
            return False
        if not (length.isascii() and length.isdigit()):
            self._reject(400, "Malformed Content-Length")
        if len(length) > 18 or int(length) > self._body_limit(route):
            self._reject(413, route.too_large_text)
        return int(length) > 0

    def _body_limit(self, route: Route) -> int:
        rule = self._upload_rule
        return route.body_limit_bytes if rule is None else rule.limit_bytes

    def _is_packed(self, encoding: str) -> bool:
        coding = encoding.strip().lower()
        if coding not in ("identity", "gzip", "x-gzip"):
            self._reject(415, "Content-Encoding not supported")
        return coding != "identity"

    def _decode(self, body: bytes, encoding: str, route: Route) -> bytes:
        if not self._is_packed(encoding):
            return body
        try:
            return decompress_body(body, route.body_limit_bytes)
        except BodyTooLarge:
            self._reject(413, route.too_large_text)
        except BodyMalformed as error:
            self._reject(400, error.message)

    def _bound_framing(self) -> None:
        # The parser buffers an unfinished header line, and counts no chunk extensions: a peer could send
        # either without end while no callback is called. So the raw bytes are bounded too.
        if not self.has_head:
            if self._raw_bytes > self._limits.head_bytes:
                self.error = (431, "Request header fields too large")
        elif self._raw_bytes - self._head_bytes > 8 * self._body_bytes + _CHUNK_OVERHEAD_BYTES:
            self.error = (400, "Too much chunk framing")
