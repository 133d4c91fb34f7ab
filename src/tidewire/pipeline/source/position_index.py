"""The positions of events on the bus, collected by one background subscription in the driver.

Spark asks for the latest offset many times a second, so the answer must come from memory. The index reads the
channel once, keeps each event's position and drops the rest. So it knows how many rows a span has, and
batches are cut and divided exactly. The price is that the driver receives every event too.

A bounded read ends where the server has nothing more to send. Silence means that only once the subscription
is known to work: after its first response or, where it starts at a known event and may be silent for minutes,
after a second subscription on the same connection has returned the oldest event. After a broken connection
this must be shown again.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right

from tidewire.client.pubsub_blocking import BlockingPubSubClient
from tidewire.clock import Clock
from tidewire.errors import PlatformError, ServerUnreachable
from tidewire.pipeline.lake.spans import START
from tidewire.pipeline.source.bus import Bus, position_after

MAX_AHEAD = (
    1_000_000  # positions held at most, 8 MB; the subscription then waits until batches have been committed
)
ANSWER_S = 300.0
"""How long a server may be silent: the protocol requires a keepalive every 270 s."""
EMPTY_S = 2.0
"""Silence after an empty response that ends a read. Our server may send one while it looks for events."""


class PositionIndex:
    """Positions after a start, growing in the background. Thread-safe."""

    def __init__(
        self, bus: Bus, after: int, clock: Clock, *, answer_s: float = ANSWER_S, max_ahead: int = MAX_AHEAD
    ) -> None:
        self.after = after
        self._bus = bus
        self._clock = clock
        self._answer_s = answer_s
        self._max_ahead = max_ahead
        self._positions = array("q")
        self._reached = after
        self._begun_s = clock.monotonic_s()
        self._heard_s: float | None = None
        self._is_empty = False
        self._aim: int | None = None
        self._connection: BlockingPubSubClient | None = None
        self._is_proving = False
        self._error: PlatformError | None = None
        self._changed = threading.Condition()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="tidewire-index", daemon=True).start()

    def close(self) -> None:
        """Stop the subscription and close the bus."""
        self._ended.set()
        self._bus.close()
        with self._changed:
            self._changed.notify_all()

    def covers(self, position: int) -> bool:
        """Return whether spans that start at this position can be answered."""
        return position >= self.after

    def cut(self, after: int, max_rows: int | None) -> int:
        """Return the highest known position, or the end of `max_rows` rows after `after`.

        Raises the error that ended the subscription.
        """
        with self._changed:
            self._check()
            first = bisect_right(self._positions, after)
            if max_rows is None or len(self._positions) - first <= max_rows:
                return max(after, self._reached)
            return self._positions[first + max_rows - 1]

    def is_heard(self) -> bool:
        """Return whether the current subscription is known to work. If not, test it in the background."""
        with self._changed:
            if self._heard_s is None:
                self._prove()
            return self._heard_s is not None

    def wait_for(self, position: int, timeout_s: float) -> bool:
        """Wait until the log has been read through a position; False on timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._check() or self._reached >= position or self._ended.is_set(), timeout_s
            )

    def aim(self, position: int) -> None:
        """Set the end of a bounded read: the end of the log when it began."""
        with self._changed:
            self._aim = position
            self._changed.notify_all()

    def wait_for_rows(self, after: int, rows: int, settle_s: float) -> bool:
        """Wait for `rows` rows after a position, or a full index (True), or the end of the log (False).

        Raises ServerUnreachable if the server never responds. The log has ended once it has been read up to
        the aim, or if no event has arrived for `settle_s`, or for EMPTY_S after an empty response without an
        aim, although the subscription works.
        """
        with self._changed:
            while not self._ended.is_set():
                self._check()
                known = len(self._positions) - bisect_right(self._positions, after)
                if known >= rows or (known and self._is_full()):
                    return True
                if self._aim is not None and self._reached >= self._aim:
                    return False
                now_s = self._clock.monotonic_s()
                if self._heard_s is None:
                    left_s = self._begun_s + self._answer_s - now_s
                    if left_s <= 0:
                        raise ServerUnreachable(
                            f"{self._bus.settings.endpoint} has not answered the subscription in "
                            f"{self._answer_s:.0f} s"
                        )
                    self._prove()
                else:
                    # An empty response before the aim does not end the read.
                    is_last = self._is_empty and self._aim is None
                    quiet_s = min(settle_s, EMPTY_S) if is_last else settle_s
                    left_s = self._heard_s + quiet_s - now_s
                    if left_s <= 0:
                        return False
                self._changed.wait(left_s)
            return False

    def positions_in(self, after: int, through: int) -> array[int]:
        """Return the positions of the events in a span."""
        with self._changed:
            return self._positions[
                bisect_right(self._positions, after) : bisect_right(self._positions, through)
            ]

    def forget(self, through: int) -> None:
        """Drop positions that will not be requested again."""
        with self._changed:
            del self._positions[: bisect_right(self._positions, through)]
            self.after = max(self.after, through)
            self._changed.notify_all()

    def _check(self) -> bool:
        if self._error is not None:
            raise self._error
        return False

    def _is_full(self) -> bool:
        return len(self._positions) >= self._max_ahead

    def _prove(self) -> None:
        """Test that the current connection responds, though its subscription may have nothing to send."""
        connection = self._connection
        if connection is None or self._is_proving or self._reached == START:
            return  # a read from the oldest event is answered at once
        self._is_proving = True
        threading.Thread(
            target=self._ask_oldest, args=(connection,), name="tidewire-prove", daemon=True
        ).start()

    def _ask_oldest(self, connection: BlockingPubSubClient) -> None:
        try:
            with connection.subscribe(self._bus.settings.topic, "earliest", max_requested=1) as responses:
                has_answered = next(responses, None) is not None
        except (PlatformError, ValueError):  # grpc's word for a connection that was closed meanwhile
            return  # the subscription on the same connection fails in the same way
        with self._changed:
            if has_answered and self._connection is connection and self._heard_s is None:
                self._heard_s = self._clock.monotonic_s()
                self._changed.notify_all()

    def _connected(self, connection: BlockingPubSubClient | None) -> None:
        """Record that a subscription has begun on a connection or, for None, that it has broken."""
        with self._changed:
            self._connection = connection
            self._is_proving = False
            self._begun_s = self._clock.monotonic_s()
            self._heard_s = None
            self._is_empty = False
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            for fetched in self._bus.stream(self.after, self._ended, self._connected):
                with self._changed:
                    self._positions.extend(event.replay_id for event in fetched.events)
                    self._reached = position_after(fetched, self._reached)
                    is_empty = not fetched.events and fetched.pending > 0
                    if self._heard_s is None or fetched.events or is_empty != self._is_empty:
                        self._heard_s = self._clock.monotonic_s()
                    self._is_empty = is_empty
                    self._changed.notify_all()
                    if self._is_full():
                        self._changed.wait_for(lambda: not self._is_full() or self._ended.is_set())
                        # The server could not send while nobody read: its silence is measured from here.
                        self._heard_s = self._clock.monotonic_s()
        except PlatformError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        except ValueError:  # as above
            if not self._ended.is_set():
                raise
