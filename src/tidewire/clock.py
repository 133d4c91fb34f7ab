"""Injected clocks. Nothing else in the package calls `time.*` or `datetime.now`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time, as every stage reads it."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970 UTC. It may step: never use it for timeouts."""

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never steps back."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class AdjustableClock:
    """The machine's clock, with a wall clock that tests can move or stop. Timeouts are not affected."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self._ahead_ms = 0
        self._stopped_ms: int | None = None

    def now_ms(self) -> int:
        stopped_ms = self._stopped_ms
        return self._machine.now_ms() + self._ahead_ms if stopped_ms is None else stopped_ms

    def monotonic_s(self) -> float:
        return self._machine.monotonic_s()

    def advance(self, seconds: float) -> None:
        """Move the wall clock forward, whether it is stopped or not."""
        if self._stopped_ms is None:
            self._ahead_ms += round(seconds * 1000)
        else:
            self._stopped_ms += round(seconds * 1000)

    def freeze(self, at_ms: int | None = None) -> None:
        """Stop the wall clock, here or at another time."""
        self._stopped_ms = self.now_ms() if at_ms is None else at_ms

    def unfreeze(self) -> None:
        """Restart the wall clock from its current time."""
        if self._stopped_ms is not None:
            self._ahead_ms = self._stopped_ms - self._machine.now_ms()
            self._stopped_ms = None

    def reset(self) -> None:
        """Show the machine's time again."""
        self._ahead_ms = 0
        self._stopped_ms = None


class ManualClock:
    """A clock that moves only when a test advances it."""

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
