"""Generic streaming over a real core: channels made and opened, events pushed and received, and who is online."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after
from tidewire.delivery.subscription import Subscription
from tidewire.errors import (
    AccessDenied,
    ChannelForbidden,
    ChannelUnknown,
    DuplicateValue,
    FieldsInconsistent,
    LimitExceeded,
    PlatformError,
    RecordDeleted,
    RecordNotFound,
    TextTooLong,
)
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.gate.requests import Call, Write
from tidewire.matching.generic import Listeners, PushEvent, PushResult
from tidewire.server.core import open_core
from tidewire.server.link import LocalLink

CHANNEL = "/u/notifications/ExampleUserChannel"
VERSION = 62.0


@dataclass(frozen=True)
class People:
    """Somebody who may make channels, one who may only read them, and one who knows nothing of them."""

    maker: Principal
    listener: Principal
    stranger: Principal


@pytest.fixture
async def people(org: TestOrg) -> People:
    await org.apply(
        permission_sets={
            "Channel_Maker": {"objects": {"StreamingChannel": ["read", "create"]}},
            "Channel_Reader": {"objects": {"StreamingChannel": ["read"]}},
        },
        users={
            "maker@x.test": {"profile": "Standard User", "permission_sets": ["Channel_Maker"]},
            "listener@x.test": {"profile": "Standard User", "permission_sets": ["Channel_Reader"]},
            "stranger@x.test": {"profile": "Standard User"},
        },
    )
    signed_in = []
    for name in ("maker", "listener", "stranger"):
        user = await org.gate.query(org.admin, f"SELECT Id FROM User WHERE Username = '{name}@x.test'")
        await org.core.logins.credentials.set_password(org.call, str(user.rows[0]["Id"]), DEV_PASSWORD)
        signed_in.append((await org.core.logins.login(f"{name}@x.test", DEV_PASSWORD, "test")).principal)
    return People(*signed_in)


async def listen(
    hub: Hub, who: Principal, replay: Replay = LATEST, channel: str = CHANNEL, version: float = VERSION
) -> Listener:
    woken = asyncio.Event()
    form = bayeux_form(version)
    return Listener(await hub.subscribe(who, channel, version, replay, form, woken.set), woken)


class Listener:
    """Reads what comes on one subscription."""

    def __init__(self, subscription: Subscription, woken: asyncio.Event) -> None:
        self.subscription = subscription
        self._woken = woken

    async def read(self, count: int) -> list[dict[str, object]]:
        """The data of the next messages, exactly so many."""
        seen: list[bytes] = []
        async with asyncio.timeout(120):
            while len(seen) < count:
                self._woken.clear()
                taken = self.subscription.take(100, 1 << 20)
                seen += taken
                if not taken:
                    await self._woken.wait()
        assert len(seen) == count
        return [orjson.loads(each)["data"] for each in seen]

    async def read_through(self, position: int) -> list[bytes]:
        """What comes until the subscription has passed a position."""
        seen: list[bytes] = []
        async with asyncio.timeout(120):
            while self.subscription.position < position:
                self._woken.clear()
                taken = self.subscription.take(100, 1 << 20)
                seen += taken
                if not taken and self.subscription.position < position:
                    await self._woken.wait()
        return seen

    async def payloads(self, count: int) -> list[object]:
        return [data["payload"] for data in await self.read(count)]

    async def wait_for_error(self) -> PlatformError:
        async with asyncio.timeout(120):
            while self.subscription.error is None:
                self._woken.clear()
                await self._woken.wait()
        return self.subscription.error


async def make_channel(org: TestOrg, name: str = CHANNEL, who: Principal | None = None) -> str:
    return await org.gate.create(Call(who or org.admin, "com/test"), "StreamingChannel", {"Name": name})


async def push(org: TestOrg, who: Principal, channel_id: str, *events: PushEvent) -> list[PushResult]:
    return await org.core.generic.push(org.gate, who, channel_id, events)


@pytest.mark.parametrize(
    "name", ["u/x", "/u/", "/u", "/U/x", "/topic/x", "/u/a b", "/u/a-b", "/u/a//b", "/u/a/", "/u/ä", "/u/*"]
)
async def test_invalid_channel_name_is_rejected(org: TestOrg, name: str) -> None:
    with pytest.raises(FieldsInconsistent):
        await make_channel(org, name)


async def test_channel_name_of_eighty_characters_is_the_longest(org: TestOrg) -> None:
    await make_channel(org, "/u/" + "x" * 77)
    with pytest.raises(TextTooLong):
        await make_channel(org, "/u/" + "x" * 78)


async def test_channels_whose_names_differ_by_case_cannot_both_be_made(org: TestOrg) -> None:
    await make_channel(org, "/u/Orders")
    with pytest.raises(DuplicateValue):
        await make_channel(org, "/u/orders")


async def test_channel_created_as_a_record_is_not_dynamic(org: TestOrg) -> None:
    await make_channel(org)
    found = await org.gate.query(org.admin, "SELECT Name, IsDynamic FROM StreamingChannel")
    assert [(row["Name"], row["IsDynamic"]) for row in found.rows] == [(CHANNEL, False)]


async def test_subscriber_makes_a_missing_channel_and_owns_it(org: TestOrg, hub: Hub, people: People) -> None:
    await listen(hub, people.maker, channel="/u/Fresh")
    found = await org.gate.query(org.admin, "SELECT Name, IsDynamic, OwnerId FROM StreamingChannel")
    (row,) = found.rows
    assert (row["Name"], row["IsDynamic"], row["OwnerId"]) == ("/u/Fresh", True, people.maker.user_id)


async def test_concurrent_subscribers_create_one_channel(org: TestOrg, hub: Hub, people: People) -> None:
    await asyncio.gather(*(listen(hub, people.maker, channel="/u/Rush") for _ in range(20)))
    assert (await org.gate.query(org.admin, "SELECT COUNT() FROM StreamingChannel")).count == 1


async def test_missing_channel_is_unknown_where_the_org_makes_none(org: TestOrg, hub: Hub) -> None:
    await org.apply(settings={"dynamic_channels": False})
    with pytest.raises(ChannelUnknown) as caught:
        await listen(hub, org.admin, channel="/u/Fresh")
    assert caught.value.message == "Unknown channel"


@pytest.mark.parametrize("channel", ["/u/Fresh", "/u/bad-name", "/u/*", "/u/x?payload=1"])
async def test_missing_channel_is_forbidden_to_users_who_may_not_create_it(
    org: TestOrg, hub: Hub, people: People, channel: str
) -> None:
    with pytest.raises(ChannelForbidden) as caught:
        await listen(hub, people.listener, channel=channel)
    assert caught.value.message == f"Cannot create channel {{{channel}}}"
    assert (await org.gate.query(org.admin, "SELECT COUNT() FROM StreamingChannel")).count == 0


async def test_subscription_in_another_case_is_rejected(org: TestOrg, hub: Hub) -> None:
    await make_channel(org, "/u/Orders")
    with pytest.raises(ChannelUnknown) as caught:
        await listen(hub, org.admin, channel="/u/orders")
    assert caught.value.message == "channel names may not vary only by case"


async def test_user_without_the_object_has_no_access(org: TestOrg, hub: Hub, people: People) -> None:
    await make_channel(org)
    with pytest.raises(ChannelForbidden) as caught:
        await listen(hub, people.stranger)
    assert caught.value.message == "No access on channel"


async def test_channel_below_29_is_unknown(org: TestOrg, hub: Hub) -> None:
    await make_channel(org)
    with pytest.raises(ChannelUnknown):
        await listen(hub, org.admin, version=28.0)


async def test_channel_beyond_the_limit_is_rejected(tmp_path: Path) -> None:
    clock = ManualClock()
    core = await open_core(Settings(data=str(tmp_path), dev=True, edition="developer"), clock)
    try:
        admin = (await core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")).principal
        call = Call(admin, "com/test")
        writes = [Write("StreamingChannel", None, {"Name": f"/u/C{n}"}) for n in range(201)]
        made = await core.gate.write_together(call, writes, all_or_none=False)
        assert isinstance(made[200], LimitExceeded)
        assert not any(isinstance(each, PlatformError) for each in made[:200])
        link = LocalLink(core)
        with pytest.raises(ChannelForbidden) as caught:
            await link.open_channel(admin, "/u/Fresh", VERSION)
        assert caught.value.message == (
            "Unable to create channel dynamically, maximum channel limit has been exceeded"
        )
        await core.gate.delete(call, "StreamingChannel", str(made[0]))
        assert (await link.open_channel(admin, "/u/Fresh", VERSION)).channel == "/u/Fresh"
    finally:
        await core.close()


async def test_broadcast_reaches_all_subscribers(org: TestOrg, hub: Hub, people: People) -> None:
    channel_id = await make_channel(org)
    listeners = [await listen(hub, who) for who in (people.maker, people.listener)]
    assert await push(org, org.admin, channel_id, PushEvent("hello")) == [PushResult(-1, {})]
    for listener in listeners:
        assert await listener.payloads(1) == ["hello"]


async def test_broadcast_to_nobody_counts_nobody_and_is_kept(org: TestOrg, hub: Hub) -> None:
    channel_id = await make_channel(org)
    assert await push(org, org.admin, channel_id, PushEvent("early")) == [PushResult(0, {})]
    assert await (await listen(hub, org.admin, EARLIEST)).payloads(1) == ["early"]


async def test_event_for_one_user_reaches_no_other_live_or_replayed(
    org: TestOrg, hub: Hub, people: People
) -> None:
    channel_id = await make_channel(org)
    ours, theirs = await listen(hub, people.maker), await listen(hub, people.listener)
    results = await push(
        org,
        org.admin,
        channel_id,
        PushEvent("secret", (people.maker.user_id[:15], org.reader.user_id)),
        PushEvent("all"),
    )
    assert results == [
        PushResult(1, {people.maker.user_id: True, org.reader.user_id: False}),
        PushResult(-1, {}),
    ]
    assert await ours.payloads(2) == ["secret", "all"]
    assert await theirs.payloads(1) == ["all"]
    assert await (await listen(hub, people.maker, EARLIEST)).payloads(2) == ["secret", "all"]
    assert await (await listen(hub, people.listener, EARLIEST)).payloads(1) == ["all"]


async def test_payload_that_looks_like_a_list_of_users_is_for_everybody(org: TestOrg, hub: Hub) -> None:
    channel_id = await make_channel(org)
    listener = await listen(hub, org.admin)
    await push(org, org.admin, channel_id, PushEvent('{"userIds":["005000000000000AAA"]}'))
    assert await listener.payloads(1) == ['{"userIds":["005000000000000AAA"]}']


async def test_replay_walk_goes_from_the_tip_an_id_and_the_start(org: TestOrg, hub: Hub) -> None:
    channel_id = await make_channel(org)
    await push(org, org.admin, channel_id, *[PushEvent(f"old {n}") for n in range(3)])
    tip = await listen(hub, org.admin, LATEST)
    everything = await (await listen(hub, org.admin, EARLIEST)).read(3)
    ids = [data["event"]["replayId"] for data in everything]  # type: ignore[index]
    assert ids == sorted(ids)
    rest = await (await listen(hub, org.admin, after(ids[0]))).payloads(2)
    assert rest == ["old 1", "old 2"]
    await push(org, org.admin, channel_id, PushEvent("new"))
    assert await tip.payloads(1) == ["new"]


@pytest.mark.parametrize(
    "version, names, suffix",
    [(36.0, {"createdDate"}, "+0000"), (37.0, {"createdDate", "replayId"}, "Z")],
)
async def test_message_form_follows_the_version(
    org: TestOrg, hub: Hub, version: float, names: set[str], suffix: str
) -> None:
    channel_id = await make_channel(org)
    listener = await listen(hub, org.admin, version=version)
    await push(org, org.admin, channel_id, PushEvent("hello"))
    (data,) = await listener.read(1)
    assert data.keys() == {"payload", "event"}
    event = data["event"]
    assert isinstance(event, dict)
    assert event.keys() == names
    assert event["createdDate"].endswith(suffix)
    assert len(event["createdDate"]) == len("2017-05-19T23:12:20.065") + len(suffix)


async def test_payload_of_three_thousand_characters_is_the_longest(org: TestOrg) -> None:
    channel_id = await make_channel(org)
    await push(org, org.admin, channel_id, PushEvent("ä" * 3000))
    head = await org.link.read_log_head()
    with pytest.raises(TextTooLong):
        await push(org, org.admin, channel_id, PushEvent("short"), PushEvent("x" * 3001))
    assert await org.link.read_log_head() == head


async def test_reader_of_channels_cannot_send(org: TestOrg, people: People) -> None:
    channel_id = await make_channel(org)
    with pytest.raises(AccessDenied):
        await push(org, people.listener, channel_id, PushEvent("mine"))


async def test_private_channel_is_open_to_its_owner_and_shares(
    org: TestOrg, hub: Hub, people: People
) -> None:
    await org.apply(objects={"StreamingChannel": {"sharing": "private"}})
    channel_id = await make_channel(org, who=people.maker)
    with pytest.raises(ChannelForbidden) as caught:
        await listen(hub, people.listener)
    assert caught.value.message == "No access on channel"
    with pytest.raises(RecordNotFound):
        await push(org, people.listener, channel_id, PushEvent("no"))
    share = {"ParentId": channel_id, "UserOrGroupId": people.listener.user_id, "AccessLevel": "Read"}
    await org.gate.create(org.call, "StreamingChannelShare", share)
    listener = await listen(hub, people.listener)
    await push(org, people.maker, channel_id, PushEvent("shared"))
    assert await listener.payloads(1) == ["shared"]


async def test_public_read_only_channel_takes_events_from_users_with_a_share(
    org: TestOrg, people: People
) -> None:
    await org.apply(objects={"StreamingChannel": {"sharing": "read"}})
    channel_id = await make_channel(org)
    with pytest.raises(AccessDenied):
        await push(org, people.maker, channel_id, PushEvent("no"))
    share = {"ParentId": channel_id, "UserOrGroupId": people.maker.user_id, "AccessLevel": "Edit"}
    await org.gate.create(org.call, "StreamingChannelShare", share)
    assert await push(org, people.maker, channel_id, PushEvent("yes")) == [PushResult(0, {})]


async def test_revoked_share_ends_delivery(org: TestOrg, people: People) -> None:
    await org.apply(objects={"StreamingChannel": {"sharing": "private"}})
    channel_id = await make_channel(org, who=people.maker)
    share = {"ParentId": channel_id, "UserOrGroupId": people.listener.user_id, "AccessLevel": "Read"}
    share_id = await org.gate.create(org.call, "StreamingChannelShare", share)
    hub = Hub(org.link)
    await hub.start()
    try:
        listener, owner = await listen(hub, people.listener), await listen(hub, people.maker)
        await push(org, people.maker, channel_id, PushEvent("one"))
        assert await listener.payloads(1) == ["one"]
        await org.gate.delete(org.call, "StreamingChannelShare", share_id)
        await push(org, people.maker, channel_id, PushEvent("two"))
        assert await owner.payloads(2) == ["one", "two"]
        assert await listener.read_through(await org.link.read_log_head()) == []
        await org.gate.create(org.call, "StreamingChannelShare", share)
        await push(org, people.maker, channel_id, PushEvent("three"))
        assert await listener.payloads(1) == ["three"]
    finally:
        await hub.close()


async def test_deleted_channel_ends_its_subscriptions_and_comes_back_with_its_events(
    org: TestOrg, hub: Hub
) -> None:
    channel_id = await make_channel(org)
    listener = await listen(hub, org.admin)
    await push(org, org.admin, channel_id, PushEvent("before"))
    await org.gate.delete(org.call, "StreamingChannel", channel_id)
    assert isinstance(await listener.wait_for_error(), ChannelUnknown)
    with pytest.raises(RecordDeleted):
        await push(org, org.admin, channel_id, PushEvent("no"))
    assert await org.gate.undelete(org.call, [channel_id]) == [channel_id]
    assert await (await listen(hub, org.admin, EARLIEST)).payloads(1) == ["before"]


async def test_renamed_channel_keeps_its_listeners(org: TestOrg, hub: Hub) -> None:
    channel_id = await make_channel(org)
    listener = await listen(hub, org.admin)
    await org.gate.update(org.call, "StreamingChannel", channel_id, {"Name": "/u/Moved"})
    await org.apply(permission_sets={"Other": {"objects": {"StreamingChannel": ["read"]}}})
    await push(org, org.admin, channel_id, PushEvent("still here"))
    assert await listener.payloads(1) == ["still here"]
    assert await (await listen(hub, org.admin, EARLIEST, "/u/Moved")).payloads(1) == ["still here"]


async def test_online_users_come_and_go_with_their_subscriptions(
    org: TestOrg, hub: Hub, people: People
) -> None:
    channel_id = await make_channel(org)
    first, second = await listen(hub, people.maker), await listen(hub, people.maker)
    third = await listen(hub, people.listener)

    async def online() -> tuple[str, list[str]]:
        return await org.core.generic.list_online(org.gate, org.admin, channel_id)

    both = sorted([people.maker.user_id, people.listener.user_id])
    assert await online() == (CHANNEL, both)
    first.subscription.close()
    third.subscription.close()
    assert await online() == (CHANNEL, [people.maker.user_id])
    second.subscription.close()
    assert await online() == (CHANNEL, [])


async def test_users_of_an_edge_that_is_gone_are_not_online(org: TestOrg) -> None:
    channel_id = await make_channel(org)
    edges: list[LocalLink] = [LocalLink(org.core), LocalLink(org.core)]
    for edge in edges:
        await edge.begin_listening(channel_id, org.admin.user_id)
    await edges[0].begin_listening(channel_id, org.reader.user_id)
    edges[0].close()
    assert org.core.generic.listeners.on(channel_id) == {org.admin.user_id}
    edges[1].close()
    assert org.core.generic.listeners.on(channel_id) == frozenset()


def test_listeners_that_have_left_leave_nothing_behind() -> None:
    listeners = Listeners()
    for n in range(100):
        listeners.begin("edge", f"channel {n}", "user")
        listeners.end("edge", f"channel {n}", "user")
    listeners.end("edge", "never", "user")
    assert len(listeners) == 0


async def test_sharing_rule_opens_a_channel_to_a_group_for_reading(
    org: TestOrg, hub: Hub, people: People
) -> None:
    await org.apply(
        objects={
            "StreamingChannel": {
                "sharing": "private",
                "sharing_rules": {
                    "Ours": {
                        "criteria": [["Description", "=", "ours"]],
                        "share_with": "group:Team",
                        "access": "read",
                    }
                },
            }
        },
        groups={"Team": {"members": ["listener@x.test", "maker@x.test"]}},
    )
    channel_id = await make_channel(org)
    with pytest.raises(ChannelForbidden):
        await listen(hub, people.listener)
    await org.gate.update(org.call, "StreamingChannel", channel_id, {"Description": "ours"})
    listener = await listen(hub, people.listener)
    with pytest.raises(AccessDenied):
        await push(org, people.maker, channel_id, PushEvent("mine"))
    await push(org, org.admin, channel_id, PushEvent("to the team"))
    assert await listener.payloads(1) == ["to the team"]


async def test_change_of_the_org_wide_default_ends_a_subscription(
    org: TestOrg, hub: Hub, people: People
) -> None:
    await make_channel(org)
    listener = await listen(hub, people.listener)
    await org.apply(objects={"StreamingChannel": {"sharing": "private"}})
    channel_id = str((await org.gate.query(org.admin, "SELECT Id FROM StreamingChannel")).rows[0]["Id"])
    await push(org, org.admin, channel_id, PushEvent("hidden"))
    error = await listener.wait_for_error()
    assert isinstance(error, ChannelForbidden)
