"""Rows that are stored many at a time, over every store: nobody can tell, except by the clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.stores import OpenStore
from tidewire.errors import DuplicateValue, WriteConflict
from tidewire.records.numbers import take_number
from tidewire.storage.store import Progress, Row, SqlValue, Store, Transaction
from tidewire.storage.writer import GroupWriter

INSERT = "INSERT INTO numbers (name, next) VALUES (?, ?)"
WORDS = ["", "\\N", "a\tb", "a\nb\r\n", "back\\slash", "'quoted\"", "\\.", "Zürich", "\U0001f600", " blank "]


class Opened:
    """A store and its writer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.writer = GroupWriter(store, _ignore)
        self.writer.start()

    async def rows(self, sql: str) -> list[Row]:
        return await self.store.read(lambda reader: reader.execute(sql))


def _ignore(transactions: list[Transaction], progress: Progress) -> None:
    """Nobody subscribes here."""


@pytest.fixture
async def opened(new_place: Callable[[], OpenStore]) -> AsyncIterator[Opened]:
    one = Opened(new_place()(1))
    yield one
    one.writer.stop()
    one.store.close()


@pytest.mark.parametrize("copies", [1, 10], ids=["few rows", "many rows"])
async def test_values_of_every_kind_come_back_as_they_were_stored(opened: Opened, copies: int) -> None:
    rows: list[tuple[SqlValue, ...]] = []
    for n, word in enumerate(WORDS[:copies]):
        rows.append((f"{n}", word, 2**53 + n, 0.1 * n, word.encode() + b"\0\xff"))
    rows += [("true", None, True, 3, b""), ("none", None, None, None, None)]

    def work(tx: Transaction) -> None:
        tx.execute("CREATE TABLE kinds (id TEXT PRIMARY KEY, t TEXT, i INTEGER, r REAL, b BLOB)")
        for row in rows:
            tx.buffer_insert("INSERT INTO kinds (id, t, i, r, b) VALUES (?, ?, ?, ?, ?)", row)

    await opened.writer.submit(work)
    assert sorted(await opened.rows("SELECT id, t, i, r, b FROM kinds")) == sorted(rows)


async def test_next_statement_sees_the_rows_that_waited(opened: Opened) -> None:
    def work(tx: Transaction) -> list[int]:
        seen = []
        for turn in range(3):
            for n in range(10):
                tx.buffer_insert(INSERT, (f"{turn}/{n}", n))
            ((count,),) = tx.execute("SELECT COUNT(*) FROM numbers")
            seen.append(int(count))
        tx.buffer_insert(INSERT, ("last", 1))
        tx.execute_many("UPDATE numbers SET next = ? WHERE name = ?", [(99, "last")])
        return seen

    assert await opened.writer.submit(work) == [10, 20, 30]
    assert await opened.rows("SELECT next FROM numbers WHERE name = 'last'") == [(99,)]


async def test_rows_of_work_that_fails_are_not_stored(opened: Opened) -> None:
    def work(tx: Transaction) -> None:
        for n in range(5000):
            tx.buffer_insert(INSERT, (str(n), n))
        raise DuplicateValue("no", fields=[])

    with pytest.raises(DuplicateValue):
        await opened.writer.submit(work)
    assert await opened.rows("SELECT COUNT(*) FROM numbers") == [(0,)]


async def test_row_that_the_database_refuses_at_the_end_undoes_its_own_work_only(opened: Opened) -> None:
    def bad(tx: Transaction) -> None:
        for n in (1, 2, 3, 4, 5, 1):
            tx.buffer_insert(INSERT, (f"bad {n}", n))

    def good(tx: Transaction) -> None:
        tx.buffer_insert(INSERT, ("good", 1))

    failing, fine = opened.writer.submit(bad), opened.writer.submit(good)
    with pytest.raises(WriteConflict):
        await failing
    await fine
    assert await opened.rows("SELECT name FROM numbers") == [("good",)]


async def test_numbers_are_taken_in_order_and_without_gaps(opened: Opened) -> None:
    def take(count: int) -> Callable[[Transaction], list[int]]:
        return lambda tx: [take_number(tx, "n", 5) for _ in range(count)]

    taken = [await opened.writer.submit(take(count)) for count in (1, 2, 700, 1)]
    assert [n for numbers in taken for n in numbers] == list(range(5, 709))
    assert await opened.rows("SELECT next FROM numbers") == [(709,)]


async def test_numbers_of_work_that_fails_are_given_back(opened: Opened) -> None:
    def fail(tx: Transaction) -> None:
        for _ in range(3):
            take_number(tx, "n")
        raise DuplicateValue("no", fields=[])

    await opened.writer.submit(lambda tx: take_number(tx, "n"))
    with pytest.raises(DuplicateValue):
        await opened.writer.submit(fail)
    assert await opened.writer.submit(lambda tx: take_number(tx, "n")) == 2
