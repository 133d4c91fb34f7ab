"""HTTP requests and responses as plain values, the same in edges and in the core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from tidewire.transport.uploads import Upload

T = TypeVar("T")

HEAD_ONLY = "Head-Only"
"""Marks a request whose body has not been read.

Peers cannot send it: their header names become lower case.
"""


@dataclass(frozen=True)
class HttpRequest:
    """One request, body complete and de-chunked.

    `headers` has lower-case names; a repeated header is joined by `, `.

    `target` is the raw request target; `scheme` is what the listener speaks; `peer` is the client's address.
    Where the route takes uploads, the body is in `upload` and `body` is empty.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""
    scheme: str = "http"
    peer: str = ""
    upload: Upload | None = None
    head_cache: dict[Callable[[HttpRequest], Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Results of the functions made by `cached_by_head`, shared by all requests with the same head."""

    def repeated(self, body: bytes) -> HttpRequest:
        """Return a request with this head and another body."""
        again = object.__new__(HttpRequest)
        # Computed here once, for all requests with this head.
        again.__dict__.update(
            self.__dict__, body=body, raw_path=self.raw_path, query=self.query, media_type=self.media_type
        )
        return again

    @cached_property
    def raw_path(self) -> str:
        """The target without its query, still percent-encoded."""
        return self.target.split("?", 1)[0]

    @cached_property
    def path(self) -> str:
        """The decoded path."""
        return unquote(self.raw_path)

    @cached_property
    def query(self) -> dict[str, str]:
        """Decoded query parameters; the last one of a name counts."""
        _, _, text = self.target.partition("?")
        if not text:
            return {}
        return dict(parse_qsl(text, keep_blank_values=True))

    @property
    def is_head_only(self) -> bool:
        """Whether this asks to admit an upload, by its head alone; see `UploadRule`."""
        return HEAD_ONLY in self.headers

    @property
    def base_url(self) -> str:
        """Scheme and host as the client sees them, for URLs that lead back to this server."""
        return f"{self.scheme}://{self.headers.get('host', 'localhost')}"

    @cached_property
    def media_type(self) -> str:
        """The content type without parameters, lower case."""
        return self.headers.get("content-type", "").split(";", 1)[0].strip().lower()


def cached_by_head(read: Callable[[HttpRequest], T]) -> Callable[[HttpRequest], T]:
    """Cache a function of the request head.

    Requests that repeat a head, as those of one connection do, share the result, which must not be changed.
    Exceptions are not cached.
    """

    @wraps(read)
    def read_once(request: HttpRequest) -> T:
        known = request.head_cache
        if read in known:
            found: T = known[read]
        else:
            found = known[read] = read(request)
        return found

    return read_once


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One whole response. The transport adds Content-Length, Date and Connection.

    A body that is too large to be held at once comes as `pieces` instead, read as fast as the peer takes
    them.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json;charset=UTF-8"
    headers: tuple[tuple[str, str], ...] = field(default=())
    pieces: AsyncIterator[bytes] | None = None
