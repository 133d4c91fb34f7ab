"""Gap recovery and purge killed by SIGKILL at each of their crash points, then run to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.control_work import make_org
from tests.pipeline.histories import History, read_replicas, write_bronze
from tests.pipeline.recover_gap import prepare
from tests.pipeline.verdict import manifest_positions
from tests.unit.pipeline.fold_base import make_base
from tests.unit.pipeline.oracle import ENTITIES
from tests.unit.pipeline.test_oracle import lake_rows
from tests.unit.pipeline.upkeep.test_purge import files_with
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import open_resyncs
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, try_open_table

ROOT = Path(__file__).parents[3]
SEED = 11
pytestmark = pytest.mark.timeout(400)


def run(crash_at: str, module: str, *arguments: str) -> int:
    environment = {**os.environ, "TIDEWIRE_CRASH_AT": crash_at, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    command = [sys.executable, "-m", f"tests.pipeline.{module}", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def assert_lake_equals_org(lake: Lake) -> None:
    org = make_org(SEED)
    assert open_resyncs(lake) == {}
    living = {
        key: {name: value for name, value in values.items() if "__old_" not in name}
        for key, (values, is_deleted, _) in lake_rows(lake).items()
        if not is_deleted
    }
    assert living == {(entity, i): row for entity in ENTITIES for i, row in org.live[entity].items()}


def archived(lake: Lake) -> list[int]:
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    ids: list[int] = read_rows(bronze, ["replay_id"])["replay_id"].to_pylist()
    return sorted(ids)


def test_recovery_by_resync_killed_at_every_crash_point_ends_equal_to_the_org(
    tmp_path: Path,
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    prepare(lake, SEED)
    checkpoint = Path(lake.checkpoint("archive"))
    checkpoint.mkdir(parents=True)
    for crash_at in (
        "pipeline.resync.after_asking",
        "pipeline.healing.after_asking",
        "pipeline.healing.before_checkpoint",
    ):
        assert run(crash_at, "recover_gap", lake.path, str(SEED)) == -signal.SIGKILL, crash_at
        assert checkpoint.exists()
    assert run("", "recover_gap", lake.path, str(SEED)) == 0
    assert not checkpoint.exists()
    assert_lake_equals_org(lake)
    assert len(set(archived(lake))) == len(archived(lake))


def test_recovery_from_another_archive_killed_between_files_copies_each_event_once(
    tmp_path: Path,
) -> None:
    lake, other = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "other"), "other")
    prepare(lake, SEED)
    org = make_org(SEED)
    events = org.history.events
    for i in range(0, len(events), 10):
        part = events[i : i + 10]
        is_last = i + 10 >= len(events)
        write_bronze(other, part, org.history.position if is_last else part[-1].replay_id)
    for crash_at in (
        "pipeline.healing.after_file",
        "pipeline.healing.after_file:2",
        "pipeline.healing.before_checkpoint",
    ):
        assert run(crash_at, "recover_gap", lake.path, str(SEED), other.path) == -signal.SIGKILL, crash_at
    assert run("", "recover_gap", lake.path, str(SEED), other.path) == 0
    assert archived(lake) == [event.replay_id for event in events]
    assert_lake_equals_org(lake)


@pytest.mark.parametrize(
    "crash_at",
    [*(f"pipeline.purge.after_table:{n}" for n in range(1, 4)), "pipeline.purge.after_manifest"],
)
def test_purge_killed_at_a_crash_point_and_done_again_leaves_no_trace(tmp_path: Path, crash_at: str) -> None:
    lake = Lake(str(tmp_path / "lake"))
    history = History()
    gone, kept = (history.create("Account", {"Name": f"n{i}"}) for i in range(2))
    history.update("Account", [gone, kept], {"Phone": "shared"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake, 2)
    make_base(lake, "Account", 1)
    before = {position: read_replicas(lake, position) for position in manifest_positions(lake)}
    assert run(crash_at, "purge_record", lake.path, "Account", gone) == -signal.SIGKILL
    assert run("", "purge_record", lake.path, "Account", gone) == 0
    assert files_with(lake, gone.encode()) == []
    for position, truth in before.items():
        truth.live.pop(("Account", gone), None)
        assert read_replicas(lake, position) == truth
    row, base = manifest.newest(lake), try_open_table(lake, "replica/Account")
    assert row is not None
    assert base is not None
    assert row.table_versions["replica/Account"] == base.delta.version()
