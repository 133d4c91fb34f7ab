"""Flow control of a stream: demand, keepalives and idle end.

Theory of operation. Demand is a number: requests add to it up to a cap, delivered events subtract from it. Three timers
matter. A keepalive is due `keepalive_s` after the last response. A client that asks for it (`tidewire-keepalive-ms`)
gets one sooner whenever the position has moved. A call without demand ends `idle_close_s` after its last event. Times
are seconds of a monotonic clock and always passed in.
"""

from __future__ import annotations

from enum import Enum

from tidewire.errors import DemandInvalid, PlatformError
from tidewire.frontends.pubsub.headers import CallHeaders
from tidewire.frontends.pubsub.settings import PubSubSettings


class Due(Enum):
    """What a call must do when no event is ready."""

    NOTHING = "nothing"
    KEEPALIVE = "keepalive"
    END = "end"


class FlowControl:
    """Demand and timers of one call. Setting `error` ends it."""

    def __init__(self, settings: PubSubSettings, headers: CallHeaders, now_s: float) -> None:
        self._settings = settings
        self._cap = settings.max_outstanding
        if headers.max_requested is not None:
            self._cap = min(headers.max_requested, settings.lifted_max_outstanding)
        self._prompt_s: float | None = None
        if headers.keepalive_ms is not None:
            self._prompt_s = max(headers.keepalive_ms, settings.min_keepalive_ms) / 1000
        self._sent_s = now_s
        self._sent_reached = -1
        self._idle_since_s = now_s
        self._is_half_closed = False
        self.pending = 0
        self.error: PlatformError | None = None

    def demand(self, requested: int) -> None:
        """Add to the demand. Raises DemandInvalid."""
        if requested <= 0:
            raise DemandInvalid(f"num_requested must be at least 1, not {requested}")
        self.pending = min(self._cap, self.pending + requested)

    def half_close(self) -> None:
        """Note that no more requests come; the call ends once the demand is met."""
        self._is_half_closed = True

    def record_sent(self, events: int, reached: int, now_s: float) -> None:
        """Record a response with this many events and position `reached`. Call before writing it."""
        self.pending = max(0, self.pending - events)
        self._sent_s = now_s
        self._sent_reached = reached
        if events:
            self._idle_since_s = now_s

    def due(self, reached: int, now_s: float) -> Due:
        """Return what to do when no event is ready."""
        if self.pending == 0 and (
            self._is_half_closed or now_s >= self._idle_since_s + self._settings.idle_close_s
        ):
            return Due.END
        if now_s >= self._sent_s + self._settings.keepalive_s:
            return Due.KEEPALIVE
        if (
            self._prompt_s is not None
            and reached > self._sent_reached
            and now_s >= self._sent_s + self._prompt_s
        ):
            return Due.KEEPALIVE
        return Due.NOTHING

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until a timer is due."""
        next_s = self._sent_s + self._settings.keepalive_s
        if self._prompt_s is not None:
            # Positions without an event for this call wake nobody, so poll for them.
            prompt_s = self._sent_s + self._prompt_s
            next_s = min(next_s, prompt_s if prompt_s > now_s else now_s + self._prompt_s)
        if self.pending == 0:
            next_s = min(next_s, self._idle_since_s + self._settings.idle_close_s)
        return max(0.0, next_s - now_s)
