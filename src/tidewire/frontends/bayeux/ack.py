"""The acknowledgement extension: a client says which reply it has got, and is sent again what it has not.

It is in use for clients that ask for it in their handshake. Every connect reply has a number; the next
connect names the last one that came through. The events of one reply are kept until then, and no further
ones are taken meanwhile, so a client that does not answer costs one reply's worth of memory.
"""

from __future__ import annotations

from collections.abc import Callable

from tidewire.frontends.bayeux.wire import Message

_MAX_BATCH = 1 << 53


class Acknowledgements:
    """What one session's client has yet to acknowledge."""

    __slots__ = ("_unconfirmed", "batch")

    def __init__(self, batch: int = 0) -> None:
        self.batch = batch
        self._unconfirmed: list[bytes] = []

    def take_in(self, message: Message) -> bool:
        """Read the acknowledgement that a connect carries; says whether everything sent has come through."""
        ext = message.get("ext")
        number = ext.get("ack") if isinstance(ext, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number < self.batch:
            return not self._unconfirmed
        if isinstance(number, int) and number < _MAX_BATCH:
            # After a restart a client may be ahead of what was stored of it.
            self.batch = max(self.batch, number)
        self._unconfirmed = []
        return True

    def collect(self, take: Callable[[], list[bytes]]) -> list[bytes]:
        """The events of the next reply: those that did not come through, or what `take` gives."""
        if not self._unconfirmed:
            self._unconfirmed = take()
        return list(self._unconfirmed)

    def next_batch(self) -> int:
        """The number of the reply that is being sent."""
        self.batch += 1
        return self.batch


def wants_acknowledgements(message: Message) -> bool:
    """Whether a handshake asks for the extension."""
    ext = message.get("ext")
    return isinstance(ext, dict) and ext.get("ack") is True
