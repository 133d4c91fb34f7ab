"""Filtered subscriptions over a real core: who is told what, live and replayed, and what a change of rights does."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.delivery.forms import filtered_form
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay
from tidewire.delivery.subscription import Subscription
from tidewire.errors import ChannelForbidden, FilterInvalid, PlatformError
from tidewire.events import Event
from tidewire.gate.requests import Write
from tidewire.matching.filters import NotificationFilter
from tidewire.schema.codec import EventSchema

QUERY = "SELECT Id, Name, Industry, Phone FROM Account"


class NameForm:
    """Spells a notification as the name of its record, or its id if it has none."""

    def __init__(self, name: str = "name") -> None:
        self.name = name
        self.encoded = 0

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        self.encoded += 1
        sobject = orjson.loads(event.payload)["sobject"]
        return str(sobject.get("Name", sobject["Id"])).encode()


class Listener:
    """Takes whenever it is woken."""

    def __init__(self, subscription: Subscription, woken: asyncio.Event) -> None:
        self.subscription = subscription
        self.woken = woken
        self.seen: list[str] = []

    async def up_to(self, name: str) -> list[str]:
        async with asyncio.timeout(120):
            while name not in self.seen:
                self.woken.clear()
                taken = self.subscription.take(100, 1 << 20)
                self.seen += [each.decode() for each in taken]
                if not taken:
                    await self.woken.wait()
        return self.seen

    async def error(self) -> PlatformError:
        async with asyncio.timeout(120):
            while self.subscription.error is None:
                self.woken.clear()
                await self.woken.wait()
        return self.subscription.error


async def make_topic(org: TestOrg, query: str = QUERY) -> str:
    values = {"Name": "T", "Query": query, "ApiVersion": 60, "NotifyForFields": "All"}
    return await org.gate.create(org.call, "PushTopic", values)


async def listen(
    hub: Hub, who: Principal, channel: str = "/topic/T", replay: Replay = LATEST, form: NameForm | None = None
) -> Listener:
    woken = asyncio.Event()
    subscription = await hub.subscribe(who, channel, 60.0, replay, form or NameForm(), woken.set)
    return Listener(subscription, woken)


async def test_same_filter_is_tried_and_encoded_once_for_all(org: TestOrg, hub: Hub) -> None:
    await make_topic(org)
    form = NameForm("once")
    channel = "/topic/T?Industry='Energy'"
    listeners = [await listen(hub, org.admin, channel, form=form) for _ in range(5)]
    await org.make_account("A", Industry="Media")
    await org.make_account("B", Industry="Energy")
    for listener in listeners:
        assert await listener.up_to("B") == ["B"]
    assert form.encoded == 1
    wanted = listeners[0].subscription.grant.notification_filter
    assert wanted is not None
    assert filtered_form(form, wanted) is filtered_form(
        NameForm("once"), NotificationFilter("001", wanted.terms)
    )


async def test_replay_finds_the_one_wanted_event_behind_thousands_of_others(org: TestOrg) -> None:
    await make_topic(org)
    for _ in range(15):
        writes = [Write("Account", None, {"Name": "Other", "Industry": "Media"}) for _ in range(200)]
        await org.gate.write_together(org.call, writes, all_or_none=True)
    await org.make_account("Needle", Industry="Energy")
    hub = Hub(org.link, ring_bytes=1 << 20)
    await hub.start()
    listener = await listen(hub, org.admin, "/topic/T?Industry='Energy'", EARLIEST)
    assert await listener.up_to("Needle") == ["Needle"]
    await hub.close()


async def test_deleted_record_is_notified_with_its_last_values(org: TestOrg, hub: Hub) -> None:
    await make_topic(org)
    media, energy = (
        await org.make_account("A", Industry="Media"),
        await org.make_account("B", Industry="Energy"),
    )
    listener = await listen(hub, org.admin, "/topic/T?Industry='Energy'")
    await org.gate.delete(org.call, "Account", media)
    await org.gate.delete(org.call, "Account", energy)
    assert await listener.up_to(energy) == [energy]


async def test_replay_does_not_tell_of_the_object_that_the_query_was_on(org: TestOrg, hub: Hub) -> None:
    topic = await make_topic(org, "SELECT Id, Name FROM Opportunity")
    deal = {"Name": "Secret deal", "StageName": "Prospecting", "CloseDate": "2030-01-01"}
    await org.gate.create(org.call, "Opportunity", deal)
    with pytest.raises(ChannelForbidden):
        await listen(hub, org.reader)
    early = await listen(hub, org.admin, replay=EARLIEST)
    await org.gate.update(org.call, "PushTopic", topic, {"Query": QUERY})
    await org.make_account("A")
    assert await (await listen(hub, org.reader, replay=EARLIEST)).up_to("A") == ["A"]
    # Nor to somebody who was reading the topic when it moved, and had not come so far.
    assert await early.up_to("A") == ["A"]


async def test_lost_access_to_a_filters_field_ends_the_subscription(org: TestOrg, hub: Hub) -> None:
    await make_topic(org)
    filtered = await listen(hub, org.reader, "/topic/T?Industry='Energy'")
    plain = await listen(hub, org.reader)
    with pytest.raises(FilterInvalid, match="do not exist on the topic entity"):
        await listen(hub, org.reader, "/topic/T?Phone='1'")
    rights = {"Account": ["read", "view_all"], "PushTopic": ["read"]}
    fields = {"Account": {"*": "read", "Industry": "none"}}
    await org.apply(
        permission_sets={
            "Account_Reader": {"permissions": ["ApiEnabled"], "objects": rights, "fields": fields}
        }
    )
    assert isinstance(await filtered.error(), FilterInvalid)
    await org.make_account("A", Industry="Energy")
    assert await plain.up_to("A") == ["A"]


async def test_lost_access_to_a_where_field_or_to_push_topics_ends_the_subscription(
    org: TestOrg, hub: Hub
) -> None:
    await make_topic(org, QUERY + " WHERE Fax != '9'")
    first = await listen(hub, org.reader)
    rights = {"Account": ["read", "view_all"], "PushTopic": ["read"]}
    blind = {
        "permissions": ["ApiEnabled"],
        "objects": rights,
        "fields": {"Account": {"*": "read", "Fax": "none"}},
    }
    await org.apply(permission_sets={"Account_Reader": blind})
    assert "where clause" in (await first.error()).message
    sighted = {**blind, "fields": {"Account": {"*": "read"}}}
    await org.apply(permission_sets={"Account_Reader": sighted})
    second = await listen(hub, org.reader)
    await org.apply(permission_sets={"Account_Reader": {**sighted, "objects": {"Account": ["read"]}}})
    assert (await second.error()).message == "User not enabled for streaming"


async def test_viewer_of_all_data_needs_no_right_on_push_topics(org: TestOrg, hub: Hub) -> None:
    await make_topic(org)
    await org.apply(
        permission_sets={"Account_Reader": {"permissions": ["ApiEnabled", "ViewAllData"], "objects": {}}}
    )
    listener = await listen(hub, org.reader)
    await org.make_account("A")
    assert await listener.up_to("A") == ["A"]
