"""Allocations of streaming by edition: clients, subscriptions and events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller
from tidewire.capture.topic_rules import topic_limit
from tidewire.delivery.allocations import Allocations, find_allocation
from tidewire.delivery.link_values import ClientLimits, Delivered
from tidewire.errors import ConfigInvalid, LimitExceeded
from tidewire.events import Family
from tidewire.matching.channel_values import PublishDraft

LIMITS = {"bayeux": ClientLimits()}


@pytest.mark.parametrize(
    "edition, topics, clients, push, generic, durable_generic, bus, channels",
    [
        ("performance", 100, 2_000, 1_000_000, 100_000, 1_000_000, 50_000, 1_000),
        ("unlimited", 100, 2_000, 1_000_000, 100_000, 1_000_000, 50_000, 1_000),
        ("enterprise", 50, 1_000, 200_000, 100_000, 200_000, 25_000, 1_000),
        ("professional", 40, 20, 50_000, 100_000, 100_000, 10_000, 1_000),
        ("developer", 40, 20, 10_000, 10_000, 10_000, 10_000, 200),
        ("free", 40, 20, 10_000, 10_000, 10_000, 10_000, 200),
        ("databasecom-24", 20, 10, 10_000, 10_000, 10_000, 10_000, 200),
    ],
)
def test_edition_allots_what_the_guides_say(
    edition: str,
    topics: int,
    clients: int,
    push: int,
    generic: int,
    durable_generic: int,
    bus: int,
    channels: int,
) -> None:
    found = find_allocation(edition)
    assert found is not None
    assert (topic_limit(edition), found.clients, found.channels) == (topics, clients, channels)
    assert found.daily_events(Family.PUSH_TOPIC, is_durable=True) == push
    assert found.daily_events(Family.PUSH_TOPIC, is_durable=False) == push
    assert found.daily_events(Family.GENERIC, is_durable=False) == generic
    assert found.daily_events(Family.GENERIC, is_durable=True) == durable_generic
    assert found.daily_events(Family.CHANGE, is_durable=True) == bus
    assert found.daily_events(Family.PLATFORM, is_durable=True) == bus


def test_unknown_edition_is_rejected() -> None:
    with pytest.raises(ConfigInvalid, match="edition must be one of"):
        find_allocation("deluxe")


async def test_sessions_of_one_user_are_counted_wherever_they_are(org: TestOrg) -> None:
    counted = Allocations(
        org.core.records, org.clock, {"bayeux": ClientLimits(4, 2), "pubsub": ClientLimits()}
    )
    surplus = [counted.admit_client(f"a{n}", "bayeux", "A", is_durable=n > 0) for n in range(3)]
    assert surplus == [0, 0, 1]
    assert counted.admit_client("b", "bayeux", "B", is_durable=True) == 0
    assert counted.admit_client("stream", "pubsub", "A", is_durable=True) == 0
    assert counted.count_clients() == {"bayeux": 4, "pubsub": 1}
    with pytest.raises(LimitExceeded) as caught:
        counted.admit_client("late", "bayeux", "B", is_durable=True)
    assert caught.value.details["allocation"] == "sessions"
    counted.release_client("a0")
    counted.release_client("a0")
    assert counted.admit_client("a3", "bayeux", "A", is_durable=True) == 1
    counted.release_client("a3")
    assert counted.admit_client("late", "bayeux", "B", is_durable=True) == 0


async def test_client_beyond_the_allocation_is_rejected_until_one_leaves(org: TestOrg) -> None:
    counted = Allocations(org.core.records, org.clock, LIMITS, "free")
    for number in range(20):
        counted.admit_client(f"c{number}", "bayeux", "A", is_durable=True)
    with pytest.raises(LimitExceeded, match="Organization concurrent user limit exceeded"):
        counted.admit_client("late", "bayeux", "A", is_durable=True)
    counted.admit_client("old", "bayeux", "A", is_durable=False)
    assert (counted.used_clients(is_durable=True), counted.used_clients(is_durable=False)) == (20, 1)
    counted.release_client("c3")
    counted.admit_client("late", "bayeux", "A", is_durable=True)
    assert counted.used_clients(is_durable=True) == 20


async def test_client_that_its_edge_no_longer_mentions_is_forgotten(org: TestOrg) -> None:
    counted = Allocations(org.core.records, org.clock, LIMITS, "free")
    counted.admit_client("kept", "bayeux", "A", is_durable=True)
    counted.admit_client("lost", "bayeux", "A", is_durable=True)
    for _ in range(5):
        org.clock.advance(15)
        counted.renew_clients(["kept", "never admitted"])
    assert counted.used_clients(is_durable=True) == 1


async def test_topic_takes_as_many_subscriptions_as_there_may_be_clients(org: TestOrg) -> None:
    counted = Allocations(org.core.records, org.clock, LIMITS, "free")
    counted.admit_client("one", "bayeux", "A", is_durable=True)

    def subscribe(filter_: int, topic: str = "/topic/A", family: Family = Family.PUSH_TOPIC) -> None:
        counted.admit_subscription("one", f"{topic}?F={filter_}", topic, family, is_durable=True)

    for number in range(20):
        subscribe(number)
    subscribe(7)  # again: it counts once
    with pytest.raises(LimitExceeded, match="Subscription limit exceeded for this topic"):
        subscribe(20)
    subscribe(20, "/topic/B")
    for number in range(30):
        subscribe(number, "/event/E__e", Family.PLATFORM)
    counted.release_subscription("one", "/topic/A?F=3")
    subscribe(20)


async def test_subscription_after_the_last_event_of_the_day_is_rejected_for_a_day(org: TestOrg) -> None:
    counted = Allocations(org.core.records, org.clock, LIMITS, "free")
    counted.admit_client("one", "bayeux", "A", is_durable=True)
    counted.count_delivered([Delivered(True, Family.PUSH_TOPIC, 9_999)])
    counted.admit_subscription("one", "/topic/A", "/topic/A", Family.PUSH_TOPIC, is_durable=True)
    counted.count_delivered([Delivered(True, Family.PUSH_TOPIC, 1)])
    with pytest.raises(LimitExceeded, match="Organization total events daily limit exceeded"):
        counted.admit_subscription("one", "/topic/A", "/topic/A", Family.PUSH_TOPIC, is_durable=True)
    counted.admit_subscription("one", "/topic/A", "/topic/A", Family.PUSH_TOPIC, is_durable=False)
    counted.admit_subscription("one", "/u/A", "/u/A", Family.GENERIC, is_durable=True)
    org.clock.advance(24 * 3600)
    counted.admit_subscription("one", "/topic/A", "/topic/A", Family.PUSH_TOPIC, is_durable=True)


async def test_change_and_platform_events_share_an_allocation(org: TestOrg) -> None:
    counted = Allocations(org.core.records, org.clock, LIMITS, "free")
    counted.count_delivered([Delivered(True, Family.PLATFORM, 6_000), Delivered(True, Family.CHANGE, 4_000)])
    with pytest.raises(LimitExceeded):
        counted.admit_subscription("one", "/data/X", "/data/X", Family.CHANGE, is_durable=True)
    org.clock.advance(29 * 86_400)
    assert (counted.used_bus_events(), counted.used_bus_events(in_month=True)) == (0, 10_000)


async def test_events_of_standard_volume_and_of_the_server_itself_count_against_nothing(org: TestOrg) -> None:
    await org.apply(
        events={"Few__e": {"fields": {}}, "Old__e": {"volume": "standard", "fields": {}}},
        channels={
            "Own__chn": {"label": "Own", "kind": "event"},
            "All__chn": {"label": "All", "kind": "event"},
        },
        channel_members={
            "a": {"channel": "Own__chn", "event": "LoginEventStream"},
            "b": {"channel": "All__chn", "event": "LogoutEventStream"},
            "c": {"channel": "All__chn", "event": "Few__e"},
        },
    )
    counted = Allocations(org.core.records, org.clock, LIMITS, "free")
    counted.count_delivered([Delivered(True, Family.PLATFORM, 9_999)])
    counted.count_delivered([Delivered(True, Family.PLATFORM, 50, is_allotted=False)])
    assert counted.used_events(Family.PLATFORM, is_durable=True) == 9_999

    def admit(name: str) -> bool:
        channel = f"/event/{name}"
        return counted.admit_subscription("one", channel, channel, Family.PLATFORM, is_durable=True)

    names = ["Few__e", "All__chn", "Old__e", "LoginEventStream", "Own__chn"]
    assert [admit(name) for name in names] == [True, True, False, False, False]
    counted.count_delivered([Delivered(True, Family.PLATFORM, 1)])
    for name in names[:2]:
        with pytest.raises(LimitExceeded):
            admit(name)
    assert not any(admit(name) for name in names[2:])


async def test_published_events_are_counted_by_what_they_are(org: TestOrg) -> None:
    await org.apply(
        events={"Few__e": {"fields": {}}, "Old__e": {"volume": "standard", "fields": {}}},
        settings={"monitoring_events": ["ApiEventStream"]},
        capture=["Account"],
    )
    for _ in range(3):
        await org.gate.publisher.publish(org.call, "Few__e", {})
        await org.gate.publisher.publish(org.call, "Old__e", {})
    await org.make_account()
    await Caller(org).send("GET", "query?q=SELECT+Id+FROM+Account")
    org.clock.advance(3600)
    await org.core.allocations.flush()
    rows = await org.gate.query(org.admin, "SELECT Name, Value FROM PlatformEventUsageMetric ORDER BY Name")
    assert [(row["Name"], row["Value"]) for row in rows.rows] == [
        ("CHANGE_EVENTS_PUBLISHED", 1),
        ("PLATFORM_EVENTS_PUBLISHED", 3),
    ]


async def test_without_an_edition_nothing_is_rejected_but_everything_counted(org: TestOrg) -> None:
    counted = Allocations(org.core.records, org.clock, LIMITS)
    for number in range(2_001):
        counted.admit_client(f"c{number}", "bayeux", "A", is_durable=True)
    counted.count_delivered([Delivered(True, Family.CHANGE, 60_000)])
    counted.admit_subscription("c1", "/data/X", "/data/X", Family.CHANGE, is_durable=True)
    assert counted.used_clients(is_durable=True) == 2_001
    assert counted.used_bus_events() == 60_000


async def test_event_beyond_the_hourly_allocation_fails_alone(org: TestOrg) -> None:
    await org.apply(events={"Few__e": {"label": "Few", "fields": {"A__c": {"type": "Text"}}}})
    schema = org.gate.latest_schema("Few__e")
    payload = schema.encode({"CreatedDate": 1, "CreatedById": "005"})
    drafts = [PublishDraft(schema.schema_id, payload, f"e{n}") for n in range(3)]
    enterprise = find_allocation("enterprise")
    assert enterprise is not None
    org.core.allocations.limits = replace(enterprise, published_events=2)
    outcomes = await org.link.publish(org.admin, "/event/Few__e", drafts)
    assert outcomes.event_uuids == ("e0", "e1", "e2")
    assert [(place, refusal.code) for place, refusal in outcomes.rejected] == [(2, LimitExceeded.code)]
    assert outcomes.first + 1 == await org.link.read_log_head()
