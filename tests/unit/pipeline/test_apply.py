"""Apply against an oracle, without Spark: bronze in, replicas out, at every batch and after any crash."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.applying import apply_all, decode_span
from tests.pipeline.histories import SCHEMAS, History, histories, read_replicas, schema_of, write_bronze
from tests.pipeline.verdict import (
    assert_history_complete,
    assert_replicas_true_at_every_batch,
    history_keys,
    manifest_rows,
)
from tidewire.clock import ManualClock
from tidewire.errors import LogCorrupt
from tidewire.pipeline.apply import Applier
from tidewire.pipeline.spans import Span
from tidewire.pipeline.tables import Lake, load_schemas, try_open_table
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

            patch.setattr("tidewire.pipeline.apply.crash_point", die)
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
    assert read_replicas(lake, manifest_rows(lake)[-1][1]) == history.truth


def test_update_of_a_record_never_seen_goes_to_the_dead_letters(lake: Lake) -> None:
    history = History()
    stranger = history.new_id("Account")
    history.add("Account", "UPDATE", [stranger], {"Phone": "1"}, changed=["Phone"])
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert dead_letters(lake) == [(stranger, "record_unknown")]
    assert len(history_keys(lake)) == 1


@pytest.mark.parametrize(
    "change_type,diff,reason",
    [
        ("GAP_UPDATE", [], "gap"),
        ("GAP_OVERFLOW", [], "overflow"),
        ("UPDATE", ["Description"], "text_difference"),
        ("SNAPSHOT", [], "change_type_unknown"),
    ],
)
def test_change_that_cannot_be_applied_is_kept_and_its_row_marked_stale(
    lake: Lake, change_type: str, diff: list[str], reason: str
) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a", "Description": "old"})
    history.commit()
    history.add("Account", change_type, [record_id], {"Description": "--- \n+++"}, changed=diff, diff=diff)
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert dead_letters(lake) == [(record_id, reason)]
    rows = DeltaTable(lake.table("replica/Account")).to_pyarrow_table().to_pylist()
    assert [(row["_stale"], row["Description"]) for row in rows] == [(True, "old")]


def test_full_row_after_a_gap_clears_the_stale_mark(lake: Lake) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a"})
    history.add("Account", "GAP_UPDATE", [record_id], {})
    history.commit()
    history.delete("Account", [record_id])
    history.commit()
    history.undelete("Account", record_id, {"Name": "b"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    rows = DeltaTable(lake.table("replica/Account")).to_pyarrow_table().to_pylist()
    assert [(row["_stale"], row["_deleted"], row["Name"]) for row in rows] == [(False, False, "b")]


def test_payload_that_does_not_decode_goes_to_the_dead_letters(lake: Lake) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a"})
    history.commit()
    history.update("Account", [record_id], {"Phone": "1"})
    history.commit()
    history.events[1].payload = history.events[1].payload[:-1]
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    assert dead_letters(lake) == [(record_id, "payload_invalid")]
    rows = DeltaTable(lake.table("replica/Account")).to_pyarrow_table().to_pylist()
    assert [row["_stale"] for row in rows] == [True]


def test_batch_applied_again_by_another_driver_changes_nothing(lake: Lake) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a"})
    history.commit()
    history.update("Account", [record_id], {"Name": "b"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    again = Applier(lake, 2, ManualClock())
    assert again.apply(decode_span(lake, Span(0, history.position)), load_schemas(lake)) is None
    assert len(history_keys(lake)) == 2
    assert len(manifest_rows(lake)) == 1


def test_batch_that_starts_beyond_the_manifest_is_refused(lake: Lake) -> None:
    history = History()
    for _ in range(3):
        history.create("Account", {"Name": "a"})
        history.commit()
    write_bronze(lake, history.events, history.position)
    applier = Applier(lake, 1, ManualClock())
    first, second, third = (event.replay_id for event in history.events)
    applier.apply(decode_span(lake, Span(0, first)), load_schemas(lake))
    with pytest.raises(LogCorrupt, match="delete the query's checkpoint"):
        applier.apply(decode_span(lake, Span(second, third)), load_schemas(lake))


def test_column_whose_type_changes_keeps_the_values_that_fit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_text = custom_object(
        "Invoice__c", "Invoice", "Invoices", "a00", 1001, None, [text("Total__c", "Total", 80)]
    )
    monkeypatch.setitem(SCHEMAS, "Invoice__c", [schema_of(as_text), *SCHEMAS["Invoice__c"]])
    history = History()
    good = history.create("Invoice__c", {"Name": "good", "Total__c": "12.5"}, version=0)
    bad = history.create("Invoice__c", {"Name": "bad", "Total__c": "a lot"}, version=0)
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    new = history.create("Invoice__c", {"Name": "new", "Total__c": 3.0}, version=1)
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    rows = {
        row["Id"]: row for row in DeltaTable(lake.table("replica/Invoice__c")).to_pyarrow_table().to_pylist()
    }
    found = {record_id: (row["Total__c"], row["_stale"]) for record_id, row in rows.items()}
    assert found == {good: (12.5, False), bad: (None, True), new: (3.0, False)}
    assert dead_letters(lake) == [(bad, "value_lost")]
