"""Snapshot points by replay id, time and row of the manifest, and errors for those that are missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import History, write_bronze
from tests.pipeline.maintain_lake import maintain_all
from tidewire.clock import ManualClock
from tidewire.errors import ConfigInvalid, LogCorrupt, ObjectUnknown, ReplayIdExpired, WriteConflict
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.manifest import AtNumber
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.replicas.record_history import read_history
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.upkeep.compaction import CompactionRules, Compactor


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def history(lake: Lake) -> History:
    """Conversions: each transaction changes a Contact and makes an Account and an Invoice of it."""
    made = History()
    contacts = [made.create("Contact", {"Name.LastName": f"lead {i}"}) for i in range(4)]
    made.commit()
    for i, contact in enumerate(contacts):
        made.create("Account", {"Name": f"converted {i}"})
        made.update("Contact", [contact], {"Name.LastName": f"converted {i}"})
        made.create("Invoice__c", {"Name": f"i{i}"})
        made.commit(hidden=i % 2)
    write_bronze(lake, made.events, made.position)
    apply_all(lake, max_rows=4)
    return made


def count(lake: Lake, entity: str, as_of: manifest.SnapshotPoint | None) -> int:
    try:
        rows: int = read_replica(lake, entity, as_of=as_of).num_rows
        return rows
    except ObjectUnknown:
        return 0


def converted(lake: Lake, as_of: manifest.SnapshotPoint | None) -> tuple[int, int, int]:
    names = read_replica(lake, "Contact", as_of=as_of)["Name_LastName"].to_pylist()
    changed = sum(str(name).startswith("converted") for name in names)
    return changed, count(lake, "Account", as_of), count(lake, "Invoice__c", as_of)


def test_row_that_another_driver_writes_meanwhile_keeps_its_number(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest.append(lake, 1, 0, cause="reads")
    read = manifest.newest

    def read_then_overtake(*args: Any) -> manifest.ManifestRow | None:
        row = read(*args)
        monkeypatch.setattr(manifest, "newest", read)
        manifest.append(lake, 1, 0, cause="resync")
        return row

    monkeypatch.setattr(manifest, "newest", read_then_overtake)
    with pytest.raises(WriteConflict):
        manifest.append(lake, 1, 0, cause="reads")
    row = manifest.newest(lake)
    assert row is not None
    assert (row.number, row.cause) == (2, "resync")


def test_conversion_is_never_seen_half_done_at_any_row_of_the_manifest(lake: Lake, history: History) -> None:
    maintain_all(lake)
    newest = manifest.newest(lake)
    assert newest is not None
    seen = [converted(lake, AtNumber(number)) for number in range(1, newest.number + 1)]
    assert all(contacts == accounts == invoices for contacts, accounts, invoices in seen)
    assert {contacts for contacts, _, _ in seen} > {0, 4}


def test_replay_id_time_and_number_name_the_same_snapshot_point(lake: Lake, history: History) -> None:
    row = manifest.newest(lake, history.position - 5)
    assert row is not None
    by_position = read_replica(lake, "Account", as_of=row.position)
    assert read_replica(lake, "Account", as_of=AtNumber(row.number)).equals(by_position)
    assert read_history(lake, "Account", as_of=AtNumber(row.number)).num_rows == by_position.num_rows
    newest = manifest.newest(lake)
    assert newest is not None
    then = datetime.fromtimestamp(newest.applied_ms / 1000, UTC)
    assert read_replica(lake, "Account", as_of=then).equals(read_replica(lake, "Account"))
    assert manifest.newest(lake, then.replace(tzinfo=None)) == newest
    assert manifest.newest(lake, then - timedelta(days=1)) is None


@pytest.mark.parametrize(
    "entity, as_of, error, words",
    [
        ("Nothing__c", None, ObjectUnknown, "nothing of Nothing__c at replay id .*; it has Account, Contact"),
        ("Account", 1, ObjectUnknown, "the lake .* begins later"),
        ("Account", AtNumber(0), ObjectUnknown, "the lake .* begins later"),
        ("Account", datetime(2001, 1, 1, tzinfo=UTC), ObjectUnknown, "the lake .* begins later"),
        ("Account", AtNumber(10_000), ConfigInvalid, "has no row 10000; the newest is"),
        ("Account", "yesterday", ConfigInvalid, "as_of must be a replay id or a datetime"),
        ("Account", True, ConfigInvalid, "as_of must be a replay id or a datetime"),
    ],
)
def test_missing_snapshot_point_is_reported(
    lake: Lake, history: History, entity: str, as_of: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        read_replica(lake, entity, as_of=as_of)


def test_replay_id_older_than_the_snapshot_of_a_lake_is_reported(lake: Lake) -> None:
    entities = {"Account": ["AAAA"]}
    manifest.append(lake, 1, 0, cause="resync", schemas=entities)
    manifest.append(lake, 1, 0, cause="snapshot", span=Span(manifest.NO_POSITION, 100))
    with pytest.raises(ObjectUnknown, match=r"the lake .* begins later"):
        read_replica(lake, "Account", as_of=99)


def test_lake_without_snapshot_point_is_reported(lake: Lake) -> None:
    with pytest.raises(ObjectUnknown, match="nothing has been applied"):
        read_replica(lake, "Account")


def test_snapshot_point_without_its_base_is_expired_and_a_broken_log_is_corrupt(
    lake: Lake, history: History
) -> None:
    maintain_all(lake)
    old = manifest.newest(lake)
    assert old is not None
    more = History(history.position + 1)
    more.create("Contact", {"Name.LastName": "later"})
    more.commit()
    write_bronze(lake, more.events, more.position)
    apply_all(lake)
    maintain_all(lake)
    log = Path(lake.table("replica/Contact"), "_delta_log")
    table = DeltaTable(lake.table("replica/Contact"))
    table.create_checkpoint()
    for version in range(1, table.version()):  # the first is left over, as where cleaning was interrupted
        (log / f"{version:020}.json").unlink()
    with pytest.raises(ReplayIdExpired, match="no longer keeps version"):
        read_replica(lake, "Contact", as_of=AtNumber(old.number))
    assert "later" in read_replica(lake, "Contact")["Name_LastName"].to_pylist()
    (log / f"{table.version():020}.checkpoint.parquet").write_bytes(b"PAR1")
    with pytest.raises(LogCorrupt):
        read_replica(lake, "Contact")


def test_snapshot_point_that_retention_has_taken_away_is_reported(lake: Lake, history: History) -> None:
    first = manifest.newest(lake, AtNumber(1))
    assert first is not None
    clock = ManualClock()
    clock.advance(30 * 86_400)
    more = History(history.position + 1)
    more.create("Account", {"Name": "later"})
    more.commit()
    write_bronze(lake, more.events, more.position)
    apply_all(lake)
    Compactor(lake, 1, clock, CompactionRules(readable_s=86_400)).drop_old()
    with pytest.raises(ReplayIdExpired, match="no longer keeps snapshot points that old"):
        read_replica(lake, "Contact", as_of=first.position)
    assert read_replica(lake, "Contact").num_rows == 4
