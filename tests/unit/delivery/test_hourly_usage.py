"""Usage by the hour, as the status resource tells it to pipelines."""

from __future__ import annotations

from tests.orgs import TestOrg
from tidewire.delivery.allocations import Allocations
from tidewire.delivery.link_values import Delivered
from tidewire.delivery.usage_metrics import PUBLISHED_CHANGES, HourlyUse, sum_hours
from tidewire.events import Family

HOUR_MS = 3_600_000


def test_hours_are_summed_by_metric_without_the_running_one_and_other_families() -> None:
    change = int(Family.CHANGE)
    counts = [(7, change, 2), (7, change, 3), (7, PUBLISHED_CHANGES, 4), (8, change, 1), (9, change, 9)]
    counts += [(7, int(Family.GENERIC), 50), (6, change, 0)]
    assert sum_hours(counts, 9) == [
        HourlyUse(7 * HOUR_MS, "CHANGE_EVENTS_DELIVERED", 5),
        HourlyUse(7 * HOUR_MS, "CHANGE_EVENTS_PUBLISHED", 4),
        HourlyUse(8 * HOUR_MS, "CHANGE_EVENTS_DELIVERED", 1),
    ]


async def test_deliveries_of_both_kinds_of_session_count_together_once_their_hour_is_over(
    org: TestOrg,
) -> None:
    allocations = Allocations(org.core.records, org.clock, {})
    allocations.count_delivered([Delivered(True, Family.CHANGE, 3), Delivered(False, Family.CHANGE, 4)])
    assert allocations.hourly_usage() == []
    hour_ms = org.clock.now_ms() // HOUR_MS * HOUR_MS
    org.clock.advance(3600)
    assert allocations.hourly_usage() == [HourlyUse(hour_ms, "CHANGE_EVENTS_DELIVERED", 7)]
