"""What an edge reports of its deliveries."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tidewire.delivery.usage import EdgeUsage
from tidewire.events import Family

pytestmark = pytest.mark.anyio


async def test_deliveries_of_monitoring_events_are_reported_and_not_allotted(org: TestOrg) -> None:
    usage, allocations = EdgeUsage(org.link), org.core.allocations
    await org.apply(events={"Few__e": {"fields": {}}})
    for channel, events in (("/event/LoginEventStream", 5), ("/event/Few__e", 2)):
        first = await usage.admit("c", channel, Family.PLATFORM, is_durable=True)
        second = await usage.admit("c", channel, Family.PLATFORM, is_durable=True)  # it replaces the first
        first.count(events)
        first.close()
        second.count(events)
        second.close()
    usage.report()
    assert allocations.used_events(Family.PLATFORM, is_durable=True) == 4
    assert allocations.delivered[Family.PLATFORM] == 14
