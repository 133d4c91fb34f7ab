"""What only a database on the other side of a connection can do: be lost, be taken over, sort as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.orgs import open_org
from tests.postgres import PostgresServer, running_postgres
from tidewire.clock import ManualClock
from tidewire.config import Settings
from tidewire.errors import (
    ConfigInvalid,
    OutcomeUnknown,
    StoreClosed,
    StoreLocked,
    ValueMalformed,
    WriteConflict,
)
from tidewire.server.bootstrap import NewOrg
from tidewire.server.core import open_core
from tidewire.storage.migrations import LAYOUT_VERSION
from tidewire.storage.postgres import PostgresConnection, PostgresStore, parse_store_url
from tidewire.storage.store import Progress, Reader, Transaction
from tidewire.storage.writer import GroupWriter

FIRST_POSITION = 1000


class OpenWriter:
    """A writer on a store, with what it announced."""

    def __init__(self, url: str, *, lock_wait_s: float = 5.0, idle_check_s: float = 60.0) -> None:
        self.announced: list[int] = []
        self.stopped = asyncio.Event()
        self.store = PostgresStore(url, FIRST_POSITION, lock_wait_s=lock_wait_s, idle_check_s=idle_check_s)
        self.writer = GroupWriter(self.store, self._note)
        loop = asyncio.get_running_loop()
        self.writer.watch_failure(lambda: loop.call_soon_threadsafe(self.stopped.set))
        self.writer.start()

    @property
    def backend_pid(self) -> int:
        """The server process behind the writer's connection."""
        return self.store.connect_writer().backend_pid

    def put(self, name: str) -> asyncio.Future[int]:
        """Store one name and take one position."""
        return self.writer.submit(lambda tx: put(tx, name))

    async def names(self) -> list[str]:
        """What is stored, in the order of the positions."""
        rows = await self.store.read(lambda reader: reader.execute("SELECT name FROM numbers ORDER BY next"))
        return [name for (name,) in rows]

    def close(self) -> None:
        """Finish and let go of the lock."""
        self.writer.stop()
        self.store.close()

    def _note(self, transactions: list[Transaction], progress: Progress) -> None:
        self.announced.append(progress.group_number)


def put(tx: Transaction, name: str) -> int:
    position = tx.progress.next_position
    tx.execute("INSERT INTO numbers (name, next) VALUES (?, ?)", (name, position))
    tx.progress.next_position += 1
    return position


OpenAnother = Callable[..., OpenWriter]


@pytest.fixture
def open_writer(postgres: PostgresServer) -> Iterator[OpenAnother]:
    """Opens writers on one org, which all are closed in the end."""
    url = postgres.make_url()
    with ExitStack() as opened:

        def open_one(**options: float) -> OpenWriter:
            writer = OpenWriter(url, **options)
            opened.callback(writer.close)
            return writer

        yield open_one


async def test_writer_that_lost_its_connection_goes_on_with_another(
    open_writer: OpenAnother, postgres: PostgresServer
) -> None:
    one = open_writer()
    await one.put("a")
    postgres.terminate(one.backend_pid)
    assert await one.put("b") == FIRST_POSITION + 1
    assert await one.names() == ["a", "b"]


async def test_connection_lost_inside_the_work_fails_that_work_and_reruns_the_others(
    open_writer: OpenAnother, postgres: PostgresServer
) -> None:
    one = open_writer()
    victim = one.backend_pid

    def lose(tx: Transaction) -> int:
        put(tx, "lost")
        postgres.terminate(victim)
        return put(tx, "lost too")

    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    # The first piece holds the writer until the others have queued, so that those share a group.
    held = one.writer.submit(lambda tx: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(120))
    waits = [one.put("a"), one.writer.submit(lose), one.put("b")]
    gate.set()
    await held
    first, lost, last = await asyncio.gather(*waits, return_exceptions=True)
    assert (first, last) == (FIRST_POSITION, FIRST_POSITION + 1)
    assert isinstance(lost, WriteConflict)
    assert await one.names() == ["a", "b"]


class _LostAtCommit(PostgresConnection):
    """A real connection whose session ends at a COMMIT: before it or after it, but always before the answer."""

    plan: Callable[[int], None] | None = None
    happens = False

    def commit(self) -> None:
        plan, _LostAtCommit.plan = _LostAtCommit.plan, None
        if plan is None:
            super().commit()
            return
        if _LostAtCommit.happens:
            super().commit()
        plan(self.backend_pid)
        # Without an open session this raises what the driver raises.
        self.execute("SELECT 1")


@pytest.mark.parametrize("happens", [False, True], ids=["before", "after"])
async def test_connection_lost_at_commit_is_settled_by_what_the_next_one_finds(
    open_writer: OpenAnother, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, happens: bool
) -> None:
    monkeypatch.setattr("tidewire.storage.postgres.PostgresConnection", _LostAtCommit)
    one = open_writer()
    await one.put("a")
    _LostAtCommit.happens = happens
    _LostAtCommit.plan = postgres.terminate
    (outcome,) = await asyncio.gather(one.put("b"), return_exceptions=True)
    assert outcome == FIRST_POSITION + 1 if happens else isinstance(outcome, WriteConflict)
    assert await one.put("c") == FIRST_POSITION + 1 + happens
    assert await one.names() == (["a", "b", "c"] if happens else ["a", "c"])
    assert one.announced == list(range(1, 3 + happens))


async def test_writer_whose_org_was_taken_over_stops_for_good(
    open_writer: OpenAnother, postgres: PostgresServer
) -> None:
    one = open_writer(lock_wait_s=0.3)
    await one.put("a")
    postgres.terminate(one.backend_pid)
    other = open_writer()
    await other.put("b")
    with pytest.raises(StoreClosed):
        await one.put("c")
    await one.stopped.wait()
    assert isinstance(one.writer.failure, StoreLocked)
    assert await other.names() == ["a", "b"]


async def test_writer_whose_org_was_taken_over_and_left_again_stops_for_good(
    open_writer: OpenAnother, postgres: PostgresServer
) -> None:
    one = open_writer()
    await one.put("a")
    postgres.terminate(one.backend_pid)
    other = open_writer()
    await other.put("b")
    other.close()
    with pytest.raises(StoreClosed):
        await one.put("c")
    assert isinstance(one.writer.failure, StoreLocked)


async def test_commit_in_doubt_is_unknown_if_the_org_was_taken_over(
    open_writer: OpenAnother, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewire.storage.postgres.PostgresConnection", _LostAtCommit)
    one = open_writer(lock_wait_s=0.3)
    await one.put("a")
    loop = asyncio.get_running_loop()

    async def open_other() -> None:
        other = open_writer()
        await other.put("b")

    def take_over(backend_pid: int) -> None:
        postgres.terminate(backend_pid)
        asyncio.run_coroutine_threadsafe(open_other(), loop).result(120)

    _LostAtCommit.happens = False
    _LostAtCommit.plan = take_over
    # The other's group has the very number that this one would have had; that must not pass for success.
    with pytest.raises(OutcomeUnknown):
        await one.put("c")
    assert one.announced == [1]


async def test_idle_writer_notices_that_its_org_was_taken_over(postgres: PostgresServer) -> None:
    url = postgres.make_url()
    one = OpenWriter(url, lock_wait_s=0.3, idle_check_s=0.05)
    await one.put("a")
    waiting = asyncio.create_task(asyncio.to_thread(PostgresStore, url, FIRST_POSITION))
    # Whoever waits already gets the lock before anybody who comes later.
    await asyncio.to_thread(postgres.wait_until_somebody_waits)
    postgres.terminate(one.backend_pid)
    other = await waiting
    await asyncio.wait_for(one.stopped.wait(), 120)
    assert isinstance(one.writer.failure, StoreLocked)
    with pytest.raises(StoreClosed):
        await one.put("b")
    one.close()
    other.close()


async def test_reader_whose_connection_was_lost_reads_again(
    open_writer: OpenAnother, postgres: PostgresServer
) -> None:
    one = open_writer()
    await one.put("a")

    def backend(reader: Reader) -> int:
        return int(reader.execute("SELECT pg_backend_pid()")[0][0])

    for pid in {await one.store.read(backend) for _ in range(8)}:
        postgres.terminate(pid)
    for _ in range(8):
        assert await one.names() == ["a"]


async def test_crash_of_the_database_under_load_loses_nothing_acknowledged() -> None:
    with running_postgres() as server:
        one = OpenWriter(server.make_url())
        outcomes: dict[str, int | BaseException] = {}
        enough = asyncio.Event()

        async def write(name: str) -> None:
            for n in range(40):
                key = f"{name}-{n:03}"
                (outcomes[key],) = await asyncio.gather(one.put(key), return_exceptions=True)
                if len(outcomes) > 60:
                    enough.set()

        writers = [asyncio.create_task(write(f"w{n}")) for n in range(8)]
        await enough.wait()
        await asyncio.to_thread(server.crash)
        await asyncio.to_thread(server.start)
        await asyncio.gather(*writers)
        stored = await one.names()
        acknowledged = {key: value for key, value in outcomes.items() if isinstance(value, int)}
        assert stored == sorted(acknowledged, key=lambda key: acknowledged[key])
        assert sorted(acknowledged.values()) == list(range(FIRST_POSITION, FIRST_POSITION + len(stored)))
        assert len(outcomes) == 320
        one.close()


async def test_values_come_back_as_from_sqlite(open_writer: OpenAnother) -> None:
    one = open_writer()

    def work(tx: Transaction) -> list[tuple[object, ...]]:
        tx.execute("CREATE TABLE v (id TEXT PRIMARY KEY, i INTEGER, r REAL, b BLOB)")
        tx.execute_many(
            "INSERT INTO v (id, i, r, b) VALUES (?, ?, ?, ?)",
            [("a", True, 0.1, b"\x00\xff"), ("b", 2**53, 3, b""), ("c", None, None, None)],
        )
        return tx.execute("SELECT id, i, r, b FROM v ORDER BY id") + tx.execute(
            "SELECT SUM(i), AVG(r) FROM v"
        )

    assert await one.writer.submit(work) == [
        ("a", 1, 0.1, b"\x00\xff"),
        ("b", 2**53, 3.0, b""),
        ("c", None, None, None),
        (2**53 + 1, 1.55),
    ]


async def test_text_sorts_by_code_point_whatever_the_database_prefers(
    open_writer: OpenAnother, postgres: PostgresServer
) -> None:
    one = open_writer()
    words = ["b", "a", "B", "A", "é", "z", "\U0001f600", "_"]
    for word in words:
        await one.put(word)
    rows = await one.store.read(lambda reader: reader.execute("SELECT name FROM numbers ORDER BY name"))
    assert [name for (name,) in rows] == sorted(words)


async def test_text_with_a_nul_is_the_callers_fault(open_writer: OpenAnother) -> None:
    one = open_writer()
    with pytest.raises(ValueMalformed):
        await one.put("a\0b")
    with pytest.raises(ValueMalformed):
        await one.store.read(lambda r: r.execute("SELECT next FROM numbers WHERE name = ?", ("\0",)))
    assert await one.put("a") == FIRST_POSITION


async def test_layout_of_a_newer_release_is_refused(postgres: PostgresServer) -> None:
    url = postgres.make_url()
    PostgresStore(url, FIRST_POSITION).close()
    _, schema = parse_store_url(url)
    with postgres.connect() as connection:
        connection.execute(f"UPDATE {schema}.layout SET version = {LAYOUT_VERSION + 1}".encode())
    with pytest.raises(ConfigInvalid, match="newer"):
        PostgresStore(url, FIRST_POSITION)


async def test_schemas_of_one_database_are_orgs_of_their_own(postgres: PostgresServer) -> None:
    one, other = OpenWriter(postgres.make_url()), OpenWriter(postgres.make_url())
    assert await one.put("a") == await other.put("b") == FIRST_POSITION
    assert (await one.names(), await other.names()) == (["a"], ["b"])
    one.close()
    other.close()


async def test_org_is_made_kept_and_read_on_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.make_url()
    async with open_org(tmp_path, store=url) as org:
        record_id = await org.make_account("Zoë", Phone="1")
        await org.gate.update(org.call, "Account", record_id, {"Phone": "2"})
        with pytest.raises(StoreLocked):
            PostgresStore(url, FIRST_POSITION, lock_wait_s=0.2)
    async with open_org(tmp_path, store=url) as org:
        found = await org.gate.query(org.admin, "SELECT Name, Phone FROM Account WHERE Name LIKE 'zo%'")
        assert [(row["Name"], row["Phone"]) for row in found.rows] == [("Zoë", "2")]
    with pytest.raises(ConfigInvalid, match="already"):
        await open_core(
            Settings(data=str(tmp_path), store=url), ManualClock(), new=NewOrg("a@example.org", "x")
        )


def test_schema_is_taken_out_of_the_address() -> None:
    conninfo, schema = parse_store_url("postgresql://ada@db:5433/crm?schema=acme&sslmode=require")
    assert schema == "acme"
    known = psycopg.conninfo.conninfo_to_dict(conninfo)
    assert (known["host"], known["port"], known["dbname"], known["sslmode"]) == (
        "db",
        "5433",
        "crm",
        "require",
    )
    assert parse_store_url("postgresql://db/crm")[1] == "tidewire"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:geheim@db/crm?schema=Acme",
        "postgresql://ada:geheim@db/crm?schema=pg_mine",
        "postgresql://ada:geheim@db/crm?schema=a%22b",
        "postgresql://ada:geheim@db/crm?colour=red",
        "postgresql://ada:geheim@[db/crm",
    ],
)
def test_address_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_store_url(url)
    assert caught.value.details["setting"] == "store"
    assert "geheim" not in caught.value.message


async def test_database_that_cannot_be_reached_is_an_operators_error(tmp_path: Path) -> None:
    url = f"postgresql://ada:geheim@/crm?host={tmp_path}"
    with pytest.raises(ConfigInvalid) as caught:
        await open_core(Settings(data=str(tmp_path), store=url, dev=True), ManualClock())
    assert "geheim" not in caught.value.message


async def test_store_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="sqlite or postgresql"):
        await open_core(Settings(data=str(tmp_path), store="mysql://db", dev=True), ManualClock())
