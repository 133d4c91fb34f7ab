"""Purging a record: no file of the lake contains it, and everything else is unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import History, read_replicas, write_bronze
from tests.pipeline.verdict import manifest_positions
from tests.unit.pipeline.fold_base import make_base
from tidewire.clock import ManualClock
from tidewire.errors import IdMalformed, ObjectUnknown
from tidewire.pipeline.lake.control import OPEN, Dirty
from tidewire.pipeline.lake.dirty import append_dirty, open_records
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.upkeep.maintain import FoldRules, Maintainer
from tidewire.pipeline.upkeep.purge import purge

EPOCH = 1


def files_with(lake: Lake, text: bytes) -> list[str]:
    """The data files that have some bytes in any column, however they are packed."""
    found = []
    for place, _, names in os.walk(lake.path):
        if "_delta_log" in place:
            continue
        for name in names:
            if name.endswith(".parquet"):
                rows = pq.ParquetFile(os.path.join(place, name)).read()
                if text in repr(rows.to_pylist()).encode():
                    found.append(os.path.join(place, name))
    return found


def test_purged_record_is_in_no_file_and_others_are_unchanged_at_every_position(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    history = History()
    gone, kept, other = (history.create("Account", {"Name": f"n{i}"}) for i in range(3))
    history.create("Contact", {"Name.LastName": "Lee"})
    history.commit()
    history.update("Account", [gone, kept], {"Phone": "shared"})
    history.update("Account", [gone], {"Phone": "secret"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake, 3)
    make_base(lake, "Account", EPOCH)
    middle = history.position
    history.update("Account", [gone], {"Phone": "secret 2"})
    history.update("Account", [other], {"Phone": "3"})
    history.commit()
    later = [event for event in history.events if event.replay_id > middle]
    write_bronze(lake, later, history.position)
    apply_all(lake)
    make_base(lake, "Account", EPOCH)
    append_dirty(lake, EPOCH, 0, [Dirty("Account", gone, history.position + 1, "gap")], OPEN)
    positions = manifest_positions(lake)
    before = {position: read_replicas(lake, position) for position in positions}
    report = purge(lake, EPOCH, "Account", gone[:15], ManualClock())
    assert report.record_id == gone
    assert set(report.rows) == {"bronze", "history/Account", "replica/Account", "control/dirty"}
    assert report.rows["history/Account"] == 4
    assert report.old_files > 0
    assert files_with(lake, gone.encode()) == files_with(lake, b"secret") == []
    assert open_records(lake) == {}
    for position, truth in before.items():
        truth.live.pop(("Account", gone), None)
        assert read_replicas(lake, position) == truth
    again = purge(lake, EPOCH, "Account", gone, ManualClock())
    assert (again.rows, again.old_files) == ({}, 0)


def test_events_left_after_a_purge_can_be_applied_to_a_new_lake(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    history = History()
    gone, kept = (history.create("Account", {"Name": f"n{i}"}) for i in range(2))
    history.update("Account", [gone, kept], {"Phone": "9"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    purge(lake, EPOCH, "Account", gone, ManualClock())
    apply_all(lake)
    live = read_replicas(lake).live
    assert set(live) == {("Account", kept)}
    assert live["Account", kept]["Phone"] == "9"


def test_event_with_unreadable_header_is_purged_with_the_record_in_its_bytes(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    history = History()
    gone, kept = (history.create("Account", {"Name": f"n{i}"}) for i in range(2))
    for record_id in (gone, kept):
        history.update("Account", [record_id], {"Phone": f"of {record_id}"})
    history.commit()
    for event in history.events[2:]:  # a length that is below zero, and then what was there
        event.payload = b"\x01" + event.payload
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert len(files_with(lake, f"of {gone}".encode())) == 1
    purge(lake, EPOCH, "Account", gone, ManualClock())
    assert files_with(lake, gone.encode()) == []
    assert files_with(lake, f"of {kept}".encode())


class Died(BaseException):
    """Stands for the death of the process."""


def test_purge_after_maintenance_died_on_new_buckets_leaves_the_base_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    history = History()
    ids = [history.create("Account", {"Name": f"n{i}"}) for i in range(12)]
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    Maintainer(lake, EPOCH, ManualClock(), FoldRules(rows_per_bucket=100)).fold("Account")

    def say(phone: str) -> None:
        after = history.position
        history.update("Account", ids, {"Phone": phone})
        history.commit()
        write_bronze(lake, [e for e in history.events if e.replay_id > after], history.position)
        apply_all(lake)

    def die(point: str) -> None:
        if point == "pipeline.maintain.after_base":
            raise Died

    say("1")
    with monkeypatch.context() as patch:
        patch.setattr("tidewire.pipeline.upkeep.maintain.crash_point", die)
        with pytest.raises(Died):
            Maintainer(lake, EPOCH, ManualClock(), FoldRules(rows_per_bucket=6)).fold("Account")
    purge(lake, EPOCH, "Account", ids[0], ManualClock())
    assert files_with(lake, ids[0].encode()) == []
    say("2")
    Maintainer(lake, EPOCH, ManualClock(), FoldRules(rows_per_bucket=100)).fold("Account")
    history.truth.live.pop(("Account", ids[0]))
    found = read_replicas(lake).live
    found.pop(("Account", ids[0]), None)  # the update after the purge names it again
    assert found == history.truth.live


def test_purge_of_what_is_no_record_is_rejected(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(IdMalformed):
        purge(lake, EPOCH, "Account", "' OR 1=1", ManualClock())
    with pytest.raises(ObjectUnknown):
        purge(lake, EPOCH, "../../etc", "001000000000001AAA", ManualClock())
