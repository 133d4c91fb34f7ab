"""Push topics on private objects: a receiver is told of the records they may see, live and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.config import DEV_PASSWORD
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay
from tidewire.delivery.sharing_filter import record_id_of
from tidewire.delivery.subscription import Subscription
from tidewire.events import Event
from tidewire.gate.requests import Call
from tidewire.schema.codec import EventSchema


class IdForm:
    """Spells a notification as the id of its record."""

    name = "id"

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        return record_id_of(event).encode()


@dataclass(frozen=True)
class Watching:
    """An org with a push topic on a private object, and two people who may read their own records of it."""

    org: TestOrg
    hub: Hub
    ann: Principal
    zoe: Principal

    async def subscribe(self, who: Principal, replay: Replay) -> Watcher:
        watcher = Watcher()
        watcher.subscription = await self.hub.subscribe(
            who, "/topic/Boxes", 60.0, replay, IdForm(), watcher.woken.set
        )
        return watcher

    async def make(self, who: Principal, **values: object) -> str:
        return await self.org.gate.create(Call(who, "com/test"), "Box__c", {"Name": "A", **values})


class Watcher:
    """Takes whenever it is woken."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.subscription: Subscription | None = None
        self.seen: list[str] = []

    async def up_to(self, record_id: str) -> list[str]:
        """All that was sent up to the first notification on this record."""
        assert self.subscription is not None
        async with asyncio.timeout(120):
            while record_id not in self.seen:
                self.woken.clear()
                taken = self.subscription.take(100, 1 << 20)
                self.seen += [each.decode() for each in taken]
                if not taken:
                    await self.woken.wait()
        return self.seen


@pytest.fixture
async def watching(org: TestOrg) -> AsyncIterator[Watching]:
    users = {
        f"{name}@tidewire.local": {
            "password": DEV_PASSWORD,
            "last_name": name,
            "permission_sets": ["Boxes"],
        }
        for name in ("ann", "zoe")
    }
    rights = {"Box__c": ["create", "read", "edit", "delete"], "PushTopic": ["read"]}
    await org.apply(
        objects={"Box__c": {"sharing": "private"}},
        permission_sets={"Boxes": {"permissions": ["ApiEnabled"], "objects": rights}},
        users=users,
        push_topics={"Boxes": {"Query": "SELECT Id, Name FROM Box__c", "NotifyForFields": "All"}},
    )
    ann, zoe = [(await org.core.logins.login(name, DEV_PASSWORD, "test")).principal for name in users]
    hub = Hub(org.link)
    await hub.start()
    yield Watching(org, hub, ann, zoe)
    await hub.close()


async def test_receiver_of_a_private_object_gets_only_their_records(watching: Watching) -> None:
    watcher = await watching.subscribe(watching.zoe, LATEST)
    await watching.make(watching.ann)
    own = await watching.make(watching.zoe)
    await watching.make(watching.ann)
    last = await watching.make(watching.zoe)
    assert await watcher.up_to(last) == [own, last]


async def test_replay_is_filtered_by_sharing_as_live_is(watching: Watching) -> None:
    await watching.make(watching.ann)
    own = await watching.make(watching.zoe)
    watcher = await watching.subscribe(watching.zoe, EARLIEST)
    assert await watcher.up_to(own) == [own]
    everything = await watching.subscribe(watching.org.admin, EARLIEST)
    assert len(await everything.up_to(own)) == 2


async def test_shared_record_is_notified_from_its_share_on(watching: Watching) -> None:
    box = await watching.make(watching.ann)
    watcher = await watching.subscribe(watching.zoe, LATEST)
    call = Call(watching.ann, "com/test")
    await watching.org.gate.update(call, "Box__c", box, {"Name": "B"})
    own = await watching.make(watching.zoe)
    assert await watcher.up_to(own) == [own]
    share = {"ParentId": box, "UserOrGroupId": watching.zoe.user_id, "AccessLevel": "Read"}
    await watching.org.gate.create(call, "Box__Share", share)
    await watching.org.gate.update(call, "Box__c", box, {"Name": "C"})
    assert await watcher.up_to(box) == [own, box]


async def test_share_taken_back_counts_for_what_a_slow_receiver_has_not_taken_yet(watching: Watching) -> None:
    call = Call(watching.ann, "com/test")
    own = await watching.make(watching.zoe)
    box = await watching.make(watching.ann)
    last = await watching.make(watching.zoe)
    share = {"ParentId": box, "UserOrGroupId": watching.zoe.user_id, "AccessLevel": "Read"}
    share_id = await watching.org.gate.create(call, "Box__Share", share)
    hub = Hub(watching.org.link, visibility_cache_s=0.02)
    await hub.start()
    watcher = Watcher()
    watcher.subscription = await hub.subscribe(
        watching.zoe, "/topic/Boxes", 60.0, EARLIEST, IdForm(), watcher.woken.set
    )
    assert watcher.subscription.take(1, 1 << 20) == []
    await asyncio.wait_for(watcher.woken.wait(), 120)
    is_old = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, is_old.set)
    await watching.org.gate.delete(call, "Box__Share", share_id)
    await is_old.wait()
    assert await watcher.up_to(last) == [own, last]
    await hub.close()


async def test_deleted_record_is_notified_to_users_who_could_see_it(watching: Watching) -> None:
    box = await watching.make(watching.ann)
    ann = await watching.subscribe(watching.ann, LATEST)
    zoe = await watching.subscribe(watching.zoe, LATEST)
    await watching.org.gate.delete(Call(watching.ann, "com/test"), "Box__c", box)
    own = await watching.make(watching.zoe)
    assert await zoe.up_to(own) == [own]
    assert await ann.up_to(box) == [box]


async def test_object_made_public_is_notified_to_all_from_then_on(watching: Watching) -> None:
    watcher = await watching.subscribe(watching.zoe, LATEST)
    await watching.make(watching.ann)
    own = await watching.make(watching.zoe)
    assert await watcher.up_to(own) == [own]
    await watching.org.apply(objects={"Box__c": {"sharing": "read"}})
    foreign = await watching.make(watching.ann)
    assert await watcher.up_to(foreign) == [own, foreign]
