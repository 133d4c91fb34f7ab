"""The delivery contract beside a plain list: whatever a subscriber does, it is given the events of its channel after
its starting point, in order, with no gap and no repeat, whether they come from the log or from memory.

The hub's memory is kept so small that readers which fall behind leave it, and come back to it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests.orgs import Template, TestOrg, open_copy
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after
from tidewire.delivery.subscription import Subscription
from tidewire.errors import ReplayIdInvalid
from tidewire.events import Event, EventDraft, Family
from tidewire.schema.codec import EventSchema

TOPICS = ("MachineOne", "MachineTwo")
RING_BYTES = 12_000  # a few dozen events
_PATIENCE_S = 120.0  # far beyond what the slowest machine needs: only an event that is lost lets it pass
T = TypeVar("T")


class PositionForm:
    """Spells an event as its position."""

    name = "position"

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        return str(event.position).encode()


@dataclass(slots=True)
class World:
    """What outlives an example: the org, its topics, and every event that was ever appended, in order."""

    loop: asyncio.AbstractEventLoop
    org: TestOrg
    topic_ids: dict[str, str]
    appended: list[tuple[int, str]] = field(default_factory=list)

    def run(self, work: Coroutine[None, None, T]) -> T:
        return self.loop.run_until_complete(work)

    async def append(self, topics: list[str], payload_bytes: int) -> None:
        """One transaction with an event for each of the topics named."""
        payload = json.dumps({"event": {}, "sobject": {"Id": "001" + "x" * payload_bytes}}).encode()
        drafts = [EventDraft(self.topic_ids[topic], Family.PUSH_TOPIC, payload, 0) for topic in topics]
        core, now_ms = self.org.core, self.org.clock.now_ms()
        events = await core.records.write_plain(lambda tx: core.log.append(tx, drafts, now_ms))
        self.appended += [(event.position, topic) for event, topic in zip(events, topics, strict=True)]

    def expected(self, topic: str, position: int) -> list[int]:
        """The positions that a subscriber is owed who begins after `position`."""
        return [at for at, of in self.appended if of == topic and at > position]


class Follower:
    """A subscriber, and what the model knows of it: after which position it began, and what it was given."""

    def __init__(self, topic: str, start: int) -> None:
        self.topic = topic
        self.start = start
        self.seen: list[int] = []
        self.woken = asyncio.Event()
        self.subscription: Subscription | None = None

    @property
    def resumption(self) -> Replay:
        """What it asks for when it comes back."""
        last = self.seen[-1] if self.seen else self.start
        return after(last) if last else EARLIEST

    async def open(self, hub: Hub, org: TestOrg, replay: Replay) -> None:
        self.close()
        self.subscription = await hub.subscribe(
            org.admin, f"/topic/{self.topic}", 60.0, replay, PositionForm(), self.woken.set
        )

    def take(self, max_events: int, max_bytes: int) -> int:
        assert self.subscription is not None
        self.woken.clear()
        taken = self.subscription.take(max_events, max_bytes)
        self.seen += map(int, taken)
        assert len(taken) <= max_events
        return len(taken)

    def close(self) -> None:
        if self.subscription is not None:
            self.subscription.close()


class DeliveryMachine(RuleBasedStateMachine):
    """Appends, subscriptions from anywhere, small and large takes, lost clients, lost edges."""

    followers = Bundle("followers")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.all: list[Follower] = []
        self.hub = self._new_hub()

    def _new_hub(self) -> Hub:
        hub = Hub(self.world.org.link, ring_bytes=RING_BYTES, pages_bytes=2_000, encoded_bytes=2_000)
        self.world.run(hub.start())
        return hub

    @initialize()
    def something_is_in_the_log(self) -> None:
        self.world.run(self.world.append([*TOPICS, TOPICS[0]], 10))

    @rule(
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=8),
        times=st.integers(1, 12),
        payload_bytes=st.sampled_from([1, 100, 900]),
    )
    def append(self, topics: list[str], times: int, payload_bytes: int) -> None:
        async def work() -> None:
            # Together: several transactions may share a commit, and so a batch.
            await asyncio.gather(*[self.world.append(topics, payload_bytes) for _ in range(times)])
            self.world.appended.sort()

        self.world.run(work())

    @rule(target=followers, topic=st.sampled_from(TOPICS), how_many=st.integers(1, 3))
    def subscribe_to_new_events(self, topic: str, how_many: int) -> object:
        head = self.world.appended[-1][0]
        return multiple(*[self._follow(topic, head, LATEST) for _ in range(how_many)])

    @rule(target=followers, topic=st.sampled_from(TOPICS))
    def subscribe_to_all_events(self, topic: str) -> Follower:
        return self._follow(topic, 0, EARLIEST)

    @rule(target=followers, topic=st.sampled_from(TOPICS), back=st.integers(0, 60))
    def subscribe_after_an_event(self, topic: str, back: int) -> Follower:
        # Also after an event of the other topic: a replay id belongs to the log, not to the channel.
        position = self.world.appended[-1 - min(back, len(self.world.appended) - 1)][0]
        return self._follow(topic, position, after(position))

    def _follow(self, topic: str, start: int, replay: Replay) -> Follower:
        follower = Follower(topic, start)
        self.world.run(follower.open(self.hub, self.world.org, replay))
        self.all.append(follower)
        return follower

    @rule(topic=st.sampled_from(TOPICS), ahead=st.integers(1, 1000))
    def subscribe_after_an_id_of_the_future_is_refused(self, topic: str, ahead: int) -> None:
        follower = Follower(topic, 0)
        start = after(self.world.appended[-1][0] + ahead)
        with pytest.raises(ReplayIdInvalid):
            self.world.run(follower.open(self.hub, self.world.org, start))

    @rule(follower=followers, max_events=st.integers(1, 40), max_bytes=st.sampled_from([1, 60, 1 << 20]))
    def take(self, follower: Follower, max_events: int, max_bytes: int) -> None:
        self.world.run(self._take([follower], max_events, max_bytes))

    @rule(max_events=st.integers(1, 40))
    def everybody_takes(self, max_events: int) -> None:
        self.world.run(self._take(self.all, max_events, 1 << 20))

    async def _take(self, followers: list[Follower], max_events: int, max_bytes: int) -> None:
        for follower in followers:
            follower.take(max_events, max_bytes)

    @rule(turns=st.integers(1, 5))
    def let_the_hub_work(self, turns: int) -> None:
        async def work() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.world.run(work())

    @rule(follower=followers)
    def lose_the_client_and_resume(self, follower: Follower) -> None:
        self.world.run(follower.open(self.hub, self.world.org, follower.resumption))

    @rule()
    def lose_the_edge_and_resume(self) -> None:
        self.world.run(self.hub.close())
        self.hub = self._new_hub()
        for follower in self.all:
            self.world.run(follower.open(self.hub, self.world.org, follower.resumption))

    @rule(follower=followers)
    def catch_up(self, follower: Follower) -> None:
        self.world.run(self._read_to_the_end(follower))

    async def _read_to_the_end(self, follower: Follower) -> None:
        expected = self.world.expected(follower.topic, follower.start)
        async with asyncio.timeout(_PATIENCE_S):
            while len(follower.seen) < len(expected):
                if not follower.take(7, 1 << 20):
                    await follower.woken.wait()
        assert follower.seen == expected

    @invariant()
    def what_was_given_is_what_comes_next(self) -> None:
        for follower in self.all:
            expected = self.world.expected(follower.topic, follower.start)
            assert follower.seen == expected[: len(follower.seen)]

    def teardown(self) -> None:
        try:
            for follower in self.all:
                self.world.run(self._read_to_the_end(follower))
        finally:
            for follower in self.all:
                follower.close()
            self.world.run(self.hub.close())


@pytest.mark.timeout(900)
def test_replay_and_live_are_one_list_for_every_subscriber(template: Template, tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    stack = AsyncExitStack()

    async def make_world() -> World:
        org = await stack.enter_async_context(open_copy(template, tmp_path / "org"))
        ids = {}
        for name in TOPICS:
            values = {"Name": name, "Query": "SELECT Id, Name FROM Account", "ApiVersion": 50}
            ids[name] = await org.gate.create(org.call, "PushTopic", values)
        return World(loop, org, ids)

    world = loop.run_until_complete(make_world())

    class Machine(DeliveryMachine):
        def __init__(self) -> None:
            super().__init__(world)

    try:
        steps = settings(
            max_examples=30,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        run_state_machine_as_test(Machine, settings=steps)
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()
