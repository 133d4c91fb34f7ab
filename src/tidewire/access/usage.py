"""How many API calls an org has answered, over all protocols.

No allocation is enforced by default, so the maximum is nominal. Calls are counted over the last 24 hours, by hour,
since the start of the process.
"""

from __future__ import annotations

from collections import deque

from tidewire.clock import Clock

DAILY_API_REQUESTS = 5_000_000

_HOUR_S = 3600
_HOURS = 24


class ApiUsage:
    """How many API calls came in during the last 24 hours. Counting costs a comparison and an addition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hours: deque[tuple[int, int]] = deque()  # (hour number, calls), oldest first

    def count(self) -> None:
        """One more call."""
        hour = self._hour()
        if self._hours and self._hours[-1][0] == hour:
            self._hours[-1] = (hour, self._hours[-1][1] + 1)
        else:
            self._hours.append((hour, 1))
            while self._hours[0][0] <= hour - _HOURS:
                self._hours.popleft()

    def used(self) -> int:
        """Calls in the last 24 hours. May be asked from any thread."""
        oldest = self._hour() - _HOURS
        return sum(calls for hour, calls in tuple(self._hours) if hour > oldest)

    def header(self) -> tuple[str, str]:
        """The response header that tells clients where they stand."""
        return ("Sforce-Limit-Info", f"api-usage={self.used()}/{DAILY_API_REQUESTS}")

    def _hour(self) -> int:
        return int(self._clock.monotonic_s() // _HOUR_S)
