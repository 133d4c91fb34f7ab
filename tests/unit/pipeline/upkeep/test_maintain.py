"""Folding, merging and dropping: readers see the same, whichever process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import History, read_replicas, write_bronze
from tests.pipeline.maintain_lake import BUCKET_ROWS, maintain_all
from tests.pipeline.verdict import (
    assert_bronze_exact,
    assert_history_complete,
    assert_replicas_true_at_every_batch,
    manifest_positions,
)
from tidewire.clock import ManualClock
from tidewire.errors import ReplayIdExpired, WriteConflict
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import open_dirty
from tidewire.pipeline.lake.tables import Lake, append_files, open_table, try_open_table
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.upkeep.compaction import CompactionRules, Compactor
from tidewire.pipeline.upkeep.maintain import POSITION, FoldRules, Maintainer

ROOT = Path(__file__).parents[4]
DAY_S = 86_400


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def make_history(transactions: int = 12) -> History:
    history = History()
    for i in range(transactions):
        account = history.create("Account", {"Name": f"a{i}", "Phone": "1", "BillingAddress.City": "Bonn"})
        history.create("Contact", {"Name.LastName": f"Lee {i}"})
        history.commit(hidden=i % 2)
        history.update("Account", [account], {"Phone": None, "BillingAddress.City": f"c{i}"})
        if i % 4 == 3:
            history.delete("Account", [account])
        history.commit()
    return history


@pytest.fixture
def filled(lake: Lake) -> tuple[Lake, History]:
    history = make_history()
    write_bronze(lake, history.events, history.position)
    apply_all(lake, max_rows=5)
    return lake, history


def files_of(lake: Lake, name: str) -> list[str]:
    return DeltaTable(lake.table(name)).file_uris()


def test_base_read_by_another_engine_agrees_with_the_manifest(filled: tuple[Lake, History]) -> None:
    lake, history = filled
    maintain_all(lake)
    row = manifest.newest(lake)
    assert row is not None
    assert row.entities["Account"].base_position == row.position == history.position
    plain = DeltaTable(lake.table("replica/Account"), version=row.table_versions["replica/Account"])
    assert plain.metadata().configuration[POSITION] == str(history.position)
    assert int(plain.metadata().configuration["tidewire.buckets"]) > 1
    found = plain.to_pyarrow_table()
    own = read_replica(lake, "Account", with_deleted=True).sort_by("Id")
    assert found.select(own.schema.names).cast(own.schema).sort_by("Id").equals(own)
    assert own.num_rows == 12


def test_every_snapshot_point_reads_the_same_after_folding_and_merging(filled: tuple[Lake, History]) -> None:
    lake, history = filled
    files = len(files_of(lake, "history/Account"))
    assert maintain_all(lake) == 2
    assert maintain_all(lake) == 0
    assert len(files_of(lake, "history/Account")) == 1 < files
    assert len(files_of(lake, "manifest")) == 2
    assert_replicas_true_at_every_batch(lake, history)
    assert_history_complete(lake, history)
    assert_bronze_exact(lake, history)


def test_maintenance_killed_at_every_crash_point_leaves_true_replicas(
    filled: tuple[Lake, History],
) -> None:
    lake, history = filled
    for point in (
        "pipeline.maintain.after_files",
        "pipeline.maintain.after_control",
        "pipeline.maintain.after_base",
        "pipeline.maintain.before_manifest",
        "pipeline.maintain.after_base:2",
        "pipeline.compact.after_files",
        "pipeline.compact.after_files:2",
    ):
        environment = {**os.environ, "TIDEWIRE_CRASH_AT": point, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
        command = [sys.executable, "-m", "tests.pipeline.maintain_lake", lake.path]
        died = subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
        assert died == -signal.SIGKILL, point
        assert read_replicas(lake) == history.truth
    maintain_all(lake)
    row = manifest.newest(lake)
    assert row is not None
    assert {state.base_position for state in row.entities.values()} == {history.position}
    assert_replicas_true_at_every_batch(lake, history)
    assert_history_complete(lake, history)


def test_object_is_folded_only_when_much_or_long_pending(filled: tuple[Lake, History]) -> None:
    lake, _ = filled
    clock = ManualClock()
    assert Maintainer(lake, 1, clock, FoldRules(least_rows=1_000, longest_s=60)).step() is None
    much = Maintainer(lake, 1, clock, FoldRules(least_rows=20, longest_s=60)).step()
    assert much is not None
    assert much.entity == "Account"
    patient = Maintainer(lake, 1, clock, FoldRules(least_rows=1_000, longest_s=60))
    assert patient.step() is None
    clock.advance(60)
    late = patient.step()
    assert late is not None
    assert late.entity == "Contact"
    assert patient.step() is None


def test_small_change_of_a_large_object_writes_only_its_bucket(filled: tuple[Lake, History]) -> None:
    lake, history = filled
    maintain_all(lake)
    before = set(files_of(lake, "replica/Account"))
    live = sorted(i for (entity, i) in history.truth.live if entity == "Account")
    history.update("Account", [live[0]], {"Phone": "+1"})
    history.commit()
    write_bronze(lake, [e for e in history.events if e.replay_id > bronze_floor(lake)], history.position)
    apply_all(lake)
    maintain_all(lake)
    assert len(before - set(files_of(lake, "replica/Account"))) == 1
    assert read_replicas(lake) == history.truth


def bronze_floor(lake: Lake) -> int:
    table = try_open_table(lake, "bronze")
    return table.floor if table is not None else -1


def test_update_of_a_record_nobody_knows_is_marked_to_be_read(lake: Lake) -> None:
    history = History()
    history.create("Account", {"Name": "known"})
    history.commit()
    unseen = history.create("Account", {"Name": "unknown"})
    history.commit()
    created = history.events[-1]
    history.update("Account", [unseen], {"Phone": "1"})
    history.commit()
    write_bronze(lake, [event for event in history.events if event is not created], history.position)
    apply_all(lake)
    maintain_all(lake)
    assert list(open_dirty(lake)["Account"]) == [unseen]
    assert read_replica(lake, "Account")["Name"].to_pylist() == ["known"]


def test_driver_of_an_older_epoch_folds_nothing(filled: tuple[Lake, History]) -> None:
    lake, history = filled
    maintain_all(lake, epoch=5)
    account = next(i for (entity, i) in history.truth.live if entity == "Account")
    history.update("Account", [account], {"Phone": "+2"})
    history.commit()
    write_bronze(lake, [e for e in history.events if e.replay_id > bronze_floor(lake)], history.position)
    apply_all(lake, epoch=5)
    files = files_of(lake, "replica/Account")
    with pytest.raises(WriteConflict, match="no longer holds the lease"):
        Maintainer(lake, 4, ManualClock(), BUCKET_ROWS).fold("Account")
    assert files_of(lake, "replica/Account") == files


def test_merging_does_not_refuse_an_append_that_was_begun_before(filled: tuple[Lake, History]) -> None:
    lake, history = filled
    write_bronze(lake, [], history.position + 1)
    write_bronze(lake, [], history.position + 2)
    opened = open_table(lake, "bronze")
    compactor = Compactor(lake, 1, ManualClock())
    compactor.join("bronze", at_least=1)
    append_files(opened, [], history.position + 3, 1)
    assert bronze_floor(lake) == history.position + 3
    assert_bronze_exact(lake, history)


def test_old_snapshot_points_events_and_files_are_dropped_and_the_newest_kept(
    filled: tuple[Lake, History],
) -> None:
    lake, history = filled
    maintain_all(lake)
    first = manifest_positions(lake)[0]
    assert read_replica(lake, "Account", as_of=first).num_rows
    clock = ManualClock()
    clock.advance(10 * DAY_S)
    rules = CompactionRules(small_files=2, readable_s=3_600, keep_bronze_days=5, keep_history_days=5)
    compactor = Compactor(lake, 1, clock, rules)
    dropped = {report.table for report in compactor.drop_old()}
    assert {"manifest", "bronze", "history/Account"} <= dropped
    compactor.delete_unnamed()
    assert read_replicas(lake) == history.truth
    assert files_of(lake, "history/Account") == []
    with pytest.raises(ReplayIdExpired, match="no longer keeps snapshot points"):
        read_replica(lake, "Account", as_of=first)


def test_history_that_no_base_holds_is_never_dropped(filled: tuple[Lake, History]) -> None:
    lake, history = filled
    clock = ManualClock()
    clock.advance(10 * DAY_S)
    Compactor(lake, 1, clock, CompactionRules(readable_s=1, keep_history_days=1)).drop_old()
    assert read_replicas(lake) == history.truth
    assert_history_complete(lake, history)


def test_history_stays_for_snapshot_points_before_the_first_base_of_an_object(
    lake: Lake,
) -> None:
    history = History()
    history.create("Contact", {"Name.LastName": "Lee"})
    history.commit()
    account = history.create("Account", {"Name": "a"})
    history.commit()
    middle = history.position
    history.update("Account", [account], {"Name": "b"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake, max_rows=1)
    maintain_all(lake)
    before = read_replicas(lake, middle)
    clock = ManualClock()
    clock.advance(10 * DAY_S)
    rules = CompactionRules(readable_s=30 * DAY_S, keep_history_days=1)
    Compactor(lake, 1, clock, rules).drop_old()
    assert before.live["Account", account] == {"Name": "a"}
    assert read_replicas(lake, middle) == before


def test_statistics_of_a_joined_file_let_readers_skip_it(filled: tuple[Lake, History]) -> None:
    lake, history = filled
    maintain_all(lake)
    actions = pa.table(DeltaTable(lake.table("history/Account")).get_add_actions(flatten=True)).to_pylist()
    positions = [e.replay_id for e in history.events]
    assert actions[0]["min.replay_id"] == positions[0]
    assert actions[0]["max.replay_id"] <= positions[-1]


def test_delta_keeps_base_versions_that_readable_snapshot_points_name(
    filled: tuple[Lake, History],
) -> None:
    lake, history = filled
    maintain_all(lake)
    kept = "delta.logRetentionDuration"
    Compactor(lake, 1, ManualClock(), CompactionRules()).delete_unnamed()
    assert kept not in DeltaTable(lake.table("replica/Account")).metadata().configuration
    patient = Compactor(lake, 1, ManualClock(), CompactionRules(readable_s=60 * DAY_S))
    patient.delete_unnamed()
    table = DeltaTable(lake.table("replica/Account"))
    assert table.metadata().configuration[kept] == "interval 61 days"
    patient.delete_unnamed()
    version = DeltaTable(lake.table("replica/Account")).version()
    assert version == table.version()
    account = next(i for (entity, i) in history.truth.live if entity == "Account")
    history.update("Account", [account], {"Phone": "+3"})
    history.commit()
    write_bronze(lake, [e for e in history.events if e.replay_id > bronze_floor(lake)], history.position)
    apply_all(lake)
    assert maintain_all(lake) == 1
    patient.delete_unnamed()
    after = DeltaTable(lake.table("replica/Account"))
    assert after.metadata().configuration[kept] == "interval 61 days"
    assert after.version() > version
    assert_replicas_true_at_every_batch(lake, history)
