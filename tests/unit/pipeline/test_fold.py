"""Decode and fold against the oracle, and the rules of folding one by one."""

from __future__ import annotations

from hypothesis import given, settings

from tests.pipeline.histories import SCHEMAS, History, Truth, histories
from tidewire.pipeline.columns import Kind
from tidewire.pipeline.decode import ChangeSchema, RecordChange, decode_event
from tidewire.pipeline.fold import ReplicaRow, convert_rows, fold_changes

CHANGE_SCHEMAS = {
    schema.schema_id: ChangeSchema(schema.json) for versions in SCHEMAS.values() for schema in versions
}


def changes_of(history: History) -> list[RecordChange]:
    return [
        change
        for event in history.events
        for change in decode_event(event.replay_id, CHANGE_SCHEMAS[event.schema_id], event.payload)
    ]


def fold_all(changes: list[RecordChange], rows: dict[str, ReplicaRow] | None = None) -> dict[str, ReplicaRow]:
    present = dict(rows or {})
    fresh, _ = fold_changes(present, changes)
    return present | fresh


def as_truth(rows: dict[str, ReplicaRow], history: History) -> Truth:
    entities = {change.record_id: change.entity for change in changes_of(history)}
    found = Truth()
    for record_id, row in rows.items():
        side = found.deleted if row.is_deleted else found.live
        side[entities[record_id], record_id] = dict(row.values)
    return found


@settings(max_examples=200, deadline=None)
@given(history=histories())
def test_fold_of_any_history_equals_the_oracle(history: History) -> None:
    assert as_truth(fold_all(changes_of(history)), history) == history.truth


@settings(max_examples=100, deadline=None)
@given(history=histories())
def test_fold_of_a_history_seen_twice_changes_nothing(history: History) -> None:
    once = fold_all(changes_of(history))
    assert fold_changes(once, changes_of(history)) == ({}, [])


def change(change_type: str, replay_id: int, **values: str | None) -> RecordChange:
    return RecordChange("Account", "001", replay_id, change_type, values=values)


def test_delete_of_an_unknown_record_leaves_a_deleted_row() -> None:
    fresh, dead = fold_changes({}, [change("DELETE", 5)])
    assert fresh == {"001": ReplicaRow("001", 5, 0, {}, is_deleted=True)}
    assert dead == []


def test_gap_delete_deletes() -> None:
    rows = fold_all([change("CREATE", 1, Name="a"), change("GAP_DELETE", 2)])
    assert rows["001"].is_deleted


def test_update_of_a_deleted_record_is_not_applied() -> None:
    fresh, dead = fold_changes(
        {}, [change("CREATE", 1, Name="a"), change("DELETE", 2), change("UPDATE", 3, Name="b")]
    )
    assert [letter.reason for letter in dead] == ["record_deleted"]
    assert fresh["001"] == ReplicaRow("001", 2, 0, {"Name": "a"}, is_deleted=True, is_stale=True)


def test_update_after_an_unapplied_change_keeps_the_stale_mark() -> None:
    gap = RecordChange("Account", "001", 2, "GAP_UPDATE", problem="gap", detail="")
    rows = fold_all([change("CREATE", 1, Name="a"), gap, change("UPDATE", 3, Name="b")])
    assert rows["001"] == ReplicaRow("001", 3, 0, {"Name": "b"}, is_stale=True)


def test_create_after_delete_with_an_older_replay_id_is_ignored() -> None:
    rows = fold_all([change("DELETE", 5)])
    assert fold_changes(rows, [change("CREATE", 4, Name="late")]) == ({}, [])


def test_value_without_equal_in_the_new_type_becomes_null_and_is_reported() -> None:
    row = ReplicaRow("001", 1, 0, {"Size": "12", "Weight": "heavy"})
    converted, lost = convert_rows([row], {"Size": Kind.DOUBLE, "Weight": Kind.DOUBLE})
    assert converted == [ReplicaRow("001", 1, 0, {"Size": 12.0, "Weight": None}, is_stale=True)]
    assert lost == [(row, "Weight")]
