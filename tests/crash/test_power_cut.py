"""Losing power: what was acknowledged is there, what was not synced is gone, and the test can tell the
difference."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.powercut import PowerCut
from tests.crash.trial import Trial
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

PLANTED_WRITER = Path(__file__).with_name("planted_writer.py")


def acknowledged_until_cut(
    power: PowerCut, database: Path, honesty: str, rows: int, keep_percent: int
) -> int:
    """Run the planted writer until it has acknowledged `rows` more rows, cut the power, return the last row
    acknowledged."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **power.env(keep_percent, seed=rows)}
    process = subprocess.Popen(
        [sys.executable, str(PLANTED_WRITER), str(database), honesty],
        stdout=subprocess.PIPE,
        env=env,
        text=True,
    )
    assert process.stdout is not None
    last = -1
    try:
        for _ in range(rows):
            last = int(process.stdout.readline())
    finally:
        process.kill()
        # What had been printed before the kill was acknowledged as well. The last line may be cut off.
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                last = int(line)
        process.stdout.close()
        process.wait(timeout=120)
    power.cut()
    return last


def surviving_rows(database: Path) -> list[int]:
    """The rows that are there after the cut. Reads a copy in memory: a closing SQLite tidies up the files."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        try:
            rows = [
                int(number) for (number,) in connection.execute("SELECT number FROM planted ORDER BY rowid")
            ]
        except sqlite3.OperationalError:
            return []
    connection.close()
    return rows


@pytest.mark.parametrize("keep_percent", [0, 40])
def test_honest_writer_after_power_cuts_has_every_acknowledged_row(tmp_path: Path, keep_percent: int) -> None:
    power = PowerCut(tmp_path / "data", tmp_path / "scratch")
    database = tmp_path / "data" / "org.db"
    for cut in range(3):
        last = acknowledged_until_cut(power, database, "honest", 150 + cut, keep_percent)
        assert power.counts().syncs >= 150 // 4
        copy = tmp_path / f"copy-{cut}"
        copy.mkdir()
        for file in database.parent.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        rows = surviving_rows(copy / database.name)
        assert rows == list(range(len(rows)))
        assert len(rows) > last


def test_writer_that_acknowledges_before_the_sync_is_found_out(tmp_path: Path) -> None:
    power = PowerCut(tmp_path / "data", tmp_path / "scratch")
    database = tmp_path / "data" / "org.db"
    last = acknowledged_until_cut(power, database, "unsynced", 150, keep_percent=0)
    assert last >= 149
    assert len(surviving_rows(database)) <= last


@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["at random", "at a checkpoint"])
def test_server_after_power_cuts_has_lost_nothing_acknowledged(
    tmp_path: Path, kills: int, seed: int, moment: str
) -> None:
    data = tmp_path / "data"
    power = PowerCut(data, tmp_path / "scratch")
    rng = random.Random(seed)
    with ServerProcess(data, env=power.env(keep_percent=0, seed=seed)) as server:
        trial = Trial(server, seed)

        def lose_power() -> None:
            if moment == "at random":
                trial.kill_at_random()
            else:
                trial.kill_at_checkpoint()
            assert power.counts().syncs > 0
            power.cut()
            server.env.update(power.env(rng.choice([0, 0, 30, 70]), rng.randrange(1 << 30)))

        for _ in range(kills):
            assert trial.round(lose_power) == []
