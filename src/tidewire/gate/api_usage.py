"""How many API calls an org has answered in the last 24 hours, over all protocols.

The maximum is nominal: calls are not limited. Counting starts again with each process.
"""

from __future__ import annotations

from collections import deque

from tidewire.clock import Clock
from tidewire.gate.publish_quota import PublishQuota, Unlimited

DAILY_API_REQUESTS = 5_000_000
USAGE_HEADER = "Sforce-Limit-Info"

_HOUR_S = 3600
_HOURS = 24


class ApiUsage:
    """Counts API calls by hour. `quota` limits publishing; it is set once the org is open."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hours: deque[tuple[int, int]] = deque()  # (hour number, calls), oldest first
        self.quota: PublishQuota = Unlimited()

    def count(self) -> None:
        """Count a call."""
        hour = self._hour()
        if self._hours and self._hours[-1][0] == hour:
            self._hours[-1] = (hour, self._hours[-1][1] + 1)
        else:
            self._hours.append((hour, 1))
            while self._hours[0][0] <= hour - _HOURS:
                self._hours.popleft()

    def used(self) -> int:
        """Return the number of calls in the last 24 hours. Safe on any thread."""
        oldest = self._hour() - _HOURS
        used = 0
        for hour, calls in tuple(self._hours):
            if hour > oldest:
                used += calls
        return used

    def header(self) -> tuple[str, str]:
        """Return the response header that tells clients how much they have used."""
        return (USAGE_HEADER, f"api-usage={self.used()}/{DAILY_API_REQUESTS}")

    def _hour(self) -> int:
        return int(self._clock.monotonic_s() // _HOUR_S)
