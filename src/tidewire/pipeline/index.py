"""The positions of events on the bus, learnt by one background subscription in the driver.

Spark asks for the latest offset many times a second; the answer must come from memory. The index reads the
channel once, keeps each event's position and drops the rest, so it knows exactly how many rows a span has:
batches are cut by rows, not by guesses, and a batch is divided evenly. What it costs is that the driver
receives each event too.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right

from tidewire.clock import Clock
from tidewire.errors import PlatformError
from tidewire.pipeline.bus import Bus, position_after

MAX_AHEAD = (
    1_000_000  # positions held at most, 8 MB; the subscription then waits until batches have been committed
)


class PositionIndex:
    """Positions after a start, growing in the background. All methods are safe to call from any thread."""

    def __init__(self, bus: Bus, after: int, clock: Clock) -> None:
        self.after = after
        self._bus = bus
        self._clock = clock
        self._positions = array("q")
        self._reached = after
        self._heard_s = clock.monotonic_s()
        self._is_caught_up = False
        self._error: PlatformError | None = None
        self._changed = threading.Condition()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="tidewire-index", daemon=True).start()

    def close(self) -> None:
        """Stop growing, and close the bus."""
        self._ended.set()
        self._bus.close()
        with self._changed:
            self._changed.notify_all()

    def covers(self, position: int) -> bool:
        """Whether spans that start at this position can be answered."""
        return position >= self.after

    def cut(self, after: int, max_rows: int | None) -> int:
        """The furthest position known, or the one that ends `max_rows` rows after `after`. Raises what the
        reading met.
        """
        with self._changed:
            self._check()
            first = bisect_right(self._positions, after)
            if max_rows is None or len(self._positions) - first <= max_rows:
                return max(after, self._reached)
            last = self._positions[first + max_rows - 1]
            return last

    def wait_for(self, position: int, timeout_s: float) -> bool:
        """Wait until the log has been read through a position; False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._check() or self._reached >= position or self._ended.is_set(), timeout_s
            )

    def wait_for_rows(self, after: int, rows: int, settle_s: float) -> bool:
        """Wait until `rows` rows after a position are known (True) or the bus has nothing more to say
        (False).

        It has nothing more to say if it sends an empty response, or nothing at all for `settle_s`.
        """
        with self._changed:
            while not self._ended.is_set():
                self._check()
                if len(self._positions) - bisect_right(self._positions, after) >= rows:
                    return True
                quiet_s = self._clock.monotonic_s() - self._heard_s
                if self._is_caught_up or quiet_s >= settle_s:
                    return False
                self._changed.wait(settle_s - quiet_s)
            return False

    def positions_in(self, after: int, through: int) -> array[int]:
        """The positions of the events in a span."""
        with self._changed:
            return self._positions[
                bisect_right(self._positions, after) : bisect_right(self._positions, through)
            ]

    def forget(self, through: int) -> None:
        """Drop positions that will not be asked for again."""
        with self._changed:
            del self._positions[: bisect_right(self._positions, through)]
            self.after = max(self.after, through)
            self._changed.notify_all()

    def _check(self) -> bool:
        if self._error is not None:
            raise self._error
        return False

    def _run(self) -> None:
        try:
            for fetched in self._bus.stream(self.after, self._ended):
                with self._changed:
                    self._positions.extend(event.replay_id for event in fetched.events)
                    self._reached = position_after(fetched, self._reached)
                    self._heard_s = self._clock.monotonic_s()
                    self._is_caught_up = not fetched.events
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: len(self._positions) < MAX_AHEAD or self._ended.is_set())
        except PlatformError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
