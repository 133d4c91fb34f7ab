"""The records bench: durable creates, point reads and indexed queries, each beside raw SQL doing the same.

    python benchmarks/records.py [--json] [--rows 1000000] [--seconds 0.6] [--pairs 3]

Ours is the whole of records behind its permissions, in one process and without a wire: validation, defaults, audit
fields, change events and the log. The peer is the driver alone, writing the same columns and an event of the same
size, with the same durability. Turns alternate in one run. The large table is filled by plain SQL, because
filling it is not what is measured.

Where the server programs of PostgreSQL are installed, all of it is measured a second time on a private server that
both sides reach by a Unix socket; each ratio is of ours on one database to the driver alone on the same.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

import psycopg
from measuring import FOREIGN_LIMIT, Window, fdatasync_us
from private_postgres import running_postgres, try_find_programs
from reporting import bench_parser, show

from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.gate.requests import Call, Write
from tidewire.ids import make_id
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.text_keys import fold_key
from tidewire.server.core import Core, open_core

SQLITE, POSTGRES = "raw sqlite3", "raw psycopg"
BATCH = 200
SMALL_ROWS = 10_000
ACCOUNT = next(o for o in STANDARD_OBJECTS if o.name == "Account")
NAME, PHONE, CITY = (ACCOUNT.by_name[n] for n in ("name", "phone", "billingcity"))
DURABILITY = (
    "both: every 200 records on disk before they count (SQLite: WAL, synchronous=FULL; PostgreSQL: fsync and"
    " synchronous_commit on)"
)
_PAYLOAD = b"x" * 260
_SCHEMA = "bench"
_FIRST_FILLED = 10**9
_DIGITS = [make_id("001", n)[14] for n in range(62)]


@dataclass(frozen=True, slots=True)
class Pair:
    """One metric on one database, ours and the peer's, turn by turn."""

    metric: str
    unit: str
    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        """The median of the turns' ratios."""
        return statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))


def render_rows(by_peer: dict[str, list[Pair]]) -> list[dict[str, Any]]:
    """One row per metric. `ours` is on SQLite; what ours does on the database of each peer is in `ours_beside`."""
    rows = []
    for pairs in zip(*by_peer.values(), strict=True):
        named = dict(zip(by_peer, pairs, strict=True))
        ours = {peer: round(statistics.median(pair.ours), 2) for peer, pair in named.items()}
        rows.append(
            {
                "metric": pairs[0].metric,
                "unit": pairs[0].unit,
                "ours": ours[SQLITE],
                "ours_beside": ours,
                "peers": {peer: round(statistics.median(pair.peer), 2) for peer, pair in named.items()},
                "ratio": {peer: round(pair.ratio, 3) for peer, pair in named.items()},
                "cpu_ratio": {},
            }
        )
    return rows


class Ours:
    """A core on its own directory, and the calls that are measured."""

    def __init__(self, core: Core, call: Call) -> None:
        self._core = core
        self._call = call

    @classmethod
    async def open(cls, folder: Path, store: str = "sqlite") -> Ours:
        core = await open_core(Settings(data=str(folder), store=store, dev=True), SystemClock())
        login = await core.logins.login(DEV_USERNAME, DEV_PASSWORD, "bench")
        return cls(core, Call(login.principal, "bench"))

    async def create(self, batch: int) -> int:
        first = batch * BATCH
        writes = [
            Write("Account", None, {"Name": f"Company {n}", "Phone": str(n), "BillingCity": "Oslo"})
            for n in range(first, first + BATCH)
        ]
        results = await self._core.gate.write_together(self._call, writes, all_or_none=True)
        assert all(isinstance(r, str) for r in results), results
        return BATCH

    async def read(self, record_id: str) -> int:
        await self._core.gate.read(self._call.principal, "Account", record_id, ["Name", "Phone"])
        return 1

    async def query(self, name: str) -> int:
        found = await self._core.gate.query(
            self._call.principal, f"SELECT Id, Name, Phone FROM Account WHERE Name = '{name}'"
        )
        assert len(found.rows) == 1
        return 1

    async def close(self) -> None:
        await self._core.close()


class Raw(Protocol):
    """A driver alone, on tables like ours."""

    def create(self, turn: int, batch: int) -> int:
        """Two hundred records and their events in one transaction."""

    def read(self, record_id: str) -> int:
        """One record of our table by its id."""

    def query(self, wanted: str) -> int:
        """One record of our table by its name."""

    def fill(self, first: int, last: int) -> None:
        """Put records number `first` to `last` into our table."""

    def close(self) -> None:
        """Let go of the connections."""


RECORD_COLUMNS = (
    "id",
    NAME.column,
    NAME.key_column,
    PHONE.column,
    PHONE.key_column,
    CITY.column,
    CITY.key_column,
)
OTHER_COLUMNS = [f.column for f in ACCOUNT.stored_fields if f.column not in RECORD_COLUMNS]
FILLED_COLUMNS = (
    "id",
    NAME.column,
    NAME.key_column,
    PHONE.column,
    PHONE.key_column,
    ACCOUNT.by_name["isdeleted"].column,
)


def table_statements(number: str, blob: str) -> list[str]:
    """A table of records and one of events; `number` and `blob` are the database's words for those types."""
    texts = ", ".join(f"{column} TEXT" for column in (*RECORD_COLUMNS[1:], *OTHER_COLUMNS))
    return [
        f"CREATE TABLE record (id TEXT PRIMARY KEY, owner TEXT, created {number}, {texts})",
        f"CREATE INDEX record_name ON record ({NAME.key_column})",
        f"CREATE TABLE event (id {number} PRIMARY KEY, topic {number}, created {number}, payload {blob})",
        "CREATE INDEX event_topic ON event (topic, id)",
    ]


def insert_statement(table: str, columns: tuple[str, ...], mark: str) -> str:
    """An INSERT of one row with the driver's placeholder."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"


def batch_rows(turn: int, batch: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Records and events of one transaction."""
    numbers = range(turn * 10**7 + batch * BATCH, turn * 10**7 + (batch + 1) * BATCH)
    records = [
        (make_id("001", n), f"Company {n}", f"company {n}", str(n), str(n), "Oslo", "oslo", "005", n)
        for n in numbers
    ]
    return records, [(n, 1, n, _PAYLOAD) for n in numbers]


def filled_ids(first: int, last: int) -> Iterator[tuple[int, str]]:
    """Numbers and ids of records of the large table.

    Of a run of ids that differ in their last digit alone, two are made in full, one for each letter case of that
    digit, which is all that the checksum sees of it: a million of `make_id` would take longer than the bench.
    """
    base = len(_DIGITS)
    upper = next(place for place, digit in enumerate(_DIGITS) if digit.isupper())
    for run in range((_FIRST_FILLED + first) // base, (_FIRST_FILLED + last - 1) // base + 1):
        plain, capital = make_id("001", run * base), make_id("001", run * base + upper)
        for place, digit in enumerate(_DIGITS):
            number = run * base + place - _FIRST_FILLED
            if first <= number < last:
                yield number, f"{plain[:14]}{digit}{capital[15:] if digit.isupper() else plain[15:]}"


def filled_rows(first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """Records of the large table."""
    for n, record_id in filled_ids(first, last):
        yield record_id, f"Filler {n}", f"filler {n}", str(n), str(n), 0


def drop_statements() -> list[str]:
    """Drop the indexes that nothing measured here reads: keeping them up is most of the work of filling."""
    columns = [
        f.key_column if f.is_text else f.column for f in ACCOUNT.stored_fields if f.name not in ("Id", "Name")
    ]
    return [f"DROP INDEX IF EXISTS {ACCOUNT.table}_{column}" for column in columns]


READ = f"SELECT {NAME.column}, {PHONE.column} FROM {ACCOUNT.table} WHERE id = "
QUERY = f"SELECT id, {NAME.column}, {PHONE.column} FROM {ACCOUNT.table} WHERE {NAME.key_column} = "
INSERTED = (*RECORD_COLUMNS, "owner", "created")
EVENT = ("id", "topic", "created", "payload")


class RawSqlite:
    """sqlite3 alone. `own` is the file of the tables it creates in, `ours` the file of our org."""

    def __init__(self, own: Path, ours: Path) -> None:
        self._own, self._ours = (sqlite3.connect(path, isolation_level=None) for path in (own, ours))
        for db in (self._own, self._ours):
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
        for statement in table_statements("INTEGER", "BLOB"):
            self._own.execute(statement)

    def create(self, turn: int, batch: int) -> int:
        records, events = batch_rows(turn, batch)
        self._own.execute("BEGIN IMMEDIATE")
        self._own.executemany(insert_statement("record", INSERTED, "?"), records)
        self._own.executemany(insert_statement("event", EVENT, "?"), events)
        self._own.execute("COMMIT")
        return BATCH

    def read(self, record_id: str) -> int:
        assert len(self._ours.execute(f"{READ}?", (record_id,)).fetchall()) == 1
        return 1

    def query(self, wanted: str) -> int:
        assert len(self._ours.execute(f"{QUERY}? ORDER BY id", (fold_key(wanted),)).fetchall()) == 1
        return 1

    def fill(self, first: int, last: int) -> None:
        # Filling is not measured, so it need not survive anything, and the pages may stay in memory.
        self._ours.execute("PRAGMA synchronous = OFF")
        self._ours.execute("PRAGMA cache_size = -400000")
        for statement in drop_statements():
            self._ours.execute(statement)
        self._ours.execute("BEGIN IMMEDIATE")
        self._ours.executemany(insert_statement(ACCOUNT.table, FILLED_COLUMNS, "?"), filled_rows(first, last))
        self._ours.execute("COMMIT")
        self._ours.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._ours.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        self._own.close()
        self._ours.close()


class RawPostgres:
    """psycopg alone, in a schema beside ours on the same server."""

    def __init__(self, address: str) -> None:
        self._db = psycopg.connect(address, autocommit=True)
        self._db.execute("CREATE SCHEMA raw")
        self._db.execute(f"SET search_path = raw, {_SCHEMA}")
        for statement in table_statements("BIGINT", "BYTEA"):
            self._db.execute(statement)

    def create(self, turn: int, batch: int) -> int:
        records, events = batch_rows(turn, batch)
        with self._db.transaction(), self._db.cursor() as cursor:
            cursor.executemany(insert_statement("record", INSERTED, "%s"), records)
            cursor.executemany(insert_statement("event", EVENT, "%s"), events)
        return BATCH

    def read(self, record_id: str) -> int:
        assert len(self._db.execute(f"{READ}%s", (record_id,)).fetchall()) == 1
        return 1

    def query(self, wanted: str) -> int:
        assert len(self._db.execute(f"{QUERY}%s ORDER BY id", (fold_key(wanted),)).fetchall()) == 1
        return 1

    def fill(self, first: int, last: int) -> None:
        columns = ", ".join(FILLED_COLUMNS)
        for statement in drop_statements():
            self._db.execute(statement)
        with (
            self._db.cursor() as cursor,
            cursor.copy(f"COPY {ACCOUNT.table} ({columns}) FROM STDIN") as copy,
        ):
            for n, record_id in filled_ids(first, last):
                copy.write(f"{record_id}\tFiller {n}\tfiller {n}\t{n}\t{n}\t0\n")
        self._db.execute(f"ANALYZE {ACCOUNT.table}")

    def close(self) -> None:
        self._db.close()


async def rate(seconds: float, step: Callable[[int], Awaitable[int] | int]) -> float:
    """Operations a second over a stretch of time."""
    done = turns = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        outcome = step(turns)
        done += outcome if isinstance(outcome, int) else await outcome
        turns += 1
    return done / elapsed


async def measure(rows: int, seconds: float, pairs: int) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    window = Window(())
    programs = try_find_programs()
    by_peer: dict[str, list[Pair]] = {}
    server_s = 0.0
    try:
        sync_us = fdatasync_us(folder)
        ours = await Ours.open(folder / "sqlite")
        sqlite = RawSqlite(folder / "raw.db", folder / "sqlite/org.db")
        by_peer[SQLITE] = await _measure_pairs(ours, sqlite, rows, seconds, pairs)
        if programs is not None:
            with running_postgres(programs) as server:
                ours = await Ours.open(folder / "postgres", f"{server.address}&schema={_SCHEMA}")
                raw = RawPostgres(server.address)
                by_peer[POSTGRES] = await _measure_pairs(ours, raw, rows, seconds, pairs)
                server_s = server.cpu_s()
    finally:
        shutil.rmtree(folder)
    reading = window.close()
    # PostgreSQL detaches itself, so the window takes it for a stranger.
    foreign_part = reading.foreign_part - server_s / (reading.wall_s * (os.cpu_count() or 1))
    return {
        "bench": "records",
        "results": render_rows(by_peer),
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": foreign_part < FOREIGN_LIMIT,
    }


async def _measure_pairs(ours: Ours, raw: Raw, rows: int, seconds: float, pairs: int) -> list[Pair]:
    """Every metric on one database; closes both sides."""
    creates = Pair("records created in 200s", "1/s", [], [])
    for turn in range(pairs):
        creates.ours.append(await rate(seconds, ours.create))
        creates.peer.append(await rate(seconds, partial(raw.create, turn)))
    raw.fill(0, SMALL_ROWS)
    small = await _reads(ours, raw, SMALL_ROWS, seconds / 2, pairs)
    raw.fill(SMALL_ROWS, rows)
    large = await _reads(ours, raw, rows, seconds / 2, pairs)
    raw.close()
    await ours.close()
    return [creates, *small, *large, _growth(small[-1], large[-1], rows)]


def _growth(small: Pair, large: Pair, rows: int) -> Pair:
    """What a query costs in the large table, as a multiple of its cost in the small one: 1 is flat."""
    return Pair(
        f"cost of a query, {rows:,} to {SMALL_ROWS:,} rows",
        "times",
        [a / b for a, b in zip(small.ours, large.ours, strict=True)],
        [a / b for a, b in zip(small.peer, large.peer, strict=True)],
    )


async def _reads(ours: Ours, raw: Raw, size: int, seconds: float, pairs: int) -> list[Pair]:
    numbers = random.Random(1)
    points = Pair(f"point reads, {size:,} rows", "1/s", [], [])
    queries = Pair(f"indexed SOQL, {size:,} rows", "1/s", [], [])
    for _ in range(pairs):
        wanted = [numbers.randrange(size) for _ in range(20_000)]
        ids = cycle([make_id("001", _FIRST_FILLED + n) for n in wanted])
        names = cycle([f"Filler {n}" for n in wanted])
        points.ours.append(await rate(seconds, partial(_next_of, ids, ours.read)))
        points.peer.append(await rate(seconds, partial(_next_of, ids, raw.read)))
        queries.ours.append(await rate(seconds, partial(_next_of, names, ours.query)))
        queries.peer.append(await rate(seconds, partial(_next_of, names, raw.query)))
    return [points, queries]


def _next_of(
    values: Iterator[str], operation: Callable[[str], Awaitable[int] | int], turn: int
) -> Awaitable[int] | int:
    return operation(next(values))


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people: for each peer, ours on its database, the peer, and the ratio."""
    peers = list(outcome["results"][0]["peers"])
    print(f"{'':48}" + "".join(f"{'ours':>12}{peer:>14}{'ratio':>8}" for peer in peers))
    for row in outcome["results"]:
        cells = (
            f"{row['ours_beside'][peer]:12,.2f}{row['peers'][peer]:14,.2f}{row['ratio'][peer]:8.3f}"
            for peer in peers
        )
        print(f"{row['metric'] + ' [' + row['unit'] + ']':48}" + "".join(cells))


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table (1,000,000)")
    parser.add_argument("--seconds", type=float, default=0.6, help="length of each turn (0.6)")
    parser.add_argument("--pairs", type=int, default=3, help="turns of ours and the peer's (3)")
    given = parser.parse_args()
    outcome = asyncio.run(measure(given.rows, given.seconds, given.pairs))
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
