"""An exchange whose response goes to a callback, for requests that do not own a connection."""

from __future__ import annotations

from collections.abc import Callable

from tidewire.transport.http import HttpResponse
from tidewire.transport.responses import JSON_HEADERS, render_header_lines
from tidewire.transport.routes import Exchange

Answer = Callable[["CallbackExchange", int, bytes, bytes], None]
"""Gets the exchange, and the status, body and header lines of its one response."""


class CallbackExchange:
    """See `Exchange`."""

    __slots__ = ("_answer", "on_close")

    def __init__(self, answer: Answer) -> None:
        self._answer: Answer | None = answer
        self.on_close: Callable[[Exchange], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a response can still be sent."""
        return self._answer is not None

    def respond(self, status: int, body: bytes, headers: bytes = JSON_HEADERS) -> bool:
        """Send the response; see `Exchange`."""
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
        """Collect a streamed response and send it whole: responses on these paths are small."""
        pieces = [] if response.pieces is None else [piece async for piece in response.pieces]
        self.respond(response.status, b"".join(pieces), render_header_lines(response))

    def drop(self) -> None:
        """Tell the handler that the peer is gone."""
        self._answer = None
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self)
