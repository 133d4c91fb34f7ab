"""Time, injected. Nothing else in the package calls `time.*` or `datetime.now`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a stage may ask about time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 UTC. May step; never use it for timeouts."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never steps back."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._now_ms += round(seconds * 1000)
        self._monotonic_s += seconds

    def step(self, seconds: float) -> None:
        """Move only the wall clock, either way, as an operator or NTP would."""
        self._now_ms += round(seconds * 1000)
