"""The pipeline bench: events archived and applied by Spark, and how soon a commit can be queried.

    python benchmarks/pipeline.py [--json] [--rows 100000] [--seconds 6] [--master local[2]]

A server is filled with records, which gives as many events. Then one Spark session reads them all: by the bare source
into Spark's noop sink (the peer), by the archive query into bronze, and by the apply query into history. Rates are
events by the time of their batches; what it takes to start a query, once, stands in a row of its own. Afterwards
the whole pipeline runs, and once it follows the log and has folded the replica, records are updated at 100 and 1,000
events a second. A watcher notes when the manifest comes to cover each event: the time from its commit until then is
what a reader waits, and at the end of each load a reader is asked for the last value. Memory is that of the driver,
its JVM and all Python workers, shared pages counted in each.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.compute as pc
from measuring import Reading, fdatasync_us, machine_busy_s
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from reporting import bench_parser, show

from tidewire.clock import SystemClock
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.pipeline.apply.batch import apply_batch
from tidewire.pipeline.driver.queries import PipelineConfig, drain, start_apply, start_archive
from tidewire.pipeline.driver.run import run_pipeline
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.lease import hold_lease
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.source.archive import archive_batch
from tidewire.pipeline.source.bus import BusSettings, render_options
from tidewire.pipeline.spark import start_session
from tidewire.testing import ServerProcess

API = "/services/data/v62.0"
PEER = "bare source to noop"
AT_ONCE = 200
RATES = (100, 1_000)
CALLERS = 2
WARM_ROWS = 2_000
WATCH_S = 0.02
DURABILITY = "every file and commit on disk before the next batch; the peer keeps nothing"


class Caller:
    """Writes records over one connection."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=120)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def write(self, method: str, records: Sequence[dict[str, Any]]) -> list[str]:
        """Create or update some records in one transaction; returns their ids."""
        body = json.dumps({"allOrNone": True, "records": list(records)})
        self._connection.request(method, f"{API}/composite/sobjects", body, self._headers)
        answer = json.loads(self._connection.getresponse().read())
        assert all(each["success"] for each in answer), answer[:1]
        return [each["id"] for each in answer]


def fill(server: ServerProcess, token: str, rows: int) -> list[str]:
    """Create records; returns their ids."""

    def create(part: range) -> list[str]:
        caller = Caller(server.http, token)
        ids: list[str] = []
        for first in range(part.start, part.stop, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, part.stop))
            ids += caller.write("POST", [new_account(number) for number in numbers])
        return ids

    step = -(-rows // CALLERS)
    parts = [range(first, min(first + step, rows)) for first in range(0, rows, step)]
    with ThreadPoolExecutor(CALLERS) as pool:
        return [record_id for ids in pool.map(create, parts) for record_id in ids]


def new_account(number: int) -> dict[str, Any]:
    """A record with a handful of fields set."""
    return {
        "attributes": {"type": "Account"},
        "Name": f"Account {number}",
        "Phone": f"+49 228 {number:07}",
        "BillingCity": "Bonn",
        "AnnualRevenue": number / 4,
        "NumberOfEmployees": number % 1_000,
    }


def update_steadily(
    server: ServerProcess, token: str, ids: Sequence[str], rate: int, seconds: float
) -> tuple[str, str]:
    """Update records at a rate, in transactions of a tenth of a second's worth; the last one and its new value.
    No two values are alike, since updates that are would become one event.
    """
    record_id = value = ""
    caller = Caller(server.http, token)
    size = max(1, min(AT_ONCE, rate // 10))
    started_s = time.monotonic()
    for turn in range(int(seconds * rate / size)):
        due_s = started_s + turn * size / rate
        time.sleep(max(0.0, due_s - time.monotonic()))
        first = turn * size % (len(ids) - size)
        records: list[dict[str, Any]] = []
        for record_id in ids[first : first + size]:
            value = f"+{rate} {turn} {len(records)}"
            records.append({"attributes": {"type": "Account"}, "id": record_id, "Phone": value})
        caller.write("PATCH", records)
    return record_id, value


class Watcher:
    """Notes when the manifest reaches which position."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.positions: list[int] = []
        self.times_ms: list[int] = []

    def _run(self) -> None:
        while not self._ended.wait(WATCH_S):
            row = manifest.newest(self._lake)
            if row is not None and (not self.positions or row.position > self.positions[-1]):
                self.positions.append(row.position)
                self.times_ms.append(time.time_ns() // 1_000_000)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def delays_ms(self, after: int) -> list[int]:
        """For each event after a position: from its commit until it was seen to be readable."""
        bronze = try_open_table(self._lake, "bronze")
        assert bronze is not None
        rows = read_rows(bronze, ["replay_id", "commit_ms"])
        rows = rows.filter(pc.greater(rows["replay_id"], after))
        found: list[int] = []
        for replay_id, commit_ms in zip(
            rows["replay_id"].to_pylist(), rows["commit_ms"].to_pylist(), strict=True
        ):
            place = bisect_left(self.positions, replay_id)
            if place < len(self.positions) and commit_ms is not None:
                found.append(self.times_ms[place] - commit_ms)
        return found


@contextmanager
def running(config: PipelineConfig, spark: SparkSession) -> Iterator[None]:
    """The pipeline, in a thread of its own."""
    stop = threading.Event()
    thread = threading.Thread(target=run_pipeline, args=(config, stop), kwargs={"spark": spark})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def wait_applied(server: ServerProcess, token: str, lake: Lake) -> int:
    """Wait until the lake has what the server has; returns the position."""
    connection = HTTPConnection(urlsplit(server.http).netloc, timeout=60)
    connection.request("GET", "/services/tidewire/v1/status", headers={"Authorization": f"Bearer {token}"})
    head = int(json.loads(connection.getresponse().read())["head"])
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        row = manifest.newest(lake)
        if row is not None and row.position >= head:
            return head
        time.sleep(0.05)
    raise TimeoutError(f"the pipeline has not come to position {head}")


def wait_folded(lake: Lake, position: int) -> None:
    """Wait until the base of the replica has everything up to a position."""
    deadline_s = time.monotonic() + 300
    while time.monotonic() < deadline_s:
        row = manifest.newest(lake)
        if row is not None and row.entities["Account"].base_position >= position:
            return
        time.sleep(0.1)
    raise TimeoutError(f"the replica has not been folded up to position {position}")


def check_read(lake: Lake, record_id: str, value: str) -> None:
    """Make sure that a reader gets the last value now."""
    rows = read_replica(lake, "Account", ids=[record_id])
    assert rows["Phone"].to_pylist() == [value], rows["Phone"]


def bus_settings(server: ServerProcess) -> BusSettings:
    """How the pipeline reads this server."""
    return BusSettings(
        server.grpc,
        "/data/ChangeEvents",
        username=DEV_USERNAME,
        password=DEV_PASSWORD,
        login_url=server.http,
        client_id=DEV_CLIENT_ID,
        client_secret=DEV_CLIENT_SECRET,
    )


@dataclass(frozen=True)
class Drained:
    """What a query took: the time of its batches, and all of it."""

    batches_s: float
    all_s: float


def time_query(query: StreamingQuery, started_s: float) -> Drained:
    """Wait for a query that ends by itself; how long it took."""
    drain(query, threading.Event())
    all_s = time.monotonic() - started_s
    return Drained(sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress) / 1000, all_s)


def read_bare(spark: SparkSession, bus: BusSettings) -> tuple[int, Drained]:
    """Read everything there is into nothing, as a stream; how many rows, and in what time."""
    with tempfile.TemporaryDirectory(prefix="tidewire-bare-") as checkpoint:
        options = {**render_options(bus), "max_rows": "100000", "settle_s": "2"}
        started_s = time.monotonic()
        rows = spark.readStream.format("tidewire").options(**options).load()
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        drained = time_query(query, started_s)
        return sum(each["numInputRows"] for each in query.recentProgress), drained


def run_queries(spark: SparkSession, config: PipelineConfig) -> tuple[Drained, Drained]:
    """Archive and apply what there is; the time of each."""
    clock = SystemClock()
    with hold_lease(config.lake.path) as epoch:
        started_s = time.monotonic()
        query = start_archive(spark, config, archive_batch(config.lake, epoch, clock))
        archived = time_query(query, started_s)
        started_s = time.monotonic()
        query = start_apply(spark, config, apply_batch(config.lake, epoch, clock))
        return archived, time_query(query, started_s)


class Tree:
    """This process and all that descend from it: a JVM, its Python workers, a server. Workers have process groups
    of their own, so that only their parents tell whose they are.
    """

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._foreign_s = machine_busy_s() - self._cpu_s()

    def close(self) -> Reading:
        """How much of the machine others took from construction until now."""
        wall_s = time.monotonic() - self._started_s
        foreign_s = machine_busy_s() - self._cpu_s() - self._foreign_s
        return Reading(wall_s, max(foreign_s, 0.0) / (wall_s * (os.cpu_count() or 1)))

    def rss_mb(self, without: int) -> float:
        """Resident memory of all but one process and what descends from it."""
        processes = _list_processes()
        left = _descend(processes, os.getpid()) - _descend(processes, without)
        return sum(processes[pid].rss_pages for pid in left) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _cpu_s(self) -> float:
        """Time of all of them, also of those that have ended."""
        processes = _list_processes()
        ticks = sum(processes[pid].ticks for pid in _descend(processes, os.getpid()))
        return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A living process: its parent, its CPU time with that of its ended children, and its memory."""

    parent: int
    ticks: int
    rss_pages: int


def _list_processes() -> dict[int, Process]:
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = Process(int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))
    return found


def _descend(processes: dict[int, Process], root: int) -> set[int]:
    found = {root} & processes.keys()
    while more := {pid for pid, each in processes.items() if each.parent in found} - found:
        found |= more
    return found


def measure(rows: int, seconds: float, master: str) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    results: list[dict[str, Any]] = []
    try:
        sync_us = fdatasync_us(folder)
        with ServerProcess(folder / "data") as server:
            token = server.login()
            bus = bus_settings(server)
            ids = fill(server, token, WARM_ROWS)
            spark = start_session(master)
            warm = PipelineConfig(Lake(str(folder / "warm")), bus, available_now=True, max_rows=100_000)
            read_bare(spark, bus)
            run_queries(spark, warm)
            ids += fill(server, token, rows - WARM_ROWS)
            tree = Tree()
            bare_rows, bare_time = read_bare(spark, bus)
            lake = Lake(str(folder / "lake"))
            config = PipelineConfig(lake, bus, available_now=True, max_rows=100_000)
            archived, applied = run_queries(spark, config)
            bare = bare_rows / bare_time.batches_s
            results.append(render("events archived", "1/s", len(ids) / archived.batches_s, bare))
            results.append(render("events applied", "1/s", len(ids) / applied.batches_s, bare))
            starts_ms = [(each.all_s - each.batches_s) * 1000 for each in (archived, applied)]
            results.append(render("start of a query", "ms", max(starts_ms)))
            filled = wait_applied(server, token, lake)
            config = PipelineConfig(lake, bus, metrics="")
            with running(config, spark), Watcher(lake) as watcher:
                update_steadily(server, token, ids, RATES[-1], 1)
                wait_applied(server, token, lake)
                wait_folded(lake, filled)
                for rate in RATES:
                    before = wait_applied(server, token, lake)
                    record_id, value = update_steadily(server, token, ids, rate, seconds)
                    wait_applied(server, token, lake)
                    check_read(lake, record_id, value)
                    delays = sorted(watcher.delays_ms(before))
                    name = f"commit to queryable at {rate:,}/s"
                    results.append(render(f"{name}, p50", "ms", statistics.median(delays)))
                    results.append(render(f"{name}, p95", "ms", delays[int(len(delays) * 0.95)]))
                memory = tree.rss_mb(without=server.pid)
            results.append(render("memory of driver, JVM and workers", "MB", memory))
            reading = tree.close()
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "bench": "pipeline",
        "results": results,
        "replica_rows": rows,
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": reading.is_clean,
    }


def render(metric: str, unit: str, ours: float, peer: float | None = None) -> dict[str, Any]:
    """One row; the peer stands beside rates only."""
    row: dict[str, Any] = {"metric": metric, "unit": unit, "ours": round(ours), "peers": {}, "ratio": {}}
    if peer is not None:
        row["peers"] = {PEER: round(peer)}
        row["ratio"] = {PEER: round(ours / peer, 3)}
    return row


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'':46}{'ours':>12}{PEER:>22}{'ratio':>8}")
    for row in outcome["results"]:
        peer, ratio = row["peers"].get(PEER), row["ratio"].get(PEER)
        beside = "" if peer is None else f"{peer:22,}{ratio:8.3f}"
        print(f"{row['metric'] + ' [' + row['unit'] + ']':46}{row['ours']:12,}{beside}")


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="records of the replica (100000)")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each steady load (6)")
    parser.add_argument("--master", default="local[2]", help="Spark master (local[2])")
    given = parser.parse_args()
    outcome = measure(max(given.rows, 2 * WARM_ROWS), given.seconds, given.master)
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
