"""What a slow, late or unlucky subscriber costs, and what it may not see meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.orgs import READER, TestOrg
from tidewire.access.principal import Principal
from tidewire.delivery.forms import EncodedEvents
from tidewire.delivery.hub import EARLIEST, LATEST, PAGE_EVENTS, Hub, Replay, after
from tidewire.delivery.subscription import Subscription
from tidewire.errors import ChannelForbidden, ReplayIdExpired, SessionInvalid
from tidewire.eventlog.log import LogBounds, LogPage
from tidewire.events import Event, EventDraft, Family
from tidewire.matching.channel_policy import ChannelPolicy
from tidewire.matching.channel_values import ChannelGrant
from tidewire.schema.codec import EventSchema
from tidewire.server.link import LocalLink

ACCOUNTS = "/data/AccountChangeEvent"
TOPIC = "/topic/Numbers"
PATIENCE_S = 120.0  # far beyond what the slowest machine needs: only an event that is lost lets it pass
pytestmark = pytest.mark.timeout(300)


class NumberForm:
    """Spells an event as its position; carries those at or after `carried_from` only."""

    def __init__(self, carried_from: int = 0) -> None:
        self.name = f"number {carried_from}"
        self.carried_from = carried_from

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        return str(event.position).encode() if event.position >= self.carried_from else b""


class SlowPolicy(ChannelPolicy):
    """The core's own policy, which can wait for something after it has denied a channel."""

    def __init__(self, org: TestOrg) -> None:
        super().__init__(org.gate, org.core.log, org.core.capture, org.core.generic)
        self.after_refusal: Callable[[], Awaitable[None]] | None = None

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        try:
            return await super().open_channel(principal, channel, api_version)
        except ChannelForbidden:
            if self.after_refusal is not None:
                meanwhile, self.after_refusal = self.after_refusal, None
                await meanwhile()
            raise


class SlowLink(LocalLink):
    """The core's own link, over which answers can be held back; notes the pages that were read."""

    def __init__(self, org: TestOrg) -> None:
        super().__init__(org.core)
        self.pages: list[LogPage] = []
        self.renewals = 0
        self.policy = org.core.channel_policy = SlowPolicy(org)
        self.renewed = asyncio.Event()
        self.may_renew = asyncio.Event()
        self.may_load_schemas = asyncio.Event()
        self.may_tell_bounds = asyncio.Event()
        for gate in (self.may_renew, self.may_load_schemas, self.may_tell_bounds):
            gate.set()

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        renewed = await super().renew_channel(principal, grant, api_version)
        self.renewals += 1
        self.renewed.set()
        await self.may_renew.wait()
        return renewed

    async def read_log_bounds(self, family: Family) -> LogBounds:
        bounds = await super().read_log_bounds(family)
        await self.may_tell_bounds.wait()
        return bounds

    async def schema_json(self, schema_id: str) -> str:
        await self.may_load_schemas.wait()
        return await super().schema_json(schema_id)

    async def read_log(
        self, family: Family, topics: frozenset[str], after: int, max_events: int, max_bytes: int
    ) -> LogPage:
        page = await super().read_log(family, topics, after, max_events, max_bytes)
        self.pages.append(page)
        return page


@dataclass
class Taker:
    """Takes whenever it is woken."""

    woken: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[int] = field(default_factory=list)
    subscription: Subscription = field(init=False)

    async def open(
        self, hub: Hub, who: Principal, replay: Replay, channel: str = TOPIC, form: NumberForm | None = None
    ) -> Taker:
        self.subscription = await hub.subscribe(
            who, channel, 60.0, replay, form or NumberForm(), self.woken.set
        )
        return self

    def take(self, max_events: int) -> int:
        self.woken.clear()
        taken = self.subscription.take(max_events, 1 << 20)
        self.seen += map(int, taken)
        return len(taken)

    async def take_once(self, max_events: int) -> None:
        """One answer, as soon as there is something for it."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.take(max_events):
                await self.woken.wait()

    async def read_through(self, position: int, max_events: int = 100) -> list[int]:
        async with asyncio.timeout(PATIENCE_S):
            while not self.seen or self.seen[-1] < position:
                if not self.take(max_events):
                    await self.woken.wait()
        return self.seen

    async def wait_for_error(self) -> Exception:
        async with asyncio.timeout(PATIENCE_S):
            while self.subscription.error is None:
                if not self.take(10) and self.subscription.error is None:
                    await self.woken.wait()
        return self.subscription.error


@dataclass(frozen=True)
class Numbers:
    """An org with a push topic of which any number of notifications can be put into the log."""

    org: TestOrg
    link: SlowLink
    topic_id: str

    async def append(self, count: int, payload_bytes: int = 10) -> list[int]:
        payload = json.dumps({"event": {}, "sobject": {"Id": "001" + "x" * payload_bytes}}).encode()
        drafts = [EventDraft(self.topic_id, Family.PUSH_TOPIC, payload, 0) for _ in range(count)]
        return [event.position for event in await self._append(drafts)]

    async def _append(self, drafts: Sequence[EventDraft]) -> list[Event]:
        now_ms = self.org.clock.now_ms()
        return await self.org.core.records.write_plain(
            lambda tx: self.org.core.log.append(tx, drafts, now_ms)
        )

    async def start_hub(self, pages_bytes: int = 32 << 20, ring_bytes: int = 64 << 20) -> Hub:
        hub = Hub(self.link, pages_bytes=pages_bytes, ring_bytes=ring_bytes)
        await hub.start()
        return hub


@pytest.fixture
async def numbers(org: TestOrg) -> Numbers:
    values = {"Name": "Numbers", "Query": "SELECT Id, Name FROM Account", "ApiVersion": 50}
    return Numbers(org, SlowLink(org), await org.gate.create(org.call, "PushTopic", values))


async def test_replay_of_a_long_log_comes_in_pages(numbers: Numbers) -> None:
    positions = await numbers.append(20_000)
    hub = await numbers.start_hub()
    taker = await Taker().open(hub, numbers.org.admin, EARLIEST)
    await taker.take_once(1000)
    assert taker.seen == positions[: len(taker.seen)]
    assert len(taker.seen) <= PAGE_EVENTS
    assert len(numbers.link.pages) == 1
    assert await taker.read_through(positions[-1], max_events=1000) == positions
    assert max(len(page.events) for page in numbers.link.pages) == PAGE_EVENTS
    await hub.close()


async def test_pages_of_slow_readers_are_forgotten_past_their_budget_and_read_again(numbers: Numbers) -> None:
    positions = await numbers.append(1500)
    hub = await numbers.start_hub(pages_bytes=1)
    takers = [await Taker().open(hub, numbers.org.admin, EARLIEST) for _ in range(3)]
    for taker in takers:
        await taker.take_once(7)
    pages_before = len(numbers.link.pages)
    assert takers[0].take(7) == 0  # its page has made room for the others'
    await takers[0].take_once(7)
    assert len(numbers.link.pages) == pages_before + 1
    for taker in takers:
        assert await taker.read_through(positions[-1]) == positions
    await hub.close()


async def test_reader_overtaken_by_retention_gets_an_error(numbers: Numbers) -> None:
    await numbers.append(600)
    hub = await numbers.start_hub()
    taker = await Taker().open(hub, numbers.org.admin, EARLIEST)
    await taker.take_once(10)
    numbers.org.clock.advance(30 * 3600)
    later_ms = numbers.org.clock.now_ms()
    await numbers.org.core.records.write_plain(
        lambda tx: numbers.org.core.log.trim(tx, Family.PUSH_TOPIC, later_ms)
    )
    assert isinstance(await taker.wait_for_error(), ReplayIdExpired)
    await hub.close()


async def test_quiet_channel_is_not_overtaken_by_retention(numbers: Numbers) -> None:
    hub = await numbers.start_hub(ring_bytes=1)
    values = {"Name": "Other", "Query": "SELECT Id, Email FROM Contact", "ApiVersion": 50}
    other_id = await numbers.org.gate.create(numbers.org.call, "PushTopic", values)
    taker = await Taker().open(hub, numbers.org.admin, LATEST)
    await Numbers(numbers.org, numbers.link, other_id).append(5)
    assert taker.take(10) == 0
    numbers.org.clock.advance(30 * 3600)
    later_ms = numbers.org.clock.now_ms()
    await numbers.org.core.records.write_plain(
        lambda tx: numbers.org.core.log.trim(tx, Family.PUSH_TOPIC, later_ms)
    )
    positions = await numbers.append(20)
    assert await taker.read_through(positions[-1]) == positions
    await hub.close()


async def test_events_that_a_form_does_not_carry_are_passed_over_in_several_turns(numbers: Numbers) -> None:
    hub = await numbers.start_hub()
    taker = Taker()
    start = await hub.subscribe(numbers.org.admin, TOPIC, 60.0, LATEST, NumberForm(), taker.woken.set)
    start.close()
    positions = await numbers.append(5000)
    form = NumberForm(carried_from=positions[-1])
    await taker.open(hub, numbers.org.admin, after(positions[0] - 1), form=form)
    assert taker.take(500) == 0
    assert taker.subscription.position < positions[-1]
    assert await taker.read_through(positions[-1], max_events=500) == positions[-1:]
    await hub.close()


async def test_replay_continues_behind_a_page_that_is_filtered_out(numbers: Numbers) -> None:
    positions = await numbers.append(PAGE_EVENTS + 1)
    hub = await numbers.start_hub()
    form = NumberForm(carried_from=positions[-1])
    taker = await Taker().open(hub, numbers.org.admin, after(positions[0] - 1), form=form)
    assert await taker.read_through(positions[-1], max_events=2 * PAGE_EVENTS) == positions[-1:]
    assert len(numbers.link.pages) == 2
    await hub.close()


async def test_change_of_permissions_during_a_renewal_is_not_missed(numbers: Numbers) -> None:
    org, link = numbers.org, numbers.link
    hub = await numbers.start_hub()
    taker = await Taker().open(hub, org.reader, LATEST, ACCOUNTS)
    link.may_renew.clear()
    await org.apply(objects={"Box__c": {}})  # any change of what exists has grants asked for again
    await org.apply(
        permission_sets={
            "Account_Reader": {
                "permissions": ["ApiEnabled"],
                "objects": {"Account": ["read", "view_all"]},
                "fields": {"Account": {"*": "read", "Fax": "none"}},
            }
        }
    )
    async with asyncio.timeout(PATIENCE_S):
        await link.renewed.wait()
    await org.apply(permission_sets={"Account_Reader": {"permissions": ["ApiEnabled"]}})
    link.may_renew.set()
    async with asyncio.timeout(PATIENCE_S):
        while taker.subscription.is_stale or taker.subscription.grant.topics:
            taker.woken.clear()
            await taker.woken.wait()
    await org.make_account("unseen")
    assert taker.take(10) == 0
    await hub.close()


async def test_rights_that_come_back_while_their_loss_is_judged_are_not_missed(numbers: Numbers) -> None:
    org, link = numbers.org, numbers.link
    lost = {"permissions": ["ApiEnabled"]}
    granted = lost | {"objects": {"Account": ["read", "view_all"]}}

    given_back = asyncio.Event()

    async def give_back() -> None:
        await org.apply(permission_sets={"Account_Reader": granted})
        given_back.set()

    hub = await numbers.start_hub()
    taker = await Taker().open(hub, org.reader, LATEST, ACCOUNTS)
    link.policy.after_refusal = give_back
    await org.apply(permission_sets={"Account_Reader": lost})
    async with asyncio.timeout(PATIENCE_S):
        while not given_back.is_set() or taker.subscription.is_stale:
            taker.woken.clear()
            await taker.woken.wait()
    assert taker.subscription.grant.topics
    head = await link.read_log_head()
    await org.make_account("seen")
    assert await taker.read_through(head + 1) == [head + 1]
    await hub.close()


async def test_log_is_not_read_past_the_commits_that_were_admitted(numbers: Numbers) -> None:
    org, link = numbers.org, numbers.link
    old = await numbers.append(3)
    hub = await numbers.start_hub()
    link.may_load_schemas.clear()
    await org.make_account("held back, and all that follows")
    new = await numbers.append(3)
    taker = await Taker().open(hub, org.admin, EARLIEST)
    assert [n for n in await taker.read_through(old[-1]) if n in new] == []
    link.may_load_schemas.set()
    seen = await taker.read_through(new[-1])
    assert [n for n in seen if n in old + new] == old + new
    assert seen == sorted(set(seen))
    await hub.close()


async def test_login_that_ends_while_it_subscribes_is_rejected(numbers: Numbers) -> None:
    org, link = numbers.org, numbers.link
    hub = await numbers.start_hub()
    link.may_tell_bounds.clear()
    opening = asyncio.create_task(Taker().open(hub, org.reader, EARLIEST, ACCOUNTS))
    await org.apply(users={READER: {"active": False}})
    link.may_tell_bounds.set()
    with pytest.raises(SessionInvalid):
        await opening
    assert hub.subscription_count == 0
    await hub.close()


def numbered(count: int) -> list[Event]:
    return [Event(n, "T", Family.PLATFORM, b"{}", 0, "", "", n) for n in range(1, count + 1)]


KEYS = {"T": ("number", TOPIC, frozenset[str]())}


class CountingForm(NumberForm):
    """Knows what it was asked to encode."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[int] = []

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        self.encoded.append(event.position)
        return super().encode(event, channel, hidden, schema)


def test_encoded_events_stay_within_their_budget_even_if_they_are_empty() -> None:
    encoded = EncodedEvents(10_000)
    form = NumberForm(carried_from=1 << 60)
    assert encoded.encode_run(numbered(1000), KEYS, form, {}) == [b""] * 1000
    assert 0 < len(encoded) < 100


def test_encoded_events_of_a_run_are_encoded_once_and_only_by_topics_with_a_key() -> None:
    encoded = EncodedEvents(1 << 20)
    form = CountingForm()
    events = numbered(4)
    foreign = Event(9, "U", Family.PLATFORM, b"{}", 0, "", "", 9)
    assert encoded.encode_run(events[:3], KEYS, form, {}) == [b"1", b"2", b"3"]
    mixed = [*events[:2], foreign, *events[2:]]
    assert encoded.encode_run(mixed, KEYS, form, {}) == [b"1", b"2", b"", b"3", b"4"]
    assert form.encoded == [1, 2, 3, 4]


def test_encoded_event_that_is_used_outlives_those_that_are_not() -> None:
    encoded = EncodedEvents(10_000)
    form = CountingForm()
    events = numbered(1000)
    for event in events:
        encoded.encode_run([event, events[0]], KEYS, form, {})
    assert form.encoded.count(1) == 1
    encoded.encode_run(events[1:2], KEYS, form, {})
    assert form.encoded.count(2) == 2
