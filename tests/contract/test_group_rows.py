"""Rows that the members of one group leave to be inserted together: each member still stands or falls alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.stores import OpenStore
from tidewire.errors import DuplicateValue, PlatformError
from tidewire.records.numbers import take_number
from tidewire.records.service import ShortReads
from tidewire.storage.store import Progress, Reader, Row, Store, Transaction
from tidewire.storage.writer import GroupWriter

INSERT = "INSERT INTO numbers (name, next) VALUES (?, ?)"
NAMES = "SELECT name FROM numbers ORDER BY name"
COUNT = "SELECT COUNT(*) FROM numbers"


class Opened:
    """A store and its writer, and how many transactions each of its groups had."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.groups: list[int] = []
        self.writer = GroupWriter(store, self._note)
        self.writer.start()

    def _note(self, transactions: list[Transaction], progress: Progress) -> None:
        self.groups.append(len(transactions))

    async def run(self, *works: Callable[[Transaction], object]) -> list[object]:
        """Hand all of them in at once: what each returned or raised."""
        waits = [self.writer.submit(work) for work in works]
        return await asyncio.gather(*waits, return_exceptions=True)

    async def names(self) -> list[str]:
        rows: list[Row] = await self.store.read(lambda reader: reader.execute(NAMES))
        return [str(name) for (name,) in rows]


@pytest.fixture
async def opened(new_place: Callable[[], OpenStore]) -> AsyncIterator[Opened]:
    one = Opened(new_place()(1))
    yield one
    one.writer.stop()
    one.store.close()


def leave(*names: str) -> Callable[[Transaction], None]:
    """Work that leaves rows to be inserted later."""

    def work(tx: Transaction) -> None:
        for name in names:
            tx.buffer_insert(INSERT, (name, 1))

    return work


def leave_and_fail(*names: str) -> Callable[[Transaction], None]:
    """Work that leaves rows and then raises."""

    def work(tx: Transaction) -> None:
        leave(*names)(tx)
        raise DuplicateValue("no", fields=[])

    return work


def write_and_fail(tx: Transaction) -> None:
    """Work that has written something when it raises."""
    tx.execute(INSERT, ("written", 1))
    raise DuplicateValue("no", fields=[])


def count(tx: Transaction) -> int:
    """How many rows a statement of this member finds."""
    ((found,),) = tx.execute(COUNT)
    return int(found)


async def test_works_handed_in_together_are_one_group(opened: Opened) -> None:
    await opened.run(leave("a"), leave("b"), leave("c"))
    assert opened.groups == [3]


async def test_statement_sees_the_rows_that_earlier_members_left(opened: Opened) -> None:
    assert (await opened.run(leave("a", "b"), count, leave("c"), count))[1::2] == [2, 3]


async def test_read_past_own_rows_sees_those_of_earlier_members(opened: Opened) -> None:
    def work(tx: Transaction) -> int:
        tx.buffer_insert(INSERT, ("own", 1))
        ((found,),) = tx.stored.execute(COUNT)
        return int(found)

    assert (await opened.run(leave("a"), work))[1] == 1
    assert await opened.names() == ["a", "own"]


async def test_member_that_fails_takes_only_its_own_rows_along(opened: Opened) -> None:
    results = await opened.run(leave("a"), leave_and_fail("b"), leave("c"))
    assert [type(r) for r in results] == [type(None), DuplicateValue, type(None)]
    assert await opened.names() == ["a", "c"]


async def test_member_that_fails_after_a_write_leaves_the_rows_of_the_others(opened: Opened) -> None:
    results = await opened.run(leave("a"), write_and_fail, leave("c"))
    assert isinstance(results[1], DuplicateValue)
    assert await opened.names() == ["a", "c"]


async def test_read_that_the_database_refuses_fails_its_member_only(opened: Opened) -> None:
    def wrong(tx: Transaction) -> None:
        tx.buffer_insert(INSERT, ("wrong", 1))
        tx.stored.execute("SELECT nothing FROM nowhere")

    results = await opened.run(leave("a"), wrong, leave("c"))
    assert isinstance(results[1], PlatformError)
    assert results[::2] == [None, None]
    assert await opened.names() == ["a", "c"]


async def test_refused_read_that_the_work_overlooks_still_leaves_the_group_whole(opened: Opened) -> None:
    def careless(tx: Transaction) -> str:
        try:
            tx.execute("SELECT nothing FROM nowhere")
        except opened.store.driver_errors:
            return "overlooked"
        return "found"

    results = await opened.run(leave("a"), careless, leave("c"))
    assert results[::2] == [None, None]
    assert await opened.names() == ["a", "c"]


async def test_row_that_fits_no_column_fails_its_member_only(opened: Opened) -> None:
    results = await opened.run(leave("a"), lambda tx: tx.buffer_insert(INSERT, ("b", 2**80)), leave("c"))
    assert isinstance(results[1], PlatformError)
    assert results[::2] == [None, None]
    assert await opened.names() == ["a", "c"]


async def test_same_key_twice_fails_the_later_member_only(opened: Opened) -> None:
    results = await opened.run(leave("a"), leave("b"), leave("a"))
    assert results[:2] == [None, None]
    assert isinstance(results[2], PlatformError)
    assert await opened.names() == ["a", "b"]


async def test_numbers_of_a_member_that_fails_go_to_the_next_of_its_group(opened: Opened) -> None:
    def fail(tx: Transaction) -> None:
        take_number(tx, "n")
        take_number(tx, "n")
        raise DuplicateValue("no", fields=[])

    def take(tx: Transaction) -> int:
        return take_number(tx, "n")

    assert (await opened.run(take, fail, take))[::2] == [1, 2]
    assert await opened.run(take) == [3]


async def test_numbers_are_as_before_if_a_whole_group_fails(opened: Opened) -> None:
    def fail(tx: Transaction) -> None:
        take_number(tx, "n")
        raise DuplicateValue("no", fields=[])

    await opened.run(fail, fail)
    assert await opened.names() == []
    assert await opened.run(lambda tx: take_number(tx, "n")) == [1]


async def test_rows_beyond_what_may_wait_are_stored_too(opened: Opened) -> None:
    many = [leave(*(f"{m}/{n}" for n in range(900))) for m in range(5)]
    assert await opened.run(*many) == [None] * 5
    assert len(await opened.names()) == 4500


async def test_work_handed_in_before_the_stop_is_finished(opened: Opened) -> None:
    wait = opened.writer.submit(leave("last"))
    opened.writer.stop()
    await wait
    assert await opened.names() == ["last"]


async def test_brief_reads_of_one_turn_fail_one_by_one(opened: Opened) -> None:
    await opened.run(leave("a"))
    reads = ShortReads(opened.store)

    def wrong(reader: Reader) -> None:
        reader.execute("SELECT nothing FROM nowhere")

    def right(reader: Reader) -> list[Row]:
        return reader.execute(NAMES)

    asked = [reads.read(w) for w in (right, wrong, right, wrong, right)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert results[::2] == [[("a",)]] * 3
    assert all(isinstance(r, opened.store.driver_errors) for r in results[1::2])


async def test_brief_read_sees_a_commit_that_was_acknowledged_before(opened: Opened) -> None:
    reads = ShortReads(opened.store)
    for n in range(20):
        await opened.run(leave(f"{n:02}"))
        assert len(await reads.read(lambda reader: reader.execute(NAMES))) == n + 1


async def test_more_brief_reads_than_one_transaction_takes_are_all_answered(opened: Opened) -> None:
    reads = ShortReads(opened.store)
    asked = [reads.read(lambda reader, n=n: (n, reader.execute(COUNT)[0][0])) for n in range(200)]  # type: ignore[misc]
    assert await asyncio.gather(*asked) == [(n, 0) for n in range(200)]


async def test_abandoned_brief_read_does_not_disturb_the_others(opened: Opened) -> None:
    reads = ShortReads(opened.store)
    gone = asyncio.ensure_future(reads.read(lambda reader: reader.execute(COUNT)))
    kept = asyncio.ensure_future(reads.read(lambda reader: reader.execute(COUNT)))
    await asyncio.sleep(0)
    gone.cancel()
    assert await kept == [(0,)]


@pytest.mark.parametrize("count", [1, 7, 8, 31, 32, 41, 77])
async def test_any_number_of_rows_at_once_is_stored_whole(opened: Opened, count: int) -> None:
    names = [f"n{n:03}" for n in range(count)]
    await opened.run(lambda tx: tx.execute_many(INSERT, [(name, 1) for name in names]))
    assert await opened.names() == names


async def test_many_rows_of_a_statement_that_is_no_plain_insert_are_each_run(opened: Opened) -> None:
    upsert = INSERT + " ON CONFLICT (name) DO UPDATE SET next = numbers.next + 1"
    await opened.run(lambda tx: tx.execute_many(upsert, [(f"n{n % 10}", 1) for n in range(50)]))
    rows = await opened.store.read(
        lambda reader: reader.execute("SELECT name, next FROM numbers ORDER BY name")
    )
    assert rows == [(f"n{n}", 5) for n in range(10)]


async def test_row_that_cannot_be_stored_among_many_fails_alone(opened: Opened) -> None:
    works = [leave(f"n{n:03}") for n in range(50)]
    works[20] = leave("n010")
    results = await opened.run(*works)
    assert [n for n, result in enumerate(results) if isinstance(result, PlatformError)] == [20]
    assert await opened.names() == [f"n{n:03}" for n in range(50) if n != 20]


async def test_solo_work_between_others_is_a_group_of_its_own(opened: Opened) -> None:
    waits = [opened.writer.submit(leave(f"n{n}"), exclusive=n in (2, 3)) for n in range(6)]
    await asyncio.gather(*waits)
    assert opened.groups == [2, 1, 1, 2]
