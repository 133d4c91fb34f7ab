"""The append bench: durable events a second into the log, beside sqlite3 alone doing the same.

    python benchmarks/append.py [--json] [--seconds 0.6] [--pairs 5]

Ours is the event log behind its group writer: topics, hour tables, positions, the thread that writes, and the
committed events handed on as delivery gets them. The peer is the driver alone: the same columns, the same index, the
same pragmas, one transaction for each batch. Turns alternate in one run, and each side's write-ahead log is emptied
between them.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from measuring import Window, fdatasync_us
from reporting import bench_parser, show

from tidewire.eventlog.sql_log import SqlEventLog
from tidewire.events import Event, EventDraft, Family
from tidewire.storage.sqlite import SqliteStore
from tidewire.storage.store import Progress, Transaction
from tidewire.storage.writer import GroupWriter

PEER = "raw sqlite3"
SIZES = (1, 100, 1000)
PRODUCERS = 64
TOPICS = tuple(f"Topic{n}ChangeEvent" for n in range(10))
DURABILITY = "both: every batch on disk before it counts (SQLite: WAL, synchronous=FULL)"
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0", "secure_delete = OFF")
_PAYLOAD = b"x" * 260
_SCHEMA_ID = "x" * 22
_UUID = "5e1f5f0a-2a7c-4c5e-8f63-2f4f5b0f9a11"
_NOW_MS = 1_800_000_000_000
_FIRST = 1 << 49


@dataclass(frozen=True, slots=True)
class Pair:
    """One metric, ours and the peer's, turn by turn."""

    metric: str
    ours: list[float]
    peer: list[float]

    def row(self) -> dict[str, Any]:
        """The metric as `--json` prints it: medians, and the median of the turns' ratios."""
        ratio = statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))
        return {
            "metric": self.metric,
            "unit": "1/s",
            "ours": round(statistics.median(self.ours)),
            "peers": {PEER: round(statistics.median(self.peer))},
            "ratio": {PEER: round(ratio, 3)},
            "cpu_ratio": {},
        }


class Ours:
    """The event log on a store of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store = SqliteStore(path, _FIRST)
        self._writer = GroupWriter(self._store, self._hand_on)
        self._writer.start()
        self._log = SqlEventLog()
        self.handed_on: tuple[Event, ...] = ()

    def _hand_on(self, transactions: list[Transaction], progress: Progress) -> None:
        self.handed_on = tuple(event for tx in transactions for event in tx.events)

    async def append(self, size: int) -> int:
        drafts = [
            EventDraft(TOPICS[n % 10], Family.CHANGE, _PAYLOAD, _NOW_MS, _SCHEMA_ID, _UUID)
            for n in range(size)
        ]
        events = await self._writer.submit(lambda tx: self._log.append(tx, drafts, _NOW_MS))
        return len(events)

    async def count(self) -> int:
        """How many events the log holds."""
        while True:
            sizes = {size.family: size for size in await self._store.read(self._log.read_sizes)}
            if sizes[Family.CHANGE].is_counted:
                return sizes[Family.CHANGE].events

    def empty_wal(self) -> None:
        _empty_wal(self._path)

    def close(self) -> None:
        self._writer.stop()
        self._store.close()


class Raw:
    """sqlite3 alone, on a table like the log's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        for pragma in PRAGMAS:
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute(
            "CREATE TABLE event (position INTEGER PRIMARY KEY, topic INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
            " schema_id TEXT NOT NULL, event_uuid TEXT NOT NULL, transaction_last INTEGER NOT NULL,"
            " payload BLOB NOT NULL)"
        )
        self._db.execute("CREATE INDEX event_topic ON event (topic, position)")
        self._next = _FIRST

    async def append(self, size: int) -> int:
        first, last = self._next, self._next + size - 1
        rows = [
            (position, position % 10, _NOW_MS, _SCHEMA_ID, _UUID, last, _PAYLOAD)
            for position in range(first, last + 1)
        ]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")
        self._next = last + 1
        return size

    def empty_wal(self) -> None:
        _empty_wal(self._path)

    def close(self) -> None:
        self._db.close()


def _empty_wal(path: Path) -> None:
    db = sqlite3.connect(path, timeout=10)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


async def rate(seconds: float, producers: int, append: Callable[[], Awaitable[int]]) -> float:
    """Events a second over a stretch of time, from so many producers of which each waits for its own batches."""
    started = time.perf_counter()

    async def produce() -> int:
        done = 0
        while time.perf_counter() - started < seconds:
            done += await append()
        return done

    done = await asyncio.gather(*[produce() for _ in range(producers)])
    return sum(done) / (time.perf_counter() - started)


async def measure(seconds: float, pairs: int) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    window = Window(())
    try:
        sync_us = fdatasync_us(folder)
        ours, raw = Ours(folder / "ours.db"), Raw(folder / "raw.db")
        await ours.append(1)
        results = []
        for size, producers in ((1, 1), (1, PRODUCERS), *((size, 1) for size in SIZES[1:])):
            pair = Pair(_name(size, producers), [], [])
            for _ in range(pairs):
                pair.ours.append(await rate(seconds, producers, partial(ours.append, size)))
                ours.empty_wal()
                pair.peer.append(await rate(seconds, producers, partial(raw.append, size)))
                raw.empty_wal()
            results.append(pair.row())
        assert await ours.count() == ours.handed_on[-1].position - _FIRST + 1
        ours.close()
        raw.close()
    finally:
        shutil.rmtree(folder)
    return {
        "bench": "append",
        "results": results,
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": window.close().is_clean,
    }


def _name(size: int, producers: int) -> str:
    return f"events appended in {size}s, {producers} producer{'s' if producers > 1 else ''}"


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'':48}{'ours':>12}{PEER:>14}{'ratio':>8}")
    for row in outcome["results"]:
        print(
            f"{row['metric'] + ' [' + row['unit'] + ']':48}{row['ours']:12,}{row['peers'][PEER]:14,}"
            f"{row['ratio'][PEER]:8.3f}"
        )


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=0.6, help="length of each turn (0.6)")
    parser.add_argument("--pairs", type=int, default=5, help="turns of ours and the peer's (5)")
    given = parser.parse_args()
    outcome = asyncio.run(measure(given.seconds, given.pairs))
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
