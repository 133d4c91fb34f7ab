"""The whole pipeline on a live server under random writes, its processes killed at random moments: in the
end the replicas are the server's records, row for row, and history is the archive, each change once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.pipeline.live_org import MAX_CHANGES, Load, assert_lake_is_true, make_one_of_each, select_objects
from tests.pipeline.pipeline_process import ROOT, Driver, is_well, told, wait_for
from tests.running import Rest
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.status.lake_status import read_status
from tidewire.testing import LocalServer

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(7_200)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone master and two workers; yields the master's address."""
    script, directory = ROOT / "scripts" / "spark-cluster", tmp_path / "cluster"
    told = subprocess.run(
        [sys.executable, str(script), "start", "--dir", str(directory)],
        capture_output=True,
        text=True,
        check=True,
    )
    yield told.stdout.strip()
    subprocess.run([sys.executable, str(script), "stop", "--dir", str(directory)], check=True)


def executors(scratch: Path, driver: int) -> list[int]:
    """The processes of this test that run tasks: executors of the cluster, which work under the scratch
    directory, or else the Python workers of the driver.
    """
    parents = {pid: parent for pid, parent, _ in _iter_processes()}

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != driver:
            pid = parents.get(pid, 0)
        return pid == driver

    backends, workers = [], []
    for pid, _, command in _iter_processes():
        if "CoarseGrainedExecutorBackend" in command and _works_under(pid, scratch):
            backends.append(pid)
        elif "pyspark.daemon" in command and is_ours(pid):
            workers.append(pid)
    return backends or workers


def _works_under(pid: int, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(directory)
    except OSError:
        return False


def _iter_processes() -> Iterator[tuple[int, int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            yield int(entry.name), int(fields[1]), command


def has_archived_more(lake: Lake, than: int) -> bool:
    return bool(told(lake).get("archived", 0) > than)


def put_through(server: LocalServer, lake: Lake, master: str, kills: int, seed: int, log: Path) -> None:
    choose = random.Random(seed)
    server.limit_changes(MAX_CHANGES)
    with closing(Rest(server.http, server.login())) as rest:
        select_objects(rest)
    load = Load(server, seed)
    pause = threading.Event()
    driver = None
    try:
        load.start()
        while load.count < 100:
            load.check()
            pause.wait(0.05)
        driver = Driver(server, lake, master, log)
        wait_for(driver, "a first event", partial(has_archived_more, lake, 0))
        load.done.clear()
        for number in range(kills):
            load.check()
            if choose.random() < 0.8:
                # More than was there when the last one died: most drivers get to do something.
                wait_for(driver, "progress", partial(has_archived_more, lake, read_status(lake).archived))
            pause.wait(choose.random() * 5)
            victims = executors(log.parent, driver.process.pid)
            if number % 2 and victims:
                with suppress(ProcessLookupError):  # it ended by itself just now
                    os.kill(choose.choice(victims), signal.SIGKILL)
            else:
                driver.kill()
                driver = Driver(server, lake, master, log)
        wait_for(driver, "a write of every kind", load.has_done_everything)
        load.stop()
        load.check()
        with closing(Rest(server.http, server.login())) as rest:
            head = rest.call("GET", "/services/tidewire/v1/status")["head"]

        def is_through() -> bool:
            status = told(lake)
            return (
                status.get("applied_through", 0) >= head
                and not status["dirty"]
                and not status["resyncing"]
                and status["health"] == "ok"
            )

        wait_for(driver, f"position {head}", is_through)
        driver.stop()
    finally:
        load.stop()
        if driver is not None:
            driver.bury()
    assert told(lake)["health"] == "stopped"
    with closing(Rest(server.http, server.login())) as rest:
        assert_lake_is_true(rest, lake)


def test_replicas_equal_the_server_after_kills_on_local_threads(
    source: LocalServer, tmp_path: Path, kills: int, seed: int
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    put_through(source, lake, "local[2]", kills, seed, tmp_path / "driver.log")


def test_replicas_equal_the_server_after_kills_on_a_cluster(
    source: LocalServer, cluster: str, tmp_path: Path, kills: int, seed: int
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    put_through(source, lake, cluster, kills, seed, tmp_path / "driver.log")


def test_driver_that_was_passed_over_while_it_hung_ends_and_has_written_nothing(
    source: LocalServer, tmp_path: Path
) -> None:
    lake, log = Lake(str(tmp_path / "lake")), tmp_path / "driver.log"
    with closing(Rest(source.http, source.login())) as rest:
        select_objects(rest)
        make_one_of_each(rest)
        first = Driver(source, lake, "local[2]", log)
        second = None
        try:
            wait_for(first, "a copy", lambda: is_well(lake))
            first.process.send_signal(signal.SIGSTOP)
            make_one_of_each(rest)
            # As where the first one's machine cannot be reached, and its lock is not seen.
            (Path(lake.path) / "_lease").unlink()
            second = Driver(source, lake, "local[2]", tmp_path / "second.log")
            head = rest.call("GET", "/services/tidewire/v1/status")["head"]
            wait_for(second, "everything", lambda: told(lake).get("applied_through", 0) >= head)
            first.process.send_signal(signal.SIGCONT)
            assert first.process.wait(600) == 2
            assert "no longer holds the lease" in log.read_text("utf-8", errors="replace")
            make_one_of_each(rest)
            head = rest.call("GET", "/services/tidewire/v1/status")["head"]
            wait_for(second, "what came after", lambda: told(lake).get("applied_through", 0) >= head)
            second.stop()
        finally:
            first.bury()
            if second is not None:
                second.bury()
        assert_lake_is_true(rest, lake)
