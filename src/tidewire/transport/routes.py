"""Routes: the handler and the limits of each path."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidewire.errors import ConfigInvalid
from tidewire.transport.http import HttpRequest, HttpResponse

DEFAULT_BODY_LIMIT_BYTES = 16 << 20
_TEXT_TYPE = "text/plain;charset=UTF-8"
_SAFE = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


class Exchange(Protocol):
    """A request that waits for its one response, as its handler sees it.

    All calls belong on the listener's loop. `on_close`, if set, is called once with the exchange itself when
    the peer goes away before `respond`; it is never called after `respond`.
    """

    on_close: Callable[[Exchange], None] | None

    @property
    def is_open(self) -> bool:
        """Whether a response can still be sent."""

    def respond(self, status: int, body: bytes, headers: bytes = ...) -> bool:
        """Send the response, now or at any later time. `headers` are ready lines, each ended by CR LF.

        Returns False, and sends nothing, if the peer has gone or a response was given before.
        """

    def respond_with(self, response: HttpResponse) -> bool:
        """Like `respond`, from a response value."""

    async def stream_with(self, response: HttpResponse) -> None:
        """Send a response whose body comes in pieces; returns after the last one, or when the peer is gone."""


AsyncHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers in a task. It must not raise: an exception is logged and becomes a bare 500."""
ParkingHandler = Callable[[HttpRequest, Exchange], None]
"""Called on the loop, must return at once; answers through the exchange when it is ready."""


ErrorForm = Callable[[HttpRequest, int, str], HttpResponse]
"""Renders an error that the listener itself finds, in the form that clients of the path expect.

The request is what was read of it, perhaps only part of its head. Must not raise.
"""


def render_plain_error(request: HttpRequest, status: int, text: str) -> HttpResponse:
    """Render an error as a line of text."""
    return HttpResponse(status, text.encode() + b"\n", _TEXT_TYPE, _SAFE)


@dataclass(frozen=True, slots=True)
class UploadRule:
    """Bodies of PUT requests to these paths go to files in `directory` instead of into memory.

    `limit_bytes` limits the body as sent; the handler limits its decompressed size. `admit` is called with
    the head alone (`HttpRequest.is_head_only`) before more of the body is read: a response other than 100
    ends the upload.
    """

    paths: re.Pattern[str]
    directory: Path
    limit_bytes: int
    admit: AsyncHandler | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of a path prefix. Exactly one of `handle` and `park` is set.

    A prefix covers itself and everything under it: `/cometd` covers `/cometd/61.0` but not `/cometdx`.
    `body_limit_bytes` limits the request body, both as sent and after decompression. With `websocket` the
    parking handler is also reached through WebSockets: it returns the credentials in a message, as an
    Authorization header has them, or "".
    """

    prefix: str
    handle: AsyncHandler | None = None
    park: ParkingHandler | None = None
    body_limit_bytes: int = DEFAULT_BODY_LIMIT_BYTES
    too_large_text: str = "Request body too large"
    uploads: UploadRule | None = None
    websocket: Callable[[bytes], str] | None = None

    def try_upload(self, method: str, raw_path: str) -> UploadRule | None:
        """Return the upload rule for a request, None if its body stays in memory."""
        rule = self.uploads
        return rule if rule is not None and method == "PUT" and rule.paths.fullmatch(raw_path) else None

    def __post_init__(self) -> None:
        if (self.handle is None) == (self.park is None) or not self.prefix.startswith("/"):
            raise ConfigInvalid(
                f"route {self.prefix!r} needs a leading slash and one handler", setting=self.prefix
            )


class Router:
    """Finds the route with the longest matching prefix. One route must have the prefix `/`.

    `render_error` renders errors of requests that reach no handler.
    """

    __slots__ = ("_fallback", "_routes", "render_error")

    def __init__(self, routes: Sequence[Route], render_error: ErrorForm = render_plain_error) -> None:
        ordered = sorted(routes, key=lambda route: len(route.prefix), reverse=True)
        if not ordered or ordered[-1].prefix != "/":
            raise ConfigInvalid("a router needs a route for '/'", setting="routes")
        self.render_error = render_error
        self._fallback = ordered[-1]
        self._routes = [(r.prefix, r.prefix.rstrip("/") + "/", r) for r in ordered[:-1]]

    def find(self, raw_path: str) -> Route:
        """Return the route of a path, which is still percent-encoded."""
        for prefix, folder, route in self._routes:
            if raw_path.startswith(folder) or raw_path == prefix:
                return route
        return self._fallback
