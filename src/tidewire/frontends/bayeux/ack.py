"""The Bayeux acknowledgement extension: events of a reply that was not acknowledged are sent again.

A client asks for it in its handshake. Every connect reply has a batch number, and the next connect acknowledges the
last one received. The events of one reply are buffered until then and no further ones are taken, so a client that never
acknowledges costs the memory of one reply.
"""

from __future__ import annotations

from collections.abc import Callable

from tidewire.frontends.bayeux.wire import Message

_MAX_BATCH = 1 << 53


class Acknowledgements:
    """The unacknowledged events of one session."""

    __slots__ = ("_unconfirmed", "batch")

    def __init__(self, batch: int = 0) -> None:
        self.batch = batch
        self._unconfirmed: list[bytes] = []

    def take_in(self, message: Message) -> bool:
        """Read a connect's acknowledgement; return whether everything sent was received."""
        ext = message.get("ext")
        number = ext.get("ack") if isinstance(ext, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number < self.batch:
            return not self._unconfirmed
        if isinstance(number, int) and number < _MAX_BATCH:
            # After a restart a client may be ahead of the stored batch number.
            self.batch = max(self.batch, number)
        self._unconfirmed = []
        return True

    def collect(self, take: Callable[[], list[bytes]]) -> list[bytes]:
        """Return the events of the next reply: the unacknowledged ones, otherwise what `take` returns."""
        if not self._unconfirmed:
            self._unconfirmed = take()
        return list(self._unconfirmed)

    def next_batch(self) -> int:
        """Return the number of the reply being sent."""
        self.batch += 1
        return self.batch


def wants_acknowledgements(message: Message) -> bool:
    """Return whether a handshake asks for the extension."""
    ext = message.get("ext")
    return isinstance(ext, dict) and ext.get("ack") is True
