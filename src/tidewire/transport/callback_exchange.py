"""The exchange of a request that did not come by a connection of its own: its answer goes to whoever passed
it on.
"""

from __future__ import annotations

from collections.abc import Callable

from tidewire.transport.http import HttpResponse
from tidewire.transport.responses import JSON_HEADERS, render_header_lines
from tidewire.transport.routes import Exchange

Answer = Callable[["CallbackExchange", int, bytes, bytes], None]
"""Takes the exchange, status, body and header lines of the one answer."""


class CallbackExchange:
    """See `Exchange`."""

    __slots__ = ("_answer", "on_close")

    def __init__(self, answer: Answer) -> None:
        self._answer: Answer | None = answer
        self.on_close: Callable[[Exchange], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether an answer can still be sent."""
        return self._answer is not None

    def respond(self, status: int, body: bytes, headers: bytes = JSON_HEADERS) -> bool:
        """Send the answer; see `Exchange`."""
        answer, self._answer = self._answer, None
        self.on_close = None
        if answer is None:
            return False
        answer(self, status, body, headers)
        return True

    def respond_with(self, response: HttpResponse) -> bool:
        """Send a response value; see `Exchange`."""
        return self.respond(response.status, response.body, render_header_lines(response))

    async def stream_with(self, response: HttpResponse) -> None:
        """Send an answer that comes in pieces, as one: those that are passed on are small."""
        pieces = [] if response.pieces is None else [piece async for piece in response.pieces]
        self.respond(response.status, b"".join(pieces), render_header_lines(response))

    def drop(self) -> None:
        """The peer is gone."""
        self._answer = None
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self)
