"""Ranges of the log over every store: what is planned, what is exported and what was appended agree."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.contract.test_event_log import FIRST, HOUR_MS, OpenLog, draft
from tests.orgs import open_org
from tests.postgres import PostgresServer
from tests.stores import OpenStore
from tidewire.errors import ReplayIdExpired
from tidewire.eventlog.log import EventLog, Incarnation, Positions
from tidewire.events import Family
from tidewire.matching.log_ranges import LogRanges

pytestmark = pytest.mark.anyio


@pytest.fixture
async def log(new_place: Callable[[], OpenStore], new_log: Callable[[], EventLog]) -> AsyncIterator[OpenLog]:
    opened = OpenLog(new_place(), new_log)
    yield opened
    opened.close()


async def positions(log: OpenLog, topics: list[str], after: int, max_events: int = 1000) -> Positions:
    return await log.read(
        lambda r: log.log.read_positions(r, Family.CHANGE, frozenset(topics), after, max_events)
    )


@pytest.mark.parametrize("others", [0, 12])
async def test_positions_are_those_of_the_events_that_a_page_has(log: OpenLog, others: int) -> None:
    for hour in range(3):
        topics = ["A", "B", "C", *(f"T{n}" for n in range(others))]
        await log.append([draft(topic) for topic in topics] * 3, now_ms=hour * HOUR_MS)
    wanted = ["A", "B", *(f"T{n}" for n in range(others))]
    events, through = await log.after(Family.CHANGE, wanted, FIRST - 1)
    found = await positions(log, wanted, FIRST - 1)
    assert found == Positions(tuple(event.position for event in events), through)
    cut = await positions(log, wanted, events[1].position, 4)
    assert cut == Positions(tuple(event.position for event in events[2:6]), events[5].position)
    assert await positions(log, ["Z"], FIRST - 1) == Positions((), through)


async def test_positions_after_a_trimmed_event_are_rejected(log: OpenLog) -> None:
    await log.append([draft("A")])
    await log.append([draft("A")], now_ms=5 * HOUR_MS)
    await log.trim(Family.CHANGE, 2 * HOUR_MS)
    with pytest.raises(ReplayIdExpired):
        await positions(log, ["A"], FIRST - 1)


async def test_log_lists_its_incarnations(log: OpenLog) -> None:
    await log.append([draft("A")])
    assert await log.read(log.log.read_incarnations) == (Incarnation(FIRST, None),)


async def test_ranges_of_an_org_on_postgres_hold_what_was_committed(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    async with open_org(tmp_path / "org", store=postgres.make_url()) as org:
        ranges = LogRanges(org.gate, org.core.log, org.core.capture)
        for i in range(5):
            await org.make_account(f"Range {i}")
        start = await ranges.start(org.admin, "/data/ChangeEvents", 0)
        page = await ranges.read_page(org.admin, "/data/ChangeEvents", start, start.after, 100)
        plan = await ranges.plan(org.admin, "/data/ChangeEvents", 0, None, 100, 2)
        assert [event.topic for event in page.events][-5:] == ["AccountChangeEvent"] * 5
        assert sum(rows for _, rows in plan.parts) == len(page.events)
        assert plan.through == page.through == start.state.head
