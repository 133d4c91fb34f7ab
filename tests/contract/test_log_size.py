"""What the log keeps is counted alike on every store, on and on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.stores import OpenStore
from tidewire.eventlog import sql_size
from tidewire.eventlog.log import EventLog, FamilySize
from tidewire.events import EventDraft, Family
from tidewire.storage.store import Progress, Store, Transaction
from tidewire.storage.writer import GroupWriter

HOUR_MS = 3_600_000


def ignore_commits(transactions: list[Transaction], progress: Progress) -> None:
    pass


class OpenLog:
    """A log on a real store, and how much it keeps."""

    def __init__(self, place: OpenStore, event_log: EventLog) -> None:
        self.store: Store = place(5000)
        self.writer = GroupWriter(self.store, ignore_commits)
        self.writer.start()
        self.log = event_log

    async def append(self, family: Family, *payloads: bytes, hour: int = 0) -> None:
        made_ms = hour * HOUR_MS + 5
        drafts = [EventDraft("T", family, payload, made_ms, "s", "u") for payload in payloads]
        await self.writer.submit(lambda tx: self.log.append(tx, drafts, made_ms))

    async def measure(self, family: Family) -> FamilySize:
        (found,) = [each for each in await self.store.read(self.log.read_sizes) if each.family is family]
        return found


@pytest.fixture
async def log(new_place: Callable[[], OpenStore], new_log: Callable[[], EventLog]) -> AsyncIterator[OpenLog]:
    opened = OpenLog(new_place(), new_log())
    yield opened
    opened.writer.stop()
    opened.store.close()


async def test_family_without_events_keeps_nothing(log: OpenLog) -> None:
    assert await log.measure(Family.CHANGE) == FamilySize(Family.CHANGE, 0, 0, None, True)


async def test_events_of_all_hours_are_counted_and_none_twice(log: OpenLog) -> None:
    await log.append(Family.CHANGE, b"12", b"345")
    await log.append(Family.PLATFORM, b"1")
    assert await log.measure(Family.CHANGE) == FamilySize(Family.CHANGE, 2, 5, 5, True)

    await log.append(Family.CHANGE, b"6789", hour=1)
    assert await log.measure(Family.CHANGE) == FamilySize(Family.CHANGE, 3, 9, 5, True)
    assert await log.measure(Family.CHANGE) == FamilySize(Family.CHANGE, 3, 9, 5, True)
    assert (await log.measure(Family.PLATFORM)).events == 1


async def test_trimmed_events_count_no_more(log: OpenLog) -> None:
    await log.append(Family.CHANGE, b"12", b"345")
    await log.append(Family.CHANGE, b"6789", hour=2)
    await log.measure(Family.CHANGE)
    await log.writer.submit(lambda tx: log.log.trim(tx, Family.CHANGE, HOUR_MS))

    assert await log.measure(Family.CHANGE) == FamilySize(Family.CHANGE, 1, 4, 2 * HOUR_MS + 5, True)


async def test_large_log_is_counted_a_piece_at_a_time(log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_size, "_ROWS_AT_ONCE", 4)
    await log.append(Family.CHANGE, *[b"x"] * 6)
    await log.append(Family.CHANGE, *[b"x"] * 3, hour=1)

    seen = [await log.measure(Family.CHANGE) for _ in range(3)]

    assert [(each.events, each.is_counted) for each in seen] == [(4, False), (8, False), (9, True)]
