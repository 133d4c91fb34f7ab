"""The storage contract, over every store: what a group writer promises whoever hands it work."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidewire.errors import (
    DiskFull,
    DuplicateValue,
    InternalError,
    OutcomeUnknown,
    StoreClosed,
    StoreLocked,
    WriteConflict,
)
from tidewire.storage.sqlite import SqliteConnection, SqliteStore
from tidewire.storage.store import Progress, Store, Transaction, read_progress
from tidewire.storage.writer import GroupWriter

FIRST_POSITION = 1000
OpenStore = Callable[[], Store]


@pytest.fixture
def open_store(new_place: Callable[[], Callable[[int], Store]]) -> Iterator[OpenStore]:
    """Opens the same, at first empty, database again and again."""
    opened: list[Store] = []
    place = new_place()

    def open_again() -> Store:
        store = place(FIRST_POSITION)
        opened.append(store)
        return store

    yield open_again
    for store in opened[-1:]:
        store.close()


class Commits:
    """What a writer announced, in order."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.heads: list[int] = []

    def __call__(self, transactions: list[Transaction], progress: Progress) -> None:
        self.groups.append(len(transactions))
        self.heads.append(progress.next_position)


def started(store: Store, commits: Commits) -> GroupWriter:
    writer = GroupWriter(store, commits)
    writer.start()
    return writer


def put(name: str, value: int) -> Callable[[Transaction], int]:
    def work(tx: Transaction) -> int:
        tx.execute("INSERT INTO numbers (name, next) VALUES (?, ?)", (name, value))
        tx.progress.next_position += 1
        return value

    return work


def fail_after_writing(tx: Transaction) -> int:
    tx.execute("INSERT INTO numbers (name, next) VALUES ('undone', 1)")
    tx.progress.next_position += 100
    raise DuplicateValue("no", fields=[])


async def names(store: Store) -> list[str]:
    rows = await store.read(lambda reader: reader.execute("SELECT name FROM numbers ORDER BY name"))
    return [name for (name,) in rows]


async def test_new_store_starts_at_the_first_position(open_store: OpenStore) -> None:
    store = open_store()
    writer = GroupWriter(store, Commits())
    assert (await store.read(read_progress)).next_position == FIRST_POSITION
    assert writer.progress.group_number == 0


async def test_result_is_given_once_the_work_is_readable(open_store: OpenStore) -> None:
    store, commits = open_store(), Commits()
    writer = started(store, commits)
    assert await writer.submit(put("a", 7)) == 7
    assert await names(store) == ["a"]
    assert commits.groups == [1]
    writer.stop()


async def test_many_submissions_share_commits_and_keep_their_order(open_store: OpenStore) -> None:
    store, commits = open_store(), Commits()
    writer = started(store, commits)
    results = await asyncio.gather(*[writer.submit(put(f"n{i:04}", i)) for i in range(500)])
    assert results == list(range(500))
    assert sum(commits.groups) == 500
    assert len(commits.groups) < 500
    assert commits.heads == sorted(commits.heads)
    assert commits.heads[-1] == FIRST_POSITION + 500
    writer.stop()


async def test_failing_work_is_undone_alone_and_gives_its_numbers_back(open_store: OpenStore) -> None:
    store, commits = open_store(), Commits()
    writer = started(store, commits)
    before, bad, after = await asyncio.gather(
        writer.submit(put("a", 1)),
        writer.submit(fail_after_writing),
        writer.submit(put("b", 2)),
        return_exceptions=True,
    )
    assert (before, after) == (1, 2)
    assert isinstance(bad, DuplicateValue)
    assert await names(store) == ["a", "b"]
    assert writer.progress.next_position == FIRST_POSITION + 2
    writer.stop()


async def test_bug_in_the_work_is_an_internal_error_and_the_writer_lives_on(open_store: OpenStore) -> None:
    store = open_store()
    writer = started(store, Commits())
    with pytest.raises(InternalError):
        await writer.submit(lambda tx: 1 // 0)
    assert await writer.submit(put("a", 1)) == 1
    writer.stop()


async def test_solo_work_commits_by_itself(open_store: OpenStore) -> None:
    store, commits = open_store(), Commits()
    writer = GroupWriter(store, commits)
    waits = [
        writer.submit(put("a", 1)),
        writer.submit(put("b", 2), exclusive=True),
        writer.submit(put("c", 3)),
    ]
    writer.start()
    await asyncio.gather(*waits)
    assert commits.groups == [1, 1, 1]
    writer.stop()


async def test_after_commit_runs_only_for_work_that_was_kept(open_store: OpenStore) -> None:
    store = open_store()
    writer = started(store, Commits())
    ran: list[str] = []

    def good(tx: Transaction) -> None:
        tx.after_commit(lambda: ran.append("good"))

    def bad(tx: Transaction) -> None:
        tx.after_commit(lambda: ran.append("bad"))
        raise DuplicateValue("no", fields=[])

    await asyncio.gather(writer.submit(good), writer.submit(bad), return_exceptions=True)
    assert ran == ["good"]
    writer.stop()


async def test_counters_show_a_commit_only_once_its_callbacks_have_run(open_store: OpenStore) -> None:
    writer = started(open_store(), Commits())
    before = writer.progress.access_generation
    seen: list[int] = []

    def work(tx: Transaction) -> None:
        tx.progress.access_generation += 1
        tx.after_commit(lambda: seen.append(writer.progress.access_generation))

    await writer.submit(work)
    assert [*seen, writer.progress.access_generation] == [before, before + 1]
    writer.stop()


async def test_whole_rollback_by_the_database_reruns_the_innocent(open_store: OpenStore) -> None:
    """SQLITE_FULL and an interrupt roll back the whole transaction, not just the savepoint."""
    store, commits = open_store(), Commits()
    writer = GroupWriter(store, commits)

    def wreck(tx: Transaction) -> int:
        tx.connection.rollback()
        raise store.driver_errors[0]("database or disk is full")

    work = [put("a", 1), fail_after_writing, wreck, put("b", 2)]
    waits = [writer.submit(piece) for piece in work]
    writer.start()
    first, failed, wrecked, last = await asyncio.gather(*waits, return_exceptions=True)
    assert (first, last) == (1, 2)
    assert isinstance(failed, DuplicateValue)
    assert isinstance(wrecked, WriteConflict)
    assert await names(store) == ["a", "b"]
    assert writer.progress.next_position == FIRST_POSITION + 2
    writer.stop()


async def test_statement_that_fails_undoes_its_own_work_only(open_store: OpenStore) -> None:
    store, commits = open_store(), Commits()
    writer = GroupWriter(store, commits)

    def put_twice(tx: Transaction) -> int:
        put("undone", 1)(tx)
        return put("a", 9)(tx)

    waits = [writer.submit(put("a", 1)), writer.submit(put_twice), writer.submit(put("b", 2))]
    writer.start()
    first, failed, last = await asyncio.gather(*waits, return_exceptions=True)
    assert (first, last) == (1, 2)
    assert isinstance(failed, WriteConflict)
    assert commits.groups == [2]
    assert await names(store) == ["a", "b"]
    assert writer.progress.next_position == FIRST_POSITION + 2
    writer.stop()


async def test_statement_whose_failure_is_swallowed_changes_nothing_by_halves(open_store: OpenStore) -> None:
    store = open_store()
    writer = started(store, Commits())
    await writer.submit(put("a", 1))

    def swallow(tx: Transaction) -> int:
        put("b", 2)(tx)
        with contextlib.suppress(*store.driver_errors):
            put("a", 9)(tx)
        return 2

    # SQLite undoes the one statement, PostgreSQL the work around it; neither lets the writer die.
    (outcome,) = await asyncio.gather(writer.submit(swallow), return_exceptions=True)
    assert await names(store) == (["a"] if isinstance(outcome, WriteConflict) else ["a", "b"])
    assert await writer.submit(put("c", 3)) == 3
    writer.stop()


async def test_eight_writers_at_once_get_numbers_in_the_order_of_their_commits(open_store: OpenStore) -> None:
    store = open_store()
    announced: list[int] = []

    def note(transactions: list[Transaction], progress: Progress) -> None:
        announced.extend(position for tx in transactions for position in taken[id(tx)])

    taken: dict[int, list[int]] = {}
    kept: list[Transaction] = []
    writer = GroupWriter(store, note)
    writer.start()

    def work(name: str, count: int) -> Callable[[Transaction], list[int]]:
        def take(tx: Transaction) -> list[int]:
            positions = [tx.progress.next_position + n for n in range(count)]
            for position in positions:
                tx.execute("INSERT INTO numbers (name, next) VALUES (?, ?)", (f"{name}/{position}", position))
            tx.progress.next_position += count
            taken[id(tx)] = positions
            kept.append(tx)
            return positions

        return take

    def write(name: str) -> list[int]:
        async def all_of_them() -> list[int]:
            mine: list[int] = []
            for n in range(25):
                mine += await writer.submit(work(f"{name}-{n}", 1 + n % 3))
            return mine

        return asyncio.run(all_of_them())

    results = await asyncio.gather(*[asyncio.to_thread(write, f"w{n}") for n in range(8)])
    assert all(mine == sorted(mine) for mine in results)
    assert announced == list(range(FIRST_POSITION, FIRST_POSITION + len(announced)))
    assert sorted(position for mine in results for position in mine) == announced
    stored = await store.read(lambda reader: reader.execute("SELECT next FROM numbers ORDER BY next"))
    assert [position for (position,) in stored] == announced
    writer.stop()


async def test_stopped_writer_finishes_its_queue_and_refuses_more(open_store: OpenStore) -> None:
    store = open_store()
    writer = started(store, Commits())
    wait = writer.submit(put("a", 1))
    await asyncio.to_thread(writer.stop)
    assert await wait == 1
    with pytest.raises(StoreClosed):
        await writer.submit(put("b", 2))


async def test_reopened_store_goes_on_where_it_stopped(open_store: OpenStore) -> None:
    store = open_store()
    writer = started(store, Commits())
    await writer.submit(put("a", 1))
    writer.stop()
    store.close()
    again = open_store()
    writer = GroupWriter(again, Commits())
    assert writer.progress.next_position == FIRST_POSITION + 1
    assert writer.progress.group_number == 1
    assert await names(again) == ["a"]


async def test_second_process_is_kept_out(open_store: OpenStore) -> None:
    open_store()
    with pytest.raises(StoreLocked):
        open_store()


async def test_reader_sees_one_commit_while_writes_go_on(open_store: OpenStore) -> None:
    store = open_store()
    writer = started(store, Commits())
    await writer.submit(put("a", 1))
    loop = asyncio.get_running_loop()

    def read_twice(reader: object) -> tuple[int, int]:
        def count() -> int:
            ((n,),) = reader.execute("SELECT COUNT(*) FROM numbers")  # type: ignore[attr-defined]
            return int(n)

        before = count()  # a read transaction may begin with its first statement
        asyncio.run_coroutine_threadsafe(write_b(), loop).result(120)
        return before, count()

    async def write_b() -> None:
        await writer.submit(put("b", 2))

    assert await store.read(read_twice) == (1, 1)
    assert await names(store) == ["a", "b"]
    writer.stop()


class _FailingCommit(SqliteConnection):
    """A real connection whose COMMIT fails once, the way a disk makes it fail: before or after the fact."""

    plan: tuple[str, bool] | None = None

    def commit(self) -> None:
        if _FailingCommit.plan is None:
            super().commit()
            return
        error_name, happens = _FailingCommit.plan
        _FailingCommit.plan = None
        if happens:
            super().commit()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = error_name
        raise error


@pytest.fixture
def failing_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    monkeypatch.setattr("tidewire.storage.sqlite.SqliteConnection", _FailingCommit)
    store = SqliteStore(tmp_path / "org.db", FIRST_POSITION)
    yield store
    store.close()


async def test_failed_commit_that_did_not_happen_fails_its_members_and_goes_on(
    failing_store: SqliteStore,
) -> None:
    writer = started(failing_store, Commits())
    _FailingCommit.plan = ("SQLITE_FULL", False)
    with pytest.raises(DiskFull):
        await writer.submit(put("a", 1))
    assert await writer.submit(put("b", 2)) == 2
    assert await names(failing_store) == ["b"]
    assert writer.progress.next_position == FIRST_POSITION + 1
    writer.stop()


async def test_failed_commit_that_did_happen_is_acknowledged(failing_store: SqliteStore) -> None:
    commits = Commits()
    writer = started(failing_store, commits)
    _FailingCommit.plan = ("SQLITE_BUSY", True)
    assert await writer.submit(put("a", 1)) == 1
    assert commits.groups == [1]
    assert await names(failing_store) == ["a"]
    writer.stop()


async def test_failed_sync_stops_the_writer_for_good(failing_store: SqliteStore) -> None:
    writer = started(failing_store, Commits())
    stopped: list[bool] = []
    writer.watch_failure(lambda: stopped.append(True))
    _FailingCommit.plan = ("SQLITE_IOERR_FSYNC", False)
    with pytest.raises(OutcomeUnknown):
        await writer.submit(put("a", 1))
    with pytest.raises(StoreClosed):
        await writer.submit(put("b", 2))
    assert isinstance(writer.failure, OutcomeUnknown)
    assert stopped == [True]
    writer.stop()
