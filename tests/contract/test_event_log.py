"""The event log's contract, over every store: a list that survives, read by topic and position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.stores import OpenStore
from tidewire.errors import ReplayIdExpired, SchemaUnknown
from tidewire.eventlog.log import EventLog, first_position_after, first_position_at
from tidewire.events import Event, EventDraft, Family
from tidewire.storage.sqlite import SqliteStore
from tidewire.storage.store import (
    BufferedInserts,
    Progress,
    Reader,
    Row,
    SqlValue,
    Store,
    Transaction,
    read_progress,
)
from tidewire.storage.writer import GroupWriter

FIRST = 5000
HOUR_MS = 3_600_000
T = TypeVar("T")


def ignore_commits(transactions: list[Transaction], progress: Progress) -> None:
    pass


@dataclass
class OpenLog:
    """A log on a real store."""

    place: OpenStore
    make_log: Callable[[], EventLog]
    store: Store = field(init=False)
    writer: GroupWriter = field(init=False)
    log: EventLog = field(init=False)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = self.place(FIRST)
        self.writer = GroupWriter(self.store, ignore_commits)
        self.writer.start()
        self.log = self.make_log()

    def close(self) -> None:
        self.writer.stop()
        self.store.close()

    async def append(self, drafts: Sequence[EventDraft], now_ms: int = 0) -> list[Event]:
        return await self.writer.submit(lambda tx: self.log.append(tx, drafts, now_ms))

    async def trim(self, family: Family, before_ms: int) -> int:
        return await self.writer.submit(lambda tx: self.log.trim(tx, family, before_ms))

    async def read(self, work: Callable[[Reader], T]) -> T:
        return await self.store.read(work)

    async def is_known(self, position: int) -> bool:
        return await self.read(lambda r: self.log.is_position_known(r, position))

    async def after(
        self,
        family: Family,
        topics: Sequence[str],
        position: int,
        max_events: int = 1000,
        max_bytes: int = 1 << 20,
    ) -> tuple[list[Event], int]:
        page = await self.read(
            lambda r: self.log.read_after(r, family, frozenset(topics), position, max_events, max_bytes)
        )
        return list(page.events), page.through


@pytest.fixture
async def log(new_place: Callable[[], OpenStore], new_log: Callable[[], EventLog]) -> AsyncIterator[OpenLog]:
    opened = OpenLog(new_place(), new_log)
    yield opened
    opened.close()


def draft(topic: str, family: Family = Family.CHANGE, payload: bytes = b"x") -> EventDraft:
    return EventDraft(topic, family, payload, created_ms=7, schema_id="s", event_uuid="u")


async def test_positions_rise_from_the_first_and_name_the_transactions_last(log: OpenLog) -> None:
    one = await log.append([draft("A"), draft("B")])
    two = await log.append([draft("A")])
    assert [e.position for e in one + two] == [FIRST, FIRST + 1, FIRST + 2]
    assert [e.transaction_last for e in one + two] == [FIRST + 1, FIRST + 1, FIRST + 2]


async def test_large_transaction_is_omitted_from_the_batch_and_ends_together(log: OpenLog) -> None:
    drafts = [draft("A"), *(draft("B") for _ in range(4998)), draft("P", Family.PUSH_TOPIC)]
    last = FIRST + 4999

    def work(tx: Transaction) -> tuple[list[Event], dict[str, int]]:
        log.log.append_paged(tx, iter(drafts), 0)
        return list(tx.events), dict(tx.omitted)

    before = await log.append([draft("A")])
    assert await log.writer.submit(work) == ([], {"A": FIRST + 1, "B": last, "P": last + 1})
    changes: list[Event] = []
    while not changes or changes[-1].position < last:
        changes += (await log.after(Family.CHANGE, ["A", "B"], FIRST + len(changes)))[0]
    pushed, _ = await log.after(Family.PUSH_TOPIC, ["P"], FIRST)
    assert [e.position for e in (*changes, *pushed)] == list(range(FIRST + 1, last + 2))
    assert {e.transaction_last for e in (*changes, *pushed)} == {last + 1}
    assert (await log.after(Family.CHANGE, ["A"], FIRST - 1))[0] == [before[0], changes[0]]


async def test_small_transaction_is_in_the_batch(log: OpenLog) -> None:
    def work(tx: Transaction) -> tuple[list[Event], dict[str, int]]:
        log.log.append_paged(tx, iter([draft("A"), draft("B")]), 0)
        log.log.append_paged(tx, iter(()), 0)
        return list(tx.events), dict(tx.omitted)

    told, left_out = await log.writer.submit(work)
    assert left_out == {}
    assert (await log.after(Family.CHANGE, ["A", "B"], FIRST - 1))[0] == told


async def test_what_is_read_equals_what_was_appended(log: OpenLog) -> None:
    stored = await log.append([draft("A", payload=b"\x00\xff"), draft("B"), draft("A")])
    events, through = await log.after(Family.CHANGE, ["A", "B"], FIRST - 1)
    assert events == stored
    assert through == FIRST + 2


async def test_append_uniform_stores_the_same_as_append(log: OpenLog) -> None:
    bodies = [("u1", b"\x00\xff"), ("u2", b""), ("u1", b"x" * 3000)]

    def work(tx: Transaction) -> tuple[int, list[Event]]:
        first = log.log.append_uniform(tx, "A", Family.PLATFORM, "s", bodies, 9)
        return first, list(tx.events)

    (before,) = await log.append([draft("A", Family.PLATFORM)])
    first, told = await log.writer.submit(work)
    (behind,) = await log.append([draft("A", Family.PLATFORM)])
    last = FIRST + 3
    assert told == [
        Event(FIRST + 1 + n, "A", Family.PLATFORM, payload, 9, "s", event_uuid, last)
        for n, (event_uuid, payload) in enumerate(bodies)
    ]
    assert first == FIRST + 1
    assert (await log.after(Family.PLATFORM, ["A"], FIRST - 1))[0] == [before, *told, behind]


async def test_read_is_strictly_after_and_of_the_named_topics_only(log: OpenLog) -> None:
    stored = await log.append([draft("A"), draft("B"), draft("A"), draft("C")])
    events, through = await log.after(Family.CHANGE, ["A"], stored[0].position)
    assert events == [stored[2]]
    assert through == stored[3].position


async def test_families_do_not_mix(log: OpenLog) -> None:
    stored = await log.append([draft("A"), draft("P", Family.PUSH_TOPIC)])
    assert (await log.after(Family.PUSH_TOPIC, ["A", "P"], FIRST - 1))[0] == [stored[1]]


async def test_page_stops_at_its_limits_and_says_how_far_it_went(log: OpenLog) -> None:
    stored = await log.append([draft("A", payload=b"x" * 100) for _ in range(10)])
    by_count, through = await log.after(Family.CHANGE, ["A"], FIRST - 1, max_events=3)
    assert (by_count, through) == (stored[:3], stored[2].position)
    by_bytes, through = await log.after(Family.CHANGE, ["A"], FIRST - 1, max_bytes=250)
    assert (by_bytes, through) == (stored[:2], stored[1].position)
    one_large, _ = await log.after(Family.CHANGE, ["A"], FIRST - 1, max_bytes=1)
    assert one_large == stored[:1]


async def test_many_topics_are_read_in_one_order(log: OpenLog) -> None:
    topics = [f"T{n}" for n in range(12)]
    stored = await log.append([draft(topics[n % 12]) for n in range(60)])
    assert (await log.after(Family.CHANGE, topics, FIRST - 1))[0] == stored
    assert (await log.after(Family.CHANGE, topics[:3], FIRST - 1, max_events=4))[0] == [
        e for e in stored if e.topic in topics[:3]
    ][:4]


async def test_events_over_several_hours_are_read_in_order(log: OpenLog) -> None:
    stored = []
    for hour in (1, 2, 2, 5):
        stored += await log.append([draft("A")], now_ms=hour * HOUR_MS)
    assert (await log.after(Family.CHANGE, ["A"], FIRST - 1))[0] == stored
    assert (await log.after(Family.CHANGE, ["A"], stored[1].position))[0] == stored[2:]


async def test_clock_stepping_back_does_not_disturb_the_order(log: OpenLog) -> None:
    stored = []
    for hour in (10, 3, 11, 4):
        stored += await log.append([draft("A")], now_ms=hour * HOUR_MS)
    assert (await log.after(Family.CHANGE, ["A"], FIRST - 1))[0] == stored


async def test_trim_drops_old_hours_and_remembers_through_where(log: OpenLog) -> None:
    stored = []
    for hour in (1, 2, 3):
        stored += await log.append([draft("A")], now_ms=hour * HOUR_MS)
    dropped = await log.writer.submit(lambda tx: log.log.trim(tx, Family.CHANGE, 3 * HOUR_MS))
    assert dropped == 2
    bounds = await log.read(lambda r: log.log.read_bounds(r, Family.CHANGE))
    assert (bounds.trimmed_through, bounds.head) == (stored[1].position, stored[2].position)
    assert (await log.after(Family.CHANGE, ["A"], bounds.trimmed_through))[0] == [stored[2]]


async def test_trim_leaves_other_families_alone(log: OpenLog) -> None:
    stored = await log.append([draft("A"), draft("P", Family.PUSH_TOPIC)], now_ms=HOUR_MS)
    assert await log.trim(Family.CHANGE, 100 * HOUR_MS) == 1
    assert (await log.after(Family.PUSH_TOPIC, ["P"], FIRST - 1))[0] == stored[1:]


async def test_trim_drops_the_newest_hour_too_and_appends_continue(log: OpenLog) -> None:
    old = await log.append([draft("A")], now_ms=5 * HOUR_MS)
    other = await log.append([draft("P", Family.PUSH_TOPIC)], now_ms=5 * HOUR_MS)
    assert await log.trim(Family.CHANGE, 100 * HOUR_MS) == 1
    bounds = await log.read(lambda r: log.log.read_bounds(r, Family.CHANGE))
    # Whoever has seen the last dropped event has lost nothing and may go on.
    assert (bounds.trimmed_through, bounds.head) == (old[0].position, other[0].position)
    new = await log.append([draft("A")], now_ms=3 * HOUR_MS)
    assert (await log.after(Family.CHANGE, ["A"], old[0].position))[0] == new


async def test_trim_and_append_in_one_group_do_not_meet_in_a_dropped_table(log: OpenLog) -> None:
    await log.append([draft("A")], now_ms=HOUR_MS)
    old, _, new = await asyncio.gather(
        log.append([draft("A")], now_ms=HOUR_MS),
        log.trim(Family.CHANGE, 2 * HOUR_MS),
        log.append([draft("A")], now_ms=HOUR_MS),
    )
    newer = await log.append([draft("A")], now_ms=HOUR_MS)
    assert (await log.after(Family.CHANGE, ["A"], old[0].position))[0] == new + newer


async def test_read_after_a_trimmed_event_is_rejected(log: OpenLog) -> None:
    stored = []
    for hour in (1, 2, 3):
        stored += await log.append([draft("A")], now_ms=hour * HOUR_MS)
    await log.trim(Family.CHANGE, 3 * HOUR_MS)
    with pytest.raises(ReplayIdExpired):
        await log.after(Family.CHANGE, ["A"], stored[0].position)
    assert (await log.after(Family.CHANGE, ["A"], stored[1].position))[0] == stored[2:]


async def test_time_finds_the_first_event_that_is_not_older(log: OpenLog) -> None:
    times = [HOUR_MS + 5, HOUR_MS + 5, HOUR_MS + 9, 2 * HOUR_MS, 4 * HOUR_MS, 4 * HOUR_MS + 1]
    stored = []
    for time_ms in times:
        other = draft("P", Family.PLATFORM)._replace(created_ms=time_ms)
        await log.append([other], now_ms=time_ms)
        stored += await log.append([draft("A")._replace(created_ms=time_ms)], now_ms=time_ms)

    async def since(time_ms: int) -> list[Event]:
        position = await log.read(lambda r: log.log.find_time(r, Family.CHANGE, time_ms))
        return (await log.after(Family.CHANGE, ["A"], position))[0]

    for time_ms in (0, *times, HOUR_MS + 6, 3 * HOUR_MS, 9 * HOUR_MS):
        assert await since(time_ms) == [event for event in stored if event.created_ms >= time_ms]


async def test_sizes_count_events_that_are_not_trimmed(log: OpenLog) -> None:
    await log.append([draft("A"), draft("A"), draft("P", Family.PUSH_TOPIC)], now_ms=HOUR_MS)
    await log.append([draft("A"), draft("B")], now_ms=2 * HOUR_MS)

    async def counts() -> dict[Family, int]:
        return {size.family: size.events for size in await log.read(log.log.read_sizes) if size.events}

    assert await counts() == {Family.CHANGE: 4, Family.PUSH_TOPIC: 1}
    await log.trim(Family.CHANGE, 2 * HOUR_MS)
    assert await counts() == {Family.CHANGE: 2, Family.PUSH_TOPIC: 1}


async def test_schema_is_found_by_its_topic_only(log: OpenLog) -> None:
    await log.writer.submit(lambda tx: log.log.append_schema(tx, "s1", "A", "{}"))
    await log.writer.submit(lambda tx: log.log.append_schema(tx, "s1", "A", "{}"))
    assert await log.read(log.log.count_schemas) == 1
    assert await log.read(lambda r: log.log.try_read_topic_schema(r, "s1", "A")) == "{}"
    assert await log.read(lambda r: log.log.try_read_topic_schema(r, "s1", "B")) is None


async def test_search_over_many_rare_topics_ends_early_and_continues(log: OpenLog) -> None:
    rare = [f"R{n}" for n in range(10)]
    await log.append([draft(topic) for topic in rare])
    await log.append([draft("common") for _ in range(25_000)])
    last = await log.append([draft("R3")])
    position, pages = FIRST + 9, []
    while position < last[0].position:
        events, through = await log.after(Family.CHANGE, rare, position)
        assert through > position
        position = through
        pages.append(events)
    assert pages == [[], last]


async def test_page_of_large_events_reads_no_more_than_its_bytes(log: OpenLog) -> None:
    stored = await log.append([draft("A", payload=b"x" * 200_000) for _ in range(40)])
    read_bytes = 0

    class Counting:
        def __init__(self, reader: Reader) -> None:
            self._reader = reader

        def execute(self, sql: str, params: Sequence[SqlValue] = ()) -> list[Row]:
            nonlocal read_bytes
            rows = self._reader.execute(sql, params)
            read_bytes += sum(len(v) for row in rows for v in row if isinstance(v, bytes))
            return rows

    page = await log.read(
        lambda r: log.log.read_after(Counting(r), Family.CHANGE, frozenset({"A"}), FIRST - 1, 500, 1 << 20)
    )
    assert list(page.events) == stored[:5]
    assert read_bytes == 5 * 200_000


async def test_positions_outside_the_log_are_not_known(log: OpenLog) -> None:
    stored = await log.append([draft("A"), draft("A")])

    known = {p: await log.is_known(p) for p in (0, FIRST - 2, FIRST - 1, FIRST, stored[1].position)}
    assert known == {0: False, FIRST - 2: False, FIRST - 1: True, FIRST: True, stored[1].position: True}
    assert not await log.is_known(stored[1].position + 1)


async def test_failed_transaction_leaves_no_event_and_no_gap(log: OpenLog) -> None:
    def fail(tx: Transaction) -> None:
        log.log.append(tx, [draft("A"), draft("NEW")], 0)
        raise SchemaUnknown("no")

    with pytest.raises(SchemaUnknown):
        await log.writer.submit(fail)
    stored = await log.append([draft("NEW")])
    assert stored[0].position == FIRST
    assert (await log.after(Family.CHANGE, ["A", "NEW"], FIRST - 1))[0] == stored


async def test_schema_is_kept_under_its_id(log: OpenLog) -> None:
    await log.writer.submit(lambda tx: log.log.append_schema(tx, "id1", "A", "{}"))
    await log.writer.submit(lambda tx: log.log.append_schema(tx, "id1", "A", "{}"))
    assert await log.read(lambda r: log.log.read_schema(r, "id1")) == "{}"
    with pytest.raises(SchemaUnknown):
        await log.read(lambda r: log.log.read_schema(r, "id2"))


async def test_read_during_a_trim_is_complete_or_rejected(log: OpenLog) -> None:
    stored = []
    for hour in (1, 2):
        stored += await log.append([draft("A")], now_ms=hour * HOUR_MS)
    loop = asyncio.get_running_loop()
    reads = 0

    async def trim() -> None:
        await log.writer.submit(lambda tx: log.log.trim(tx, Family.CHANGE, 3 * HOUR_MS))

    def read_slowly(reader: Reader) -> list[Event]:
        nonlocal reads
        reads += 1
        log.log.read_head(reader)
        if reads == 1:
            asyncio.run_coroutine_threadsafe(trim(), loop).result(120)
        page = log.log.read_after(reader, Family.CHANGE, frozenset({"A"}), FIRST - 1, 10, 1 << 20)
        return list(page.events)

    # SQLite's snapshot still holds the tables. PostgreSQL's does not, and the read starts anew.
    if isinstance(log.store, SqliteStore):
        assert await log.read(read_slowly) == stored
    else:
        with pytest.raises(ReplayIdExpired):
            await log.read(read_slowly)


def test_incarnations_started_apart_never_meet() -> None:
    now_ms = 1_794_700_000_000
    first, second = first_position_at(now_ms), first_position_at(now_ms + 1000)
    assert second - first == 1 << 21
    assert first_position_at(now_ms + 100 * 365 * 86_400_000) < 1 << 53


FAMILY_OF = {"A": Family.CHANGE, "B": Family.CHANGE, "C": Family.CHANGE, "P": Family.PUSH_TOPIC}


class LogMachine(RuleBasedStateMachine):
    """The log beside a plain list: appends, failures, crashes, restores, trims and reads from anywhere."""

    def __init__(self, place: OpenStore, make_log: Callable[[], EventLog]) -> None:
        super().__init__()
        self.place = place
        self.make_log = make_log
        self.loop = asyncio.new_event_loop()
        self.hour = 1
        self.next_position = FIRST
        self.incarnations = [FIRST]
        self.model: list[Event] = []
        self.trimmed = dict.fromkeys((Family.CHANGE, Family.PUSH_TOPIC), FIRST - 1)

    @initialize()
    def start(self) -> None:
        self.log = self.run(self._open())

    async def _open(self) -> OpenLog:
        return OpenLog(self.place, self.make_log)

    def run(self, work: Coroutine[None, None, T]) -> T:
        return self.loop.run_until_complete(work)

    @rule(topics=st.lists(st.sampled_from("ABCP"), min_size=1, max_size=4), hours=st.integers(-1, 2))
    def append(self, topics: list[str], hours: int) -> None:
        self.hour = max(1, self.hour + hours)
        drafts = [draft(t, FAMILY_OF[t], str(len(self.model)).encode()) for t in topics]
        events = self.run(self.log.append(drafts, self.hour * HOUR_MS))
        first = self.next_position
        assert [e.position for e in events] == list(range(first, first + len(topics)))
        assert [(e.topic, e.payload) for e in events] == [(d.topic, d.payload) for d in drafts]
        self.next_position += len(topics)
        self.model += events

    @rule()
    def append_and_fail(self) -> None:
        def fail(tx: Transaction) -> None:
            self.log.log.append(tx, [draft("A"), draft("P", Family.PUSH_TOPIC)], self.hour * HOUR_MS)
            raise SchemaUnknown("no")

        async def attempt() -> None:
            with pytest.raises(SchemaUnknown):
                await self.log.writer.submit(fail)

        self.run(attempt())

    @rule()
    def crash(self) -> None:
        """Begin anew beside a connection that was left in the middle of an append, as a killed process does."""

        async def again() -> None:
            self.log.writer.stop()
            connection = self.log.store.connect_writer()
            connection.begin()
            tx = Transaction(connection, read_progress(connection), BufferedInserts())
            self.log.log.append(tx, [draft("A"), draft("new")], (self.hour + 1) * HOUR_MS)
            tx.finish()
            connection.close()
            self.log.store.close()
            self.log.open()

        self.run(again())

    @rule()
    def restore(self) -> None:
        """End the incarnation and begin another, as a restored copy does."""

        async def again() -> None:
            head = await self.log.read(self.log.log.read_head)
            first = first_position_after(head, 0, 0)
            self.log.writer.stop()
            connection = self.log.store.connect_writer()
            connection.begin()
            for statement in self.log.log.incarnation_statements(head, first):
                connection.execute(statement)
            connection.commit()
            connection.close()
            self.log.store.close()
            self.log.open()
            assert not await self.log.is_known(head + 1)
            assert not await self.log.is_known(first - 2)
            assert await self.log.is_known(first - 1)
            self.next_position = first
            self.incarnations.append(first)

        if len(self.incarnations) < 4:
            self.run(again())

    @rule(age=st.integers(-2, 3), family=st.sampled_from((Family.CHANGE, Family.PUSH_TOPIC)))
    def trim(self, age: int, family: Family) -> None:
        async def drop() -> int:
            await self.log.trim(family, (self.hour - age) * HOUR_MS)
            bounds = await self.log.read(lambda r: self.log.log.read_bounds(r, family))
            assert bounds.head == self.next_position - 1
            return bounds.trimmed_through

        trimmed = self.run(drop())
        assert trimmed >= self.trimmed[family]
        # Exactly the dropped events are forgotten: the mark is the last of them.
        assert trimmed == FIRST - 1 or trimmed in {e.position for e in self.model if e.family is family}
        self.trimmed[family] = trimmed

    @rule(
        topics=st.sets(st.sampled_from("ABC"), min_size=1),
        skip=st.integers(0, 20),
        limit=st.integers(1, 5),
        max_bytes=st.integers(1, 8),
    )
    def replay(self, topics: set[str], skip: int, limit: int, max_bytes: int) -> None:
        trimmed = self.trimmed[Family.CHANGE]
        given = [FIRST - 1, *(e.position for e in self.model)]
        position = given[skip % len(given)]
        if position < trimmed:
            with pytest.raises(ReplayIdExpired):
                self.run(self.log.after(Family.CHANGE, sorted(topics), position, limit))
            position = trimmed
        expected = [e for e in self.model if e.position > position and e.topic in topics]
        seen: list[Event] = []
        while True:
            page = self.log.after(Family.CHANGE, sorted(topics), position, limit, max_bytes)
            events, through = self.run(page)
            seen += events
            if through == position:
                break
            position = through
        assert seen == expected

    @rule(family=st.sampled_from((Family.CHANGE, Family.PUSH_TOPIC)))
    def count(self, family: Family) -> None:
        kept = [e for e in self.model if e.family is family and e.position > self.trimmed[family]]
        sizes = {size.family: size for size in self.run(self.log.read(self.log.log.read_sizes))}
        assert (sizes[family].events, sizes[family].is_counted) == (len(kept), True)

    @invariant()
    def positions_rise(self) -> None:
        positions = [e.position for e in self.model]
        assert positions == sorted(set(positions))

    def teardown(self) -> None:
        self.log.close()
        self.loop.close()


def test_log_behaves_like_a_plain_list(
    new_place: Callable[[], OpenStore], new_log: Callable[[], EventLog]
) -> None:
    steps = settings(
        max_examples=25,
        stateful_step_count=20,
        deadline=None,
        # The fixture makes places; each example asks it for another one.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )

    class Machine(LogMachine):
        def __init__(self) -> None:
            super().__init__(new_place(), new_log)

    run_state_machine_as_test(Machine, settings=steps)
