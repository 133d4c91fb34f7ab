"""The count of API calls and the limits resource."""

from __future__ import annotations

from tests.orgs import TestOrg
from tidewire.clock import ManualClock
from tidewire.frontends.rest.limits import render_limits
from tidewire.gate.api_usage import DAILY_API_REQUESTS, ApiUsage


def test_usage_counts_the_last_24_hours() -> None:
    clock = ManualClock()
    usage = ApiUsage(clock)
    usage.count()
    clock.advance(12 * 3600)
    usage.count()
    usage.count()
    assert usage.header() == ("Sforce-Limit-Info", f"api-usage=3/{DAILY_API_REQUESTS}")
    clock.advance(12 * 3600)
    assert usage.used() == 2
    clock.advance(24 * 3600)
    assert usage.used() == 0


async def test_limits_name_what_the_version_names(org: TestOrg) -> None:
    old, middle, new = (render_limits(0, version, 0, org.core.allocations) for version in (36, 47, 48))
    assert "DailyStreamingApiEvents" in old
    assert "DailyDurableStreamingApiEvents" not in old
    for word in ("", "Durable"):
        assert {
            f"Daily{word}StreamingApiEvents",
            f"Daily{word}GenericStreamingApiEvents",
            f"{word}StreamingApiConcurrentClients",
        } <= middle.keys()
    assert "MonthlyPlatformEvents" in middle
    assert "MonthlyPlatformEventsUsageEntitlement" in new
    assert "MonthlyPlatformEvents" not in new
    assert {"DailyApiRequests", "DataStorageMB", "FileStorageMB"} <= set(new)


async def test_limits_report_the_remainder_and_never_below_zero(org: TestOrg) -> None:
    assert render_limits(7, 59, 0, org.core.allocations)["DailyApiRequests"] == {
        "Max": DAILY_API_REQUESTS,
        "Remaining": DAILY_API_REQUESTS - 7,
    }
    used_up = render_limits(DAILY_API_REQUESTS + 1, 59, 0, org.core.allocations)
    assert used_up["DailyApiRequests"]["Remaining"] == 0
