"""How many API calls an org has answered, over all protocols.

No allocation is enforced by default, so the maximum is nominal. Calls are counted over the last 24 hours, by hour,
since the start of the process.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from tidewire.clock import Clock

DAILY_API_REQUESTS = 5_000_000
USAGE_HEADER = "Sforce-Limit-Info"

_HOUR_S = 3600
_HOURS = 24


class PublishQuota(Protocol):
    """The hourly limit on published platform events."""

    def can_publish(self) -> bool:
        """Return whether one more event may be published now. Called from any thread."""


class ApiUsage:
    """How many API calls came in during the last 24 hours. Counting costs a comparison and an addition.

    `quota` limits publishing, once the org is open.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hours: deque[tuple[int, int]] = deque()  # (hour number, calls), oldest first
        self.quota: PublishQuota | None = None

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
        used = 0
        for hour, calls in tuple(self._hours):
            if hour > oldest:
                used += calls
        return used

    def can_publish(self) -> bool:
        """Whether the org may publish another platform event in the running hour."""
        return self.quota is None or self.quota.can_publish()

    def header(self) -> tuple[str, str]:
        """The response header that tells clients where they stand."""
        return (USAGE_HEADER, f"api-usage={self.used()}/{DAILY_API_REQUESTS}")

    def _hour(self) -> int:
        return int(self._clock.monotonic_s() // _HOUR_S)
