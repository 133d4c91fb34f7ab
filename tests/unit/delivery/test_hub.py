"""Subscriptions over a real core: live, replayed, handed over, cut and ended."""

from __future__ import annotations

import asyncio

import pytest

from tests.orgs import READER, TestOrg
from tidewire.access.principal import Principal
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after
from tidewire.delivery.subscription import Subscription
from tidewire.errors import (
    ChannelForbidden,
    ChannelUnknown,
    ObjectUnknown,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    SessionInvalid,
)
from tidewire.events import Event, Family
from tidewire.schema.codec import EventSchema

CHANNEL = "/data/AccountChangeEvent"
PATIENCE_S = 120.0  # far beyond what the slowest machine needs: only an event that is lost lets it pass
pytestmark = pytest.mark.timeout(300)


class PlainForm:
    """Spells an event as its position and the names of its readable, filled fields."""

    def __init__(self, name: str = "plain") -> None:
        self.name = name
        self.encoded = 0

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        self.encoded += 1
        value = schema.decode(event.payload) if schema else {}
        names = [n for n, v in value.items() if v is not None and n not in hidden and n in ("Phone", "Fax")]
        return f"{event.position}:{','.join(names)}".encode()


class Reader:
    """A subscriber that takes whenever it is woken."""

    def __init__(self, form: PlainForm) -> None:
        self.form = form
        self.seen: list[bytes] = []
        self.woken = asyncio.Event()
        self.subscription: Subscription | None = None

    async def start(self, hub: Hub, who: Principal, replay: Replay, channel: str = CHANNEL) -> Reader:
        self.subscription = await hub.subscribe(who, channel, 60.0, replay, self.form, self.woken.set)
        return self

    async def read(self, count: int, max_events: int = 100, max_bytes: int = 1 << 20) -> list[bytes]:
        assert self.subscription is not None
        async with asyncio.timeout(PATIENCE_S):
            while len(self.seen) < count:
                self.woken.clear()
                taken = self.subscription.take(max_events, max_bytes)
                self.seen += taken
                if not taken:
                    await self.woken.wait()
        return self.seen

    async def wait_for_error(self) -> Exception:
        assert self.subscription is not None
        async with asyncio.timeout(PATIENCE_S):
            while self.subscription.error is None:
                self.woken.clear()
                await self.woken.wait()
        return self.subscription.error


def positions(seen: list[bytes]) -> list[int]:
    return [int(one.split(b":")[0]) for one in seen]


async def test_live_subscriber_sees_later_events_only(org: TestOrg, hub: Hub) -> None:
    await org.make_account("before")
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST)
    head = await org.link.read_log_head()
    await org.make_account("one")
    await org.make_account("two")
    assert positions(await reader.read(2)) == [head + 1, head + 2]


async def test_replay_from_the_start_hands_over_to_live_without_gap_or_repeat(org: TestOrg) -> None:
    for n in range(20):
        await org.make_account(f"old {n}")
    hub = Hub(org.link)  # a hub that has seen none of them
    await hub.start()
    reader = await Reader(PlainForm()).start(hub, org.admin, EARLIEST)
    writer = asyncio.gather(*[org.make_account(f"new {n}") for n in range(50)])
    seen = positions(await reader.read(70, max_events=7))
    await writer
    assert seen == list(range(seen[0], seen[0] + 70))
    await hub.close()


async def test_hub_released_while_it_fetches_a_schema_admits_every_batch_once(
    org: TestOrg, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST, "/data/ChangeEvents")
    head = await org.link.read_log_head()
    hub.hold()
    await org.make_account("one")
    await org.gate.create(org.call, "Contact", {"LastName": "two"})
    for _ in range(3):
        hub.release()
        hub.hold()
    hub.release()
    assert positions(await reader.read(2)) == [head + 1, head + 2]
    await org.make_account("three")
    assert positions(await reader.read(3)) == [head + 1, head + 2, head + 3]
    assert "delivery.task_failed" not in caplog.messages


async def test_replay_after_an_id_is_strict(org: TestOrg, hub: Hub) -> None:
    for n in range(5):
        await org.make_account(f"{n}")
    head = await org.link.read_log_head()
    reader = await Reader(PlainForm()).start(hub, org.admin, after(head - 2))
    assert positions(await reader.read(2)) == [head - 1, head]


async def test_unknown_and_expired_positions_are_different_errors(org: TestOrg, hub: Hub) -> None:
    await org.make_account()
    head = await org.link.read_log_head()
    with pytest.raises(ReplayIdInvalid):
        await Reader(PlainForm()).start(hub, org.admin, after(head + 10))
    org.clock.advance(3 * 3600)
    await org.make_account()
    later_ms = org.clock.now_ms()
    await org.core.records.write_plain(lambda tx: org.core.log.trim(tx, Family.CHANGE, later_ms))
    with pytest.raises(ReplayIdExpired):
        await Reader(PlainForm()).start(hub, org.admin, after(head - 1))
    reader = await Reader(PlainForm()).start(hub, org.admin, EARLIEST)
    assert positions(await reader.read(1)) == [head + 1]


async def test_small_ring_falls_back_to_the_log(org: TestOrg) -> None:
    hub = Hub(org.link, ring_bytes=1, encoded_bytes=1)
    await hub.start()
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST)
    await asyncio.gather(*[org.make_account(f"{n}") for n in range(30)])
    seen = positions(await reader.read(30, max_events=4))
    assert seen == list(range(seen[0], seen[0] + 30))
    await hub.close()


async def test_byte_limit_holds_back_whole_events(org: TestOrg, hub: Hub) -> None:
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST)
    await asyncio.gather(*[org.make_account(f"{n}") for n in range(10)])
    assert reader.subscription is not None
    seen = positions(await reader.read(10, max_bytes=20))
    assert seen == list(range(seen[0], seen[0] + 10))


async def test_event_is_encoded_once_for_all_who_see_the_same(org: TestOrg, hub: Hub) -> None:
    form = PlainForm()
    readers = [await Reader(form).start(hub, org.admin, LATEST) for _ in range(5)]
    await org.make_account()
    for reader in readers:
        await reader.read(1)
    assert form.encoded == 1


async def test_fields_are_cut_to_what_the_reader_may_see(org: TestOrg, hub: Hub) -> None:
    form = PlainForm()
    admin = await Reader(form).start(hub, org.admin, LATEST)
    restricted = await Reader(form).start(hub, org.reader, LATEST)
    await org.make_account(Phone="1", Fax="2")
    assert (await admin.read(1))[0].endswith(b":Phone,Fax")
    assert (await restricted.read(1))[0].endswith(b":Fax")


async def test_lost_field_access_counts_for_open_subscriptions(org: TestOrg, hub: Hub) -> None:
    reader = await Reader(PlainForm()).start(hub, org.reader, LATEST)
    await org.make_account(Fax="2")
    assert (await reader.read(1))[0].endswith(b":Fax")
    await org.apply(
        permission_sets={
            "Account_Reader": {
                "permissions": ["ApiEnabled"],
                "objects": {"Account": ["read", "view_all"]},
                "fields": {"Account": {"*": "read", "Fax": "none"}},
            }
        }
    )
    await org.make_account(Phone="1", Fax="2")
    assert (await reader.read(2))[1].endswith(b":Phone")


async def test_lost_object_access_ends_the_events_and_its_return_brings_them_back(
    org: TestOrg, hub: Hub
) -> None:
    reader = await Reader(PlainForm()).start(hub, org.reader, LATEST)
    subscription = reader.subscription
    assert subscription is not None
    # A hub that knows the schema admits later commits before they are answered.
    await org.make_account("Before")
    before = positions(await reader.read(1))
    rights = {"permissions": ["ApiEnabled"]}
    await org.apply(permission_sets={"Account_Reader": rights})
    async with asyncio.timeout(PATIENCE_S):
        while subscription.is_stale or subscription.grant.topics:
            reader.woken.clear()
            await reader.woken.wait()
    await org.make_account("Unseen")
    assert subscription.take(10, 1 << 20) == []
    assert subscription.reached() == await org.link.read_log_head()
    granted = rights | {"objects": {"Account": ["read", "view_all"]}}
    await org.apply(permission_sets={"Account_Reader": granted})
    await org.make_account("Seen")
    assert positions(await reader.read(2)) == [*before, await org.link.read_log_head()]
    assert subscription.error is None


async def test_ended_login_ends_its_subscriptions(org: TestOrg, hub: Hub) -> None:
    ended: list[str] = []
    hub.watch_sessions(ended.append)
    reader = await Reader(PlainForm()).start(hub, org.reader, LATEST)
    await org.apply(users={READER: {"active": False}})
    assert isinstance(await reader.wait_for_error(), SessionInvalid)
    assert org.reader.session_id in ended


async def test_renamed_push_topic_keeps_its_live_subscribers(org: TestOrg, hub: Hub) -> None:
    values = {"Name": "Old", "Query": "SELECT Id, Name FROM Account", "ApiVersion": 50}
    topic = await org.gate.create(org.call, "PushTopic", values)
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST, "/topic/Old")
    await org.gate.update(org.call, "PushTopic", topic, {"Name": "New"})
    await org.make_account()
    assert len(await reader.read(1)) == 1
    with pytest.raises(ChannelUnknown):
        await Reader(PlainForm()).start(hub, org.admin, LATEST, "/topic/Old")


async def test_org_without_streaming_has_no_push_topics_and_ends_their_subscribers(
    org: TestOrg, hub: Hub
) -> None:
    values = {"Name": "Off", "Query": "SELECT Id, Name FROM Account", "ApiVersion": 50}
    topic = await org.gate.create(org.call, "PushTopic", values)
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST, "/topic/Off")
    await org.apply(settings={"streaming_api": False})
    assert isinstance(await reader.wait_for_error(), ChannelForbidden)
    with pytest.raises(ChannelForbidden, match="User not enabled for streaming"):
        await Reader(PlainForm()).start(hub, org.admin, LATEST, "/topic/Off")
    for entity in ("PushTopic", "StreamingChannel"):
        with pytest.raises(ObjectUnknown):
            await org.gate.query(org.admin, f"SELECT Id FROM {entity}")
    with pytest.raises(PlatformError):
        await org.gate.create(org.call, "PushTopic", values | {"Name": "Late"})
    await org.apply(settings={"streaming_api": True})
    found = await org.gate.query(org.admin, "SELECT Id FROM PushTopic")
    assert [row["Id"] for row in found.rows] == [topic]


async def test_deleted_push_topic_ends_its_subscribers(org: TestOrg, hub: Hub) -> None:
    values = {"Name": "Old", "Query": "SELECT Id, Name FROM Account", "ApiVersion": 50}
    topic = await org.gate.create(org.call, "PushTopic", values)
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST, "/topic/Old")
    await org.gate.delete(org.call, "PushTopic", topic)
    assert isinstance(await reader.wait_for_error(), ChannelUnknown)


async def test_newly_captured_object_appears_on_the_common_channel(org: TestOrg, hub: Hub) -> None:
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST, "/data/ChangeEvents")
    await org.apply(objects={"Box__c": {"capture": True}})
    await org.gate.create(org.call, "Box__c", {"Name": "b"})
    await reader.read(1)


async def test_caught_up_subscription_reaches_the_head_over_events_of_others(org: TestOrg, hub: Hub) -> None:
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST, "/data/ContactChangeEvent")
    other = await Reader(PlainForm()).start(hub, org.admin, LATEST)
    await org.make_account()
    await other.read(1)
    assert reader.subscription is not None
    assert reader.subscription.reached() == await org.link.read_log_head()


async def test_closed_subscription_takes_nothing_more(org: TestOrg, hub: Hub) -> None:
    reader = await Reader(PlainForm()).start(hub, org.admin, LATEST)
    assert reader.subscription is not None
    reader.subscription.close()
    reader.subscription.close()
    await org.make_account()
    assert reader.subscription.take(10, 1000) == []
