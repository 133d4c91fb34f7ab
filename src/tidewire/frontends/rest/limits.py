"""The limits resource and the count of API calls behind it.

No allocation is enforced by default, so the maxima are nominal: they keep clients that divide by them
working. API calls are counted over the last 24 hours, by hour, since the start of the process.
"""

from __future__ import annotations

from collections import deque

from tidewire.clock import Clock

DAILY_API_REQUESTS = 5_000_000

_HOUR_S = 3600
_HOURS = 24
_NOMINAL = {
    "DailyBulkApiBatches": 15_000,
    "DailyBulkV2QueryJobs": 10_000,
    "DataStorageMB": 1_000_000,
    "FileStorageMB": 1_000_000,
    "HourlyPublishedPlatformEvents": 250_000,
    "HourlyPublishedStandardVolumePlatformEvents": 100_000,
    "DailyDeliveredPlatformEvents": 50_000,
}
_STREAMING_TO_36 = {
    "DailyStreamingApiEvents": 1_000_000,
    "DailyGenericStreamingApiEvents": 100_000,
    "StreamingApiConcurrentClients": 2_000,
}
_STREAMING_FROM_37 = {
    "DailyDurableStreamingApiEvents": 1_000_000,
    "DailyDurableGenericStreamingApiEvents": 100_000,
    "DurableStreamingApiConcurrentClients": 2_000,
}
_MONTHLY = 1_000_000
_FIRST_DURABLE_VERSION = 37
_FIRST_ENTITLEMENT_VERSION = 48


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

    def used(self) -> int:
        """Calls in the last 24 hours."""
        oldest = self._hour() - _HOURS
        while self._hours and self._hours[0][0] <= oldest:
            self._hours.popleft()
        return sum(calls for _, calls in self._hours)

    def header(self) -> tuple[str, str]:
        """The response header that tells clients where they stand."""
        return ("Sforce-Limit-Info", f"api-usage={self.used()}/{DAILY_API_REQUESTS}")

    def _hour(self) -> int:
        return int(self._clock.monotonic_s() // _HOUR_S)


def render_limits(used_api_requests: int, version: int) -> dict[str, dict[str, int]]:
    """The limits that a version names, each with its maximum and what is left of it."""
    maxima = dict(_NOMINAL)
    maxima |= _STREAMING_FROM_37 if version >= _FIRST_DURABLE_VERSION else _STREAMING_TO_36
    if version >= _FIRST_ENTITLEMENT_VERSION:
        maxima["MonthlyPlatformEventsUsageEntitlement"] = _MONTHLY
    else:
        maxima["MonthlyPlatformEvents"] = _MONTHLY
    limits = {name: {"Max": most, "Remaining": most} for name, most in maxima.items()}
    limits["DailyApiRequests"] = {
        "Max": DAILY_API_REQUESTS,
        "Remaining": max(0, DAILY_API_REQUESTS - used_api_requests),
    }
    return dict(sorted(limits.items()))
