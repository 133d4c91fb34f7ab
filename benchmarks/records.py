"""The records bench: durable creates, point reads and indexed queries, each beside raw SQL doing the same.

    python benchmarks/records.py [--json] [--rows 1000000] [--seconds 2] [--pairs 3]

Ours is the whole of records behind its permissions, in one process and without a wire: validation, defaults, audit
fields, change events and the log. The peer is the driver alone, writing the same columns and an event of the same
size, with the same durability. Turns alternate in one run. The large table is filled by plain SQL, because
filling it is not what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from typing import Any

from measuring import Window, fdatasync_us

from tidewire.access.gate import Call, Write
from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.ids import make_id
from tidewire.schema.folding import fold_key
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.server.core import Core, open_core

PEER = "raw sqlite3"
BATCH = 200
SMALL_ROWS = 10_000
ACCOUNT = next(o for o in STANDARD_OBJECTS if o.name == "Account")
DURABILITY = "both: every 200 records on disk before they count (WAL, synchronous=FULL)"
_PAYLOAD = b"x" * 260


@dataclass(frozen=True, slots=True)
class Pair:
    """One metric: operations a second, ours and the peer's, turn by turn."""

    metric: str
    ours: list[float]
    peer: list[float]

    def row(self) -> dict[str, Any]:
        ratios = [a / b for a, b in zip(self.ours, self.peer, strict=True)]
        return {
            "metric": self.metric,
            "unit": "1/s",
            "ours": round(statistics.median(self.ours), 1),
            "peers": {PEER: round(statistics.median(self.peer), 1)},
            "ratio": {PEER: round(statistics.median(ratios), 3)},
            "cpu_ratio": {},
        }


class Ours:
    """A core on its own directory, and the calls that are measured."""

    def __init__(self, core: Core, call: Call) -> None:
        self._core = core
        self._call = call

    @classmethod
    async def open(cls, folder: Path) -> Ours:
        core = await open_core(Settings(data=str(folder), dev=True), SystemClock())
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


class Raw:
    """sqlite3 alone, on tables like ours."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA case_sensitive_like = ON")
        self._columns = [ACCOUNT.by_name[n].column for n in ("name", "phone", "billingcity")]

    def make_tables(self) -> None:
        name, phone, city = self._columns
        others = ", ".join(
            f"{f.column} TEXT" for f in ACCOUNT.stored_fields if f.column not in ("id", *self._columns)
        )
        self._db.execute(
            f"CREATE TABLE record (id TEXT PRIMARY KEY, {name} TEXT, k{name[1:]} TEXT, {phone} TEXT, k{phone[1:]} TEXT,"
            f" {city} TEXT, k{city[1:]} TEXT, owner TEXT, created INTEGER, {others})"
        )
        self._db.execute(f"CREATE INDEX record_name ON record (k{name[1:]})")
        self._db.execute(
            "CREATE TABLE event (id INTEGER PRIMARY KEY, topic INTEGER, created INTEGER, payload BLOB)"
        )
        self._db.execute("CREATE INDEX event_topic ON event (topic, id)")

    def create(self, turn: int, batch: int) -> int:
        name, phone, city = self._columns
        first = turn * 10**7 + batch * BATCH
        rows = [
            (make_id("001", n), f"Company {n}", f"company {n}", str(n), str(n), "Oslo", "oslo", "005", n)
            for n in range(first, first + BATCH)
        ]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            f"INSERT INTO record (id, {name}, k{name[1:]}, {phone}, k{phone[1:]}, {city}, k{city[1:]}, owner, created)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        self._db.executemany(
            "INSERT INTO event (topic, created, payload) VALUES (1, ?, ?)",
            [(n, _PAYLOAD) for n in range(BATCH)],
        )
        self._db.execute("COMMIT")
        return BATCH

    def read(self, table: str, record_id: str) -> int:
        name, phone, _ = self._columns
        self._db.execute(f"SELECT {name}, {phone} FROM {table} WHERE id = ?", (record_id,)).fetchall()
        return 1

    def query(self, table: str, wanted: str) -> int:
        name, phone, _ = self._columns
        sql = f"SELECT id, {name}, {phone} FROM {table} WHERE k{name[1:]} = ? ORDER BY id"
        assert len(self._db.execute(sql, (fold_key(wanted),)).fetchall()) == 1
        return 1


def fill(path: Path, first: int, last: int) -> None:
    """Put records number `first` to `last` into our own table by plain SQL."""
    name, phone = ACCOUNT.by_name["name"], ACCOUNT.by_name["phone"]
    deleted = ACCOUNT.by_name["isdeleted"].column
    sql = (
        f"INSERT INTO {ACCOUNT.table} (id, {name.column}, {name.key_column}, {phone.column}, {phone.key_column},"
        f" {deleted}) VALUES (?, ?, ?, ?, ?, 0)"
    )

    def rows() -> Iterator[tuple[str, ...]]:
        for n in range(first, last):
            yield make_id("001", 10**9 + n), f"Filler {n}", f"filler {n}", str(n), str(n)

    db = sqlite3.connect(path)
    with db:
        db.executemany(sql, rows())
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


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
    try:
        sync_us = fdatasync_us(folder)
        ours = await Ours.open(folder / "ours")
        plain = Raw(folder / "raw.db")
        plain.make_tables()
        creates = Pair("records created in 200s", [], [])
        for turn in range(pairs):
            creates.ours.append(await rate(seconds, ours.create))
            creates.peer.append(await rate(seconds, partial(plain.create, turn)))
        results = [creates.row()]
        raw = Raw(folder / "ours" / "org.db")
        filled = 0
        for size in (SMALL_ROWS, rows):
            fill(folder / "ours" / "org.db", filled, size)
            filled = size
            results += await _reads(ours, raw, size, seconds / 2, pairs)
        await ours.close()
    finally:
        shutil.rmtree(folder)
    return {
        "bench": "records",
        "results": results,
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": window.close().is_clean,
    }


async def _reads(ours: Ours, raw: Raw, size: int, seconds: float, pairs: int) -> list[dict[str, Any]]:
    numbers = random.Random(1)
    points = Pair(f"point reads, {size:,} rows", [], [])
    queries = Pair(f"indexed SOQL, {size:,} rows", [], [])
    for _ in range(pairs):
        wanted = [numbers.randrange(size) for _ in range(20_000)]
        ids = cycle([make_id("001", 10**9 + n) for n in wanted])
        names = cycle([f"Filler {n}" for n in wanted])
        points.ours.append(await rate(seconds, partial(_next_of, ids, ours.read)))
        points.peer.append(await rate(seconds, partial(_next_of, ids, partial(raw.read, ACCOUNT.table))))
        queries.ours.append(await rate(seconds, partial(_next_of, names, ours.query)))
        queries.peer.append(await rate(seconds, partial(_next_of, names, partial(raw.query, ACCOUNT.table))))
    return [points.row(), queries.row()]


def _next_of(
    values: Iterator[str], operation: Callable[[str], Awaitable[int] | int], turn: int
) -> Awaitable[int] | int:
    return operation(next(values))


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'':40}{'ours':>12}{PEER:>15}{'ratio':>8}")
    for row in outcome["results"]:
        name = f"{row['metric']} [{row['unit']}]"
        print(f"{name:40}{row['ours']:12,.1f}{row['peers'][PEER]:15,.1f}{row['ratio'][PEER]:8.3f}")
    print(f"durability: {outcome['durability']}")
    print("clean: " + ("yes" if outcome["clean"] else "no, other work took more than 12 % of the CPU"))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table (1,000,000)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each turn (2)")
    parser.add_argument("--pairs", type=int, default=3, help="turns of ours and the peer's (3)")
    given = parser.parse_args()
    outcome = asyncio.run(measure(given.rows, given.seconds, given.pairs))
    if given.json:
        print(json.dumps(outcome))
    else:
        print_table(outcome)


if __name__ == "__main__":
    main()
