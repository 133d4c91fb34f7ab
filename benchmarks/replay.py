"""The replay bench: stored change events read, access-checked and encoded for subscribers that begin with the oldest.

    python benchmarks/replay.py [--json] [--events 10000] [--pairs 5]

Ours is the whole way from the log to the bytes that a socket would get: pages of the log, grants, hidden fields, the
hub and the wire form, for one CometD and one Avro (Pub/Sub) subscriber, and for one of each who may see only some
fields. The garbage collector is set as the server sets it. The peer reads the same rows with sqlite3 and encodes
each as it stands with orjson: no users, no channels, no decoding. Turns alternate in one run; figures are of CPU
time.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
from measuring import Window
from reporting import bench_parser, show

from tidewire.access.principal import Principal
from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.delivery.forms import WireForm
from tidewire.delivery.hub import EARLIEST, Hub
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.frontends.pubsub.wire import PubSubForm
from tidewire.gate.requests import Call
from tidewire.server.core import Core, open_core
from tidewire.server.link import LocalLink
from tidewire.testing import READER_USERNAME

PEER = "sqlite3 and orjson"
CHANNEL = "/data/AccountChangeEvent"
DURABILITY = "none: nothing is written on either side"
_API_VERSION = 62.0
_PER_REQUEST = 200
_TAKEN = 500
_TAKEN_BYTES = 1 << 20


async def fill(core: Core, admin: Principal, count: int) -> None:
    """Make the events: a new account for every tenth of them, the others updates of two fields."""
    call = Call(admin, "bench")
    ids: list[str] = []
    for start in range(0, count, _PER_REQUEST):
        updates = []
        for number in range(start, start + _PER_REQUEST):
            if number % 10 == 0 or not ids:
                fresh = {"Name": f"Company {number}", "Phone": "1", "BillingCity": "Oslo"}
                ids.append(await core.gate.create(call, "Account", fresh))
            else:
                values = {"Phone": str(number), "AnnualRevenue": number * 10}
                updates.append(core.gate.update(call, "Account", ids[number % len(ids)], values))
        await asyncio.gather(*updates)


class Ours:
    """One subscriber of one kind."""

    def __init__(self, core: Core, principal: Principal, form: WireForm) -> None:
        self._core = core
        self._principal = principal
        self._form = form

    async def run(self) -> tuple[int, float]:
        """Read everything that is stored: how many events, and the CPU time for it."""
        # A hub of its own, so that nothing is in memory yet; it has seen no commit, so all comes from the log.
        hub = Hub(LocalLink(self._core))
        await hub.start()
        woken = asyncio.Event()
        started = time.process_time()
        subscription = await hub.subscribe(
            self._principal, CHANNEL, _API_VERSION, EARLIEST, self._form, woken.set
        )
        count = 0
        while subscription.reached() < hub.head:
            taken = subscription.take(_TAKEN, _TAKEN_BYTES)
            count += len(taken)
            if not taken:
                await woken.wait()
                woken.clear()
        spent_s = time.process_time() - started
        subscription.close()
        await hub.close()
        return count, spent_s


class Raw:
    """The driver, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        tables = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'e4~_%' ESCAPE '~' ORDER BY name"
        )
        self._tables = [str(name) for (name,) in tables]

    def run(self) -> tuple[int, float]:
        """Read and encode every row, a page at a time."""
        started = time.process_time()
        count = 0
        for table in self._tables:
            position = 0
            while True:
                rows = self._db.execute(
                    "SELECT position, topic, created_ms, schema_id, event_uuid, transaction_last, payload"
                    f" FROM {table} WHERE position > ? ORDER BY position LIMIT {_TAKEN}",
                    (position,),
                ).fetchall()
                if not rows:
                    break
                for row in rows:
                    # JSON has no bytes: one character for each is the cheapest there is.
                    orjson.dumps((*row[:6], row[6].decode("latin-1")))
                count += len(rows)
                position = rows[-1][0]
        return count, time.process_time() - started

    def close(self) -> None:
        self._db.close()


async def measure(events: int, pairs: int) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    window = Window(())
    try:
        core = await open_core(Settings(data=str(folder), dev=True), SystemClock())
        admin = (await core.logins.login(DEV_USERNAME, DEV_PASSWORD, "bench")).principal
        reader = (await core.logins.login(READER_USERNAME, DEV_PASSWORD, "bench")).principal
        await fill(core, admin, events)
        raw = Raw(folder / "org.db")
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        sides = {
            "change events replayed over CometD": Ours(core, admin, bayeux_form(_API_VERSION)),
            "change events replayed in Avro": Ours(core, admin, PubSubForm()),
            "the same over CometD, some fields hidden": Ours(core, reader, bayeux_form(_API_VERSION)),
            "the same in Avro, some fields hidden": Ours(core, reader, PubSubForm()),
        }
        results = [await _compare(name, ours, raw, pairs) for name, ours in sides.items()]
        raw.close()
        await core.close()
    finally:
        shutil.rmtree(folder)
    return {
        "bench": "replay",
        "results": results,
        "durability": DURABILITY,
        "clean": window.close().is_clean,
    }


async def _compare(name: str, ours: Ours, raw: Raw, pairs: int) -> dict[str, Any]:
    rates: list[tuple[float, float]] = []
    for _ in range(pairs):
        count, spent_s = await ours.run()
        rows, peer_s = raw.run()
        if count != rows:
            raise SystemExit(f"{name}: {count} events of {rows} rows")
        rates.append((count / spent_s, rows / peer_s))
    return {
        "metric": name,
        "unit": "events/s of CPU time",
        "ours": round(statistics.median(a for a, _ in rates)),
        "peers": {PEER: round(statistics.median(b for _, b in rates))},
        "ratio": {PEER: round(statistics.median(a / b for a, b in rates), 3)},
        "cpu_ratio": {},
    }


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'events/s of CPU time':44}{'ours':>12}{PEER:>20}{'ratio':>8}")
    for row in outcome["results"]:
        print(f"{row['metric']:44}{row['ours']:12,}{row['peers'][PEER]:20,}{row['ratio'][PEER]:8.3f}")


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="stored events (10000)")
    parser.add_argument("--pairs", type=int, default=5, help="turns of ours and the peer's (5)")
    given = parser.parse_args()
    outcome = asyncio.run(measure(given.events, given.pairs))
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
