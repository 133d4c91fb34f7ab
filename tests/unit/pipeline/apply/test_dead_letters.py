"""Retries of dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import SCHEMAS, History, read_replicas, write_bronze
from tests.pipeline.verdict import history_keys
from tests.unit.pipeline.fold_base import make_base
from tidewire.clock import ManualClock
from tidewire.errors import PayloadInvalid
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.apply.dead_letters import RetryReport, open_letters, retry
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import Dirty, Resync, open_dirty, open_resyncs
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.replicas.record_history import read_history
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.replicas.replica_counts import count_replica
from tidewire.pipeline.replicas.view import open_view
from tidewire.pipeline.source.headers import Header, HeaderReader
from tidewire.pipeline.upkeep.compaction import CompactionRules, Compactor


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def history(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> History:
    """A lake whose second event came before its schema was archived."""
    history = History()
    record_id = history.create("Invoice__c", {"Name": "a", "Total__c": 1.0}, version=0)
    history.commit()
    history.update("Invoice__c", [record_id], {"Total__c": 2.0}, version=1)
    history.commit()
    history.update("Invoice__c", [record_id], {"Name": "b"}, version=0)
    history.commit()
    write_bronze(lake, history.events, history.position)
    with monkeypatch.context() as patch:
        late = SCHEMAS["Invoice__c"][1].schema_id
        found = "tidewire.pipeline.apply.history_files.load_schemas"
        patch.setattr(
            found, lambda *_: {s.schema_id: s.json for s in SCHEMAS["Invoice__c"] if s.schema_id != late}
        )
        apply_all(lake, 1)
    return history


def test_event_retried_with_its_schema_is_applied_in_its_place(lake: Lake, history: History) -> None:
    (letter,) = open_letters(lake)
    assert (letter.reason, letter.entity) == ("schema_unknown", "Invoice__c")
    assert read_replicas(lake) != history.truth
    assert read_replica(lake, "Invoice__c")["_stale"].to_pylist() == [True]
    assert retry(lake, 1, ManualClock()) == RetryReport(1, 0, 0)
    assert read_replicas(lake) == history.truth
    assert read_replica(lake, "Invoice__c")["_stale"].to_pylist() == [False]
    assert [row["problem"] for row in read_history(lake, "Invoice__c").to_pylist()] == [None] * 3
    assert open_letters(lake) == []
    row = manifest.newest(lake)
    assert row is not None
    assert (row.cause, row.position) == ("retry", history.position)


def test_retry_that_died_after_writing_writes_nothing_twice(
    lake: Lake, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(_name: str) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("tidewire.pipeline.apply.dead_letters.crash_point", die)
        with pytest.raises(Died):
            retry(lake, 1, ManualClock())
    assert retry(lake, 1, ManualClock()) == RetryReport(1, 0, 0)
    assert len(history_keys(lake)) == 4
    assert read_replicas(lake) == history.truth


def test_event_that_the_base_has_passed_makes_its_record_dirty(lake: Lake, history: History) -> None:
    make_base(lake, "Invoice__c", 1)
    asked = open_dirty(lake)
    assert retry(lake, 1, ManualClock()) == RetryReport(1, 1, 0)
    assert set(open_dirty(lake)["Invoice__c"]) == set(asked["Invoice__c"])


def test_event_that_still_does_not_decode_stays_a_dead_letter(lake: Lake) -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    history.events[0].payload = b"\xff"
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert retry(lake, 1, ManualClock()) == RetryReport(0, 0, 1)
    assert [letter.replay_id for letter in open_letters(lake)] == [history.position]
    assert retry(lake, 1, ManualClock(), replay_ids=[1]) == RetryReport(0, 0, 0)


def test_event_that_the_archive_has_dropped_stays_a_dead_letter(lake: Lake, history: History) -> None:
    clock = ManualClock(10 * 86_400_000)
    assert Compactor(lake, 1, clock, CompactionRules(keep_bronze_days=1)).drop_old()
    assert retry(lake, 1, clock) == RetryReport(0, 0, 1)
    assert len(open_letters(lake)) == 1


@pytest.mark.parametrize("change_type,record_id", [("GAP_OVERFLOW", EMPTY_ID), ("UPDATE", "001*")])
def test_event_about_every_record_that_does_not_decode_has_its_object_read_again(
    lake: Lake, change_type: str, record_id: str
) -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    history.add("Account", change_type, [record_id], {})
    history.commit()
    history.events[-1].payload = history.events[-1].payload[:-1]
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert open_dirty(lake) == {}
    assert {(r.entity, r.since) for r in open_resyncs(lake).values()} == {("Account", history.position)}
    assert read_replica(lake, "Account")["_stale"].to_pylist() == [True]
    (counted,) = (count_replica(open_view(lake, entity)) for entity in ("Account",))
    assert (counted.live, counted.stale) == (1, 1)


def test_event_whose_header_cannot_be_read_has_the_object_of_its_schema_read_again(lake: Lake) -> None:
    history = History()
    account = history.create("Account", {"Name": "a"})
    history.create("Contact", {"Name.LastName": "Lee"})
    history.commit()
    history.update("Account", [account], {"Phone": "1"})
    history.commit()
    history.events[-1].payload = b"\xff"
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert {(r.entity, r.since) for r in open_resyncs(lake).values()} == {("Account", history.position)}
    assert [read_replica(lake, e)["_stale"].to_pylist() for e in ("Account", "Contact")] == [[True], [False]]
    assert [letter.entity for letter in open_letters(lake)] == ["Account"]


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Neither the header nor the payload of any event can be read, until undone."""

    def refuse(_reader: HeaderReader, _payload: bytes) -> Header:
        raise PayloadInvalid("of a later version")

    with monkeypatch.context() as patch:
        patch.setattr(HeaderReader, "read", refuse)
        patch.setattr("tidewire.pipeline.apply.history_files.load_schemas", lambda *_: {})
        yield patch


def apply_unread(lake: Lake, change_type: str, ids: list[str]) -> int:
    """Apply an event of which nothing is known; returns its position."""
    history = History()
    history.add("Account", change_type, ids, {})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert [(letter.entity, letter.record_id) for letter in open_letters(lake)] == [("", "")]
    return history.position


def test_gap_event_retried_makes_its_record_dirty(lake: Lake, unread: pytest.MonkeyPatch) -> None:
    record_id = History().new_id("Account")
    position = apply_unread(lake, "GAP_UPDATE", [record_id])
    unread.undo()
    assert retry(lake, 1, ManualClock()) == RetryReport(1, 1, 0)
    assert open_dirty(lake) == {"Account": {record_id: Dirty("Account", record_id, position, "gap")}}
    row = manifest.newest(lake)
    assert row is not None
    assert row.entities["Account"].dirty == 1


def test_overflow_event_retried_has_its_object_read_again(lake: Lake, unread: pytest.MonkeyPatch) -> None:
    position = apply_unread(lake, "GAP_OVERFLOW", [EMPTY_ID])
    unread.undo()
    clock = ManualClock()
    assert retry(lake, 1, clock) == RetryReport(1, 1, 0)
    assert open_resyncs(lake) == {"Account": Resync("Account", "overflow", position, clock.now_ms())}
    assert open_dirty(lake) == {}
    row = manifest.newest(lake)
    assert row is not None
    assert row.entities["Account"].state == manifest.RESYNC


def test_retry_of_an_empty_lake_does_nothing(lake: Lake) -> None:
    assert retry(lake, 1, ManualClock()) == RetryReport(0, 0, 0)
