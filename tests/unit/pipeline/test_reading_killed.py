"""Snapshot, resync and reconcile killed by SIGKILL at each of their crash points, then run to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.control_work import make_org
from tests.unit.pipeline.oracle import ENTITIES
from tests.unit.pipeline.test_oracle import lake_rows
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import open_resyncs
from tidewire.pipeline.lake.dirty import open_records
from tidewire.pipeline.lake.tables import Lake

ROOT = Path(__file__).parents[3]
SEED = 5
KILLS = (
    "pipeline.resync.after_asking",
    "pipeline.snapshot.before_bronze",
    "pipeline.reads.after_schema",
    "pipeline.reads.after_rows",
    "pipeline.reads.after_dirty:2",
    "pipeline.reads.before_manifest",
    "pipeline.resync.before_done",
    "pipeline.resync.before_done:2",
)


def run(lake: Lake, crash_at: str) -> int:
    environment = {**os.environ, "TIDEWIRE_CRASH_AT": crash_at, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    command = [sys.executable, "-m", "tests.pipeline.control_work", lake.path, str(SEED)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


@pytest.mark.timeout(400)
def test_control_work_killed_at_every_crash_point_ends_equal_to_the_org(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for crash_at in KILLS:
        assert run(lake, crash_at) == -signal.SIGKILL, crash_at
    assert run(lake, "") == 0
    org = make_org(SEED)
    assert open_records(lake) == {}
    assert open_resyncs(lake) == {}
    rows = lake_rows(lake)
    living = {
        key: {name: value for name, value in values.items() if "__old_" not in name}
        for key, (values, is_deleted, _) in rows.items()
        if not is_deleted
    }
    assert living == {(entity, i): row for entity in ENTITIES for i, row in org.live[entity].items()}
    assert not any(is_stale for _, is_deleted, is_stale in rows.values() if not is_deleted)
    row = manifest.newest(lake)
    assert row is not None
    assert {state.state for state in row.entities.values()} == {"ready"}
