"""Apply, without Spark: bronze in, history out, at every batch and after any crash."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.apply_lake import apply_all, apply_span
from tests.pipeline.histories import SCHEMAS, History, histories, read_replicas, schema_of, write_bronze
from tests.pipeline.verdict import (
    assert_history_complete,
    assert_replicas_true_at_every_batch,
    history_keys,
    manifest_positions,
)
from tests.unit.pipeline.fold_base import make_base
from tidewire.clock import ManualClock
from tidewire.errors import LogCorrupt, ReplayIdExpired, WriteConflict
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.apply.batch import Applier
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import open_dirty, open_resyncs
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import READS, Lake, append_rows, open_table, try_open_table
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.schema.fields import text
from tidewire.schema.layout import custom_object


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def dead_letters(lake: Lake) -> list[tuple[str, str]]:
    if try_open_table(lake, "dead_letter") is None:
        return []
    rows = DeltaTable(lake.table("dead_letter")).to_pyarrow_table().sort_by("replay_id")
    return list(zip(rows["record_id"].to_pylist(), rows["reason"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp())
    yield place
    shutil.rmtree(place)


@pytest.mark.timeout(180)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(), max_rows=st.integers(1, 12), pieces=st.integers(1, 4))
def test_replica_after_every_batch_equals_the_oracle(
    scratch: Path, history: History, max_rows: int, pieces: int
) -> None:
    lake = Lake(tempfile.mkdtemp(dir=scratch))
    size = len(history.events) // pieces + 1
    for begin in range(0, len(history.events), size):
        part = history.events[begin : begin + size]
        write_bronze(lake, part, part[-1].replay_id)
        apply_all(lake, max_rows)
    write_bronze(lake, [], history.position)
    apply_all(lake, max_rows)
    assert_replicas_true_at_every_batch(lake, history)
    assert_history_complete(lake, history)
    assert dead_letters(lake) == []


class Died(BaseException):
    """Stands for the death of the process: nothing in the code under test may handle it."""


@pytest.mark.timeout(180)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(), data=st.data())
def test_apply_dying_between_any_two_commits_leaves_no_trace_in_the_end(
    scratch: Path, history: History, data: st.DataObject
) -> None:
    lake = Lake(tempfile.mkdtemp(dir=scratch))
    write_bronze(lake, history.events, history.position)
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(data.draw(st.integers(1, 4))):
            passes_left = data.draw(st.integers(0, 6))

            def die(_name: str) -> None:
                nonlocal passes_left
                passes_left -= 1
                if passes_left < 0:
                    raise Died

            patch.setattr("tidewire.pipeline.apply.batch.crash_point", die)
            try:
                apply_all(lake, data.draw(st.integers(1, 30)))
            except Died:
                continue
        patch.undo()
    apply_all(lake, data.draw(st.integers(1, 30)))
    assert_replicas_true_at_every_batch(lake, history)
    assert_history_complete(lake, history)


def test_open_transaction_waits_until_its_last_event_is_known(lake: Lake) -> None:
    history = History()
    history.create("Account", {"Name": "first"})
    history.commit()
    first_end = history.position
    history.create("Account", {"Name": "second"})
    history.create("Contact", {"Name.LastName": "Lee"})
    history.commit(hidden=1)
    write_bronze(lake, history.events[:2], history.events[1].replay_id)
    assert apply_all(lake) == [first_end]
    write_bronze(lake, history.events, history.events[2].replay_id)
    assert apply_all(lake) == []
    write_bronze(lake, [], history.position)
    assert apply_all(lake) == [history.position]
    assert read_replicas(lake) == history.truth


def dirty(lake: Lake) -> dict[str, str]:
    return {i: d.reason for records in open_dirty(lake).values() for i, d in records.items()}


def asked_for(lake: Lake) -> dict[str, tuple[str, int]]:
    return {entity: (resync.cause, resync.since) for entity, resync in open_resyncs(lake).items()}


def rows_of(lake: Lake, entity: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_replica(lake, entity, with_deleted=True).to_pylist()
    return rows


def apply_history(lake: Lake, history: History, max_rows: int | None = None) -> None:
    write_bronze(lake, history.events, history.position)
    apply_all(lake, max_rows)


def test_update_of_a_record_never_seen_is_to_be_read_and_makes_no_row(lake: Lake) -> None:
    history = History()
    known = history.create("Account", {"Name": "a"})
    stranger = history.new_id("Account")
    history.commit()
    history.add("Account", "UPDATE", [known, stranger], {"Phone": "1"}, changed=["Phone"])
    history.commit()
    apply_history(lake, history, 1)
    assert dirty(lake) == {stranger: "unknown"}
    assert dead_letters(lake) == []
    assert len(history_keys(lake)) == 3
    assert [(row["Id"], row["Phone"]) for row in rows_of(lake, "Account")] == [(known, "1")]
    state = manifest.newest(lake)
    assert state is not None
    assert (state.entities["Account"].dirty, state.entities["Account"].state) == (1, "ready")


def test_update_after_delete_and_in_the_batch_of_its_creation_are_distinguished(lake: Lake) -> None:
    history = History()
    gone = history.create("Account", {"Name": "a"})
    history.commit()
    history.delete("Account", [gone])
    history.commit()
    fresh = history.create("Account", {"Name": "b"})
    history.commit()
    history.add("Account", "UPDATE", [gone, fresh], {"Phone": "1"}, changed=["Phone"])
    history.commit()
    apply_history(lake, history)
    assert dirty(lake) == {gone: "unknown"}


def test_records_known_from_reads_and_from_an_earlier_driver_are_known(lake: Lake) -> None:
    history = History()
    first = history.create("Account", {"Name": "a"})
    history.commit()
    apply_history(lake, history)
    read = history.new_id("Account")
    row = {"record_id": read, "replay_id": history.position, "change_type": "READ", "values_json": "{}"}
    table = open_table(lake, "reads/Account", READS)
    append_rows(table, pa.Table.from_pylist([row], schema=READS), None, 1, "reads")
    history.add("Account", "UPDATE", [first, read], {"Phone": "1"}, changed=["Phone"])
    history.commit()
    apply_history(lake, history)
    assert dirty(lake) == {}


def test_records_of_a_batch_that_was_half_committed_are_known_when_it_comes_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(point: str) -> None:
        if point == "pipeline.apply.before_manifest":
            raise WriteConflict("another writer has changed manifest")

    history, applier = History(), Applier(lake, 1, ManualClock())
    gone = history.create("Account", {"Name": "a"})
    history.commit()
    first = history.position
    record_id = history.create("Account", {"Name": "b"})
    history.delete("Account", [gone])
    history.commit()
    second = history.position
    history.add("Account", "UPDATE", [record_id, gone], {"Phone": "1"}, changed=["Phone"])
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_span(lake, Span(0, first), applier)
    with monkeypatch.context() as patch:
        patch.setattr("tidewire.pipeline.apply.batch.crash_point", refuse)
        with pytest.raises(WriteConflict):
            apply_span(lake, Span(first, second), applier)
    apply_span(lake, Span(first, second), applier)
    apply_span(lake, Span(second, history.position), applier)
    assert dirty(lake) == {gone: "unknown"}


@pytest.mark.parametrize(
    "change_type,diff,reason",
    [
        ("GAP_UPDATE", [], "gap"),
        ("UPDATE", ["Description"], "difference"),
        ("SNAPSHOT", [], "change_type_unknown"),
    ],
)
def test_change_that_cannot_be_applied_leaves_its_record_stale_and_to_be_read(
    lake: Lake, change_type: str, diff: list[str], reason: str
) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a", "Description": "old"})
    history.commit()
    history.add("Account", change_type, [record_id], {"Description": "--- \n+++"}, changed=diff, diff=diff)
    history.commit()
    apply_history(lake, history)
    assert dirty(lake) == {record_id: reason}
    assert [reason for _, reason in dead_letters(lake)] == [reason] * (reason == "change_type_unknown")
    assert [(row["_stale"], row["Description"]) for row in rows_of(lake, "Account")] == [(True, "old")]


def test_overflow_has_its_object_read_again_and_no_other(lake: Lake) -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.create("Contact", {"Name.LastName": "Lee"})
    history.commit()
    history.add("Account", "GAP_OVERFLOW", [EMPTY_ID], {})
    history.commit()
    apply_history(lake, history)
    assert asked_for(lake) == {"Account": ("overflow", history.position)}
    state = manifest.newest(lake)
    assert state is not None
    assert {entity: each.state for entity, each in state.entities.items()} == {
        "Account": "resync",
        "Contact": "ready",
    }
    assert [row["_stale"] for entity in ("Account", "Contact") for row in rows_of(lake, entity)] == [
        True,
        False,
    ]


def test_unknown_record_of_an_object_that_is_being_read_is_not_asked_for_by_itself(lake: Lake) -> None:
    history = History()
    history.add("Account", "GAP_OVERFLOW", [EMPTY_ID], {})
    history.commit()
    history.add("Account", "UPDATE", [history.new_id("Account")], {"Phone": "1"}, changed=["Phone"])
    history.commit()
    apply_history(lake, history, 1)
    assert dirty(lake) == {}


def test_payload_that_does_not_decode_is_a_dead_letter_and_its_record_to_be_read(lake: Lake) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a"})
    history.commit()
    history.update("Account", [record_id], {"Phone": "1"})
    history.commit()
    history.events[1].payload = history.events[1].payload[:-1]
    apply_history(lake, history)
    assert dead_letters(lake) == [(record_id, "payload_invalid")]
    assert dirty(lake) == {record_id: "payload_invalid"}
    assert [row["_stale"] for row in rows_of(lake, "Account")] == [True]


def test_batch_applied_again_by_another_driver_changes_nothing(lake: Lake) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a"})
    history.commit()
    history.update("Account", [record_id], {"Name": "b"})
    history.commit()
    apply_history(lake, history)
    assert apply_span(lake, Span(0, history.position), Applier(lake, 2, ManualClock())) is None
    assert len(history_keys(lake)) == 2
    assert len(manifest_positions(lake)) == 1


def test_driver_that_lost_its_lease_writes_nothing(lake: Lake) -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    apply_history(lake, history)
    old = Applier(lake, 1, ManualClock())
    middle = history.position
    history.create("Account", {"Name": "b"})
    history.commit()
    history.create("Account", {"Name": "c"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_span(lake, Span(middle, history.events[1].replay_id), Applier(lake, 2, ManualClock()))
    with pytest.raises(WriteConflict, match="no longer holds the lease"):
        apply_span(lake, Span(history.events[1].replay_id, history.position), old)
    assert len(history_keys(lake)) == 2


def test_batch_that_starts_beyond_the_manifest_is_rejected(lake: Lake) -> None:
    history = History()
    for _ in range(3):
        history.create("Account", {"Name": "a"})
        history.commit()
    write_bronze(lake, history.events, history.position)
    first, second, third = (event.replay_id for event in history.events)
    apply_span(lake, Span(0, first))
    with pytest.raises(LogCorrupt, match="delete the query's checkpoint"):
        apply_span(lake, Span(second, third))


def test_type_change_that_loses_values_keeps_them_and_causes_a_resync(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_text = custom_object(
        "Invoice__c", "Invoice", "Invoices", "a00", 1001, None, [text("Total__c", "Total", 80)]
    )
    monkeypatch.setitem(SCHEMAS, "Invoice__c", [schema_of(as_text), *SCHEMAS["Invoice__c"]])
    old_name = f"Total__c__old_{SCHEMAS['Invoice__c'][0].schema_id[:8]}"
    history = History()
    good = history.create("Invoice__c", {"Name": "good", "Total__c": "12.5"}, version=0)
    bad = history.create("Invoice__c", {"Name": "bad", "Total__c": "a lot"}, version=0)
    history.commit()
    apply_history(lake, history)
    assert asked_for(lake) == {}
    before = history.position
    new = history.create("Invoice__c", {"Name": "new", "Total__c": 3.0}, version=1)
    history.commit()
    apply_history(lake, history)
    found = {row["Id"]: (row["Total__c"], row[old_name]) for row in rows_of(lake, "Invoice__c")}
    assert found == {good: (12.5, "12.5"), bad: (None, "a lot"), new: (3.0, None)}
    assert asked_for(lake) == {"Invoice__c": ("schema", history.position)}
    then = read_replica(lake, "Invoice__c", as_of=before).to_pylist()
    assert {row["Id"]: row["Total__c"] for row in then} == {good: "12.5", bad: "a lot"}


def test_lead_conversion_is_never_seen_half_done(lake: Lake) -> None:
    """The guide's four changes of one transaction, told as four events, cut by the smallest batches."""
    history = History()
    lead = history.create("Invoice__c", {"Name": "lead"}, version=0)
    history.commit()
    history.create("Account", {"Name": "Acme"})
    history.create("Contact", {"Name.LastName": "Lee"})
    history.update("Invoice__c", [lead], {"Name": "converted"}, version=0)
    history.commit()
    write_bronze(lake, history.events, history.events[2].replay_id)
    apply_all(lake, 1)
    assert read_replicas(lake) == history.truths[0][1]
    write_bronze(lake, history.events, history.position)
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tidewire.pipeline.apply.batch.crash_point", lambda _: seen.append(len(read_replicas(lake).live))
        )
        apply_all(lake, 1)
    assert set(seen) == {1}
    assert read_replicas(lake) == history.truth
    assert [position for position, _ in history.truths] == manifest_positions(lake)[-2:]


def test_base_that_maintenance_took_away_is_reported_and_not_read_around(lake: Lake) -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    apply_history(lake, history)
    make_base(lake, "Account", 1)
    for path in DeltaTable(lake.table("replica/Account")).file_uris():
        Path(path).unlink()
    with pytest.raises(ReplayIdExpired, match="no longer keeps"):
        read_replica(lake, "Account")
