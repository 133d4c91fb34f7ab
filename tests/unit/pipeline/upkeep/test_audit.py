"""Audits: differences are found and corrected, and nothing is compared at different positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipeline.fold_base import make_base
from tests.unit.pipeline.oracle import Org
from tests.unit.pipeline.upkeep.test_resync import Mirror
from tidewire.errors import StoreClosed
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import try_open_table
from tidewire.pipeline.upkeep.audit import AuditReport, audit

EPOCH = 1


def follow(place: Path, seed: int, accounts: int) -> Mirror:
    mirror = Mirror(Org(seed), place)
    while len(mirror.org.live["Account"]) < accounts:
        mirror.org.transact()
    mirror.settle()
    return mirror


def run_audit(mirror: Mirror, *, heal: bool = True) -> AuditReport:
    return audit(mirror.lake, EPOCH, mirror.reader, "Account", mirror.clock, heal=heal, wait_s=0)


def change_unseen(mirror: Mirror, record_id: str, **values: object) -> None:
    """Change a record as the org has it, without an event."""
    for rows in (mirror.org.live, mirror.org.past[-1][1]):
        rows["Account"][record_id] = {**rows["Account"][record_id], **values}


def test_replica_that_is_right_has_no_drift_and_equal_tallies(tmp_path: Path) -> None:
    mirror = follow(tmp_path, 21, 6)
    make_base(mirror.lake, "Account", EPOCH)
    report = run_audit(mirror)
    assert (report.drifted, report.healed, dict(report.buckets)) == (0, 0, {})
    assert report.server_rows == report.lake_rows == len(mirror.org.live["Account"])
    assert report.position == mirror.org.history.position


@pytest.mark.parametrize("has_base", [True, False])
def test_records_that_differ_are_reported_and_only_they_are_corrected(tmp_path: Path, has_base: bool) -> None:
    mirror = follow(tmp_path, 22, 8)
    if has_base:
        make_base(mirror.lake, "Account", EPOCH)
    ids = sorted(mirror.org.live["Account"])
    change_unseen(mirror, ids[0], Name="another name")
    change_unseen(mirror, ids[3], AnnualRevenue=77.0)
    new_id = mirror.org.history.new_id("Account")
    for rows in (mirror.org.live, mirror.org.past[-1][1]):
        rows["Account"][new_id] = {"Name": "never told"}
        del rows["Account"][ids[5]]
    before = count_reads(mirror)
    seen = run_audit(mirror, heal=False)
    assert (seen.missing, seen.extra, set(seen.different)) == ((new_id,), (ids[5],), {ids[0], ids[3]})
    assert seen.healed == 0
    assert seen.buckets
    assert count_reads(mirror) == before
    healed = run_audit(mirror)
    assert healed.healed == healed.drifted == 4
    assert count_reads(mirror) == before + 4
    assert mirror.living() == mirror.truth()
    assert run_audit(mirror).drifted == 0


def count_reads(mirror: Mirror) -> int:
    table = try_open_table(mirror.lake, "reads/Account")
    return read_rows(table, ["record_id"]).num_rows if table is not None else 0


def test_object_that_the_lake_knows_nothing_of_is_missing_altogether(tmp_path: Path) -> None:
    mirror = Mirror(Org(23), tmp_path)
    mirror.org.create("Account")
    mirror.org.history.commit()
    mirror.org.past.append((mirror.org.history.position, {e: dict(r) for e, r in mirror.org.live.items()}))
    later = mirror.org.history.position
    mirror.org.history.events.clear()
    mirror.archive()
    mirror.apply()
    assert mirror.archived == later
    report = run_audit(mirror)
    assert set(report.missing) == set(mirror.org.live["Account"])
    assert mirror.living() == mirror.truth()


def test_audit_does_not_compare_what_apply_has_not_reached(tmp_path: Path) -> None:
    mirror = follow(tmp_path, 24, 3)
    mirror.org.transact()
    with pytest.raises(StoreClosed, match="apply has only reached"):
        run_audit(mirror)
