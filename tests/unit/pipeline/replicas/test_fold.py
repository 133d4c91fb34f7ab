"""The rules of folding, one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tidewire.ids import EMPTY_ID
from tidewire.pipeline.lake.columns import Kind, merge_kinds, old_column, replica_schema
from tidewire.pipeline.lake.tables import READS
from tidewire.pipeline.replicas.fold import Lost, fold_records

KINDS = {"Name": Kind.TEXT, "Phone": Kind.TEXT, "Size": Kind.DOUBLE}
END = 10**9


def change(change_type: str, replay_id: int, record_id: str = "001", **values: Any) -> dict[str, Any]:
    is_read = change_type in ("READ", "MISSING")
    return {
        "record_id": record_id,
        "replay_id": replay_id,
        "sequence": 1,
        "change_type": change_type,
        "commit_ms": replay_id * 1000,
        "changed": list(values),
        "values_json": json.dumps(values),
        "fence": replay_id if is_read else None,
        "settled": replay_id if is_read else None,
    }


def fold(
    *changes: dict[str, Any],
    base: pa.Table | None = None,
    through: int = END,
    kinds: dict[str, Kind] | None = None,
) -> tuple[dict[str, dict[str, Any]], list[Lost]]:
    table = pa.Table.from_pylist(list(changes), schema=READS)
    folded = fold_records(base, table, kinds or KINDS, through)
    return {row["Id"]: row for row in folded.rows.to_pylist()}, folded.lost


def row(
    record_id: str, replay_id: int, *, deleted: bool = False, stale: bool = False, **values: Any
) -> dict[str, Any]:
    return {
        "Id": record_id,
        "_replay_id": replay_id,
        "_commit_ms": replay_id * 1000,
        "_deleted": deleted,
        "_stale": stale,
        **dict.fromkeys(KINDS),
        **values,
    }


def base_of(*rows: dict[str, Any], kinds: dict[str, Kind] | None = None) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=replica_schema(kinds or KINDS))


def test_changes_in_any_order_are_folded_by_position() -> None:
    rows, lost = fold(
        change("UPDATE", 3, Phone=None),
        change("CREATE", 1, Name="a", Phone="1"),
        change("UPDATE", 2, Name="b"),
    )
    assert rows == {"001": row("001", 3, Name="b")}
    assert lost == []


def test_change_above_the_position_does_not_show() -> None:
    rows, _ = fold(change("CREATE", 1, Name="a"), change("UPDATE", 2, Name="b"), through=1)
    assert rows == {"001": row("001", 1, Name="a")}


def test_delete_keeps_the_last_values_and_undelete_gives_the_whole_row() -> None:
    created = change("CREATE", 1, Name="a", Phone="1")
    assert fold(created, change("DELETE", 2))[0] == {"001": row("001", 2, deleted=True, Name="a", Phone="1")}
    assert fold(created, change("DELETE", 2), change("UNDELETE", 3, Name="b"))[0] == {
        "001": row("001", 3, Name="b")
    }


@pytest.mark.parametrize("change_type", ["DELETE", "GAP_DELETE"])
def test_delete_of_an_unknown_record_leaves_a_deleted_row(change_type: str) -> None:
    assert fold(change(change_type, 5))[0] == {"001": row("001", 5, deleted=True)}


def test_read_that_found_nothing_deletes_what_is_there_and_makes_nothing() -> None:
    assert fold(change("CREATE", 1, Name="a"), change("MISSING", 2))[0] == {
        "001": row("001", 2, deleted=True, Name="a")
    }
    assert fold(change("MISSING", 2))[0] == {}


def gap(replay_id: int, record_id: str = "001", change_type: str = "GAP_UPDATE") -> dict[str, Any]:
    return change(change_type, replay_id, record_id) | {"problem": "gap"}


def test_gap_makes_the_row_stale_and_later_updates_still_count() -> None:
    rows, _ = fold(change("CREATE", 1, Name="a"), gap(2), change("UPDATE", 3, Phone="1"))
    assert rows == {"001": row("001", 3, stale=True, Name="a", Phone="1")}


def test_read_at_a_fence_takes_its_place_between_the_events() -> None:
    rows, _ = fold(
        change("CREATE", 1, Name="a"),
        gap(2),
        change("READ", 3, Name="true", Phone="7"),
        change("UPDATE", 4, Phone="8"),
    )
    assert rows == {"001": row("001", 4, Name="true", Phone="8")}


def test_read_comes_after_the_events_of_its_own_position() -> None:
    rows, _ = fold(
        change("READ", 2, Name="both"), change("CREATE", 1, Name="a"), change("UPDATE", 2, Name="b")
    )
    assert rows["001"]["Name"] == "both"


def test_read_shows_only_once_it_is_settled() -> None:
    read = change("READ", 2, Name="new") | {"settled": 5}
    created = change("CREATE", 1, Name="old")
    assert fold(created, read, through=4)[0]["001"]["Name"] == "old"
    assert fold(created, read, through=5)[0]["001"]["Name"] == "new"


def test_update_of_an_unknown_record_makes_no_row_and_is_reported() -> None:
    rows, lost = fold(change("UPDATE", 5, Name="b"))
    assert rows == {}
    assert [(each.record_id, each.replay_id, each.reason) for each in lost] == [("001", 5, "unknown")]
    assert fold(change("UPDATE", 5, Name="b"), change("READ", 6, Name="c")) == (
        {"001": row("001", 6, Name="c")},
        [],
    )


def test_update_of_a_deleted_record_is_reported_and_leaves_it_deleted() -> None:
    rows, lost = fold(change("CREATE", 1, Name="a"), change("DELETE", 2), change("UPDATE", 3, Name="b"))
    assert rows == {"001": row("001", 2, deleted=True, stale=True, Name="a")}
    assert [each.reason for each in lost] == ["unknown"]


def test_row_that_did_not_decode_gives_way_to_its_retry() -> None:
    dead = change("UPDATE", 2) | {"problem": "payload_invalid", "values_json": None, "sequence": 0}
    created = change("CREATE", 1, Name="a")
    assert fold(created, dead)[0] == {"001": row("001", 1, stale=True, Name="a")}
    assert fold(created, dead, change("UPDATE", 2, Name="b"))[0] == {"001": row("001", 2, Name="b")}


def test_rows_of_the_base_without_changes_pass_as_they_are() -> None:
    base = base_of(row("001", 1, Name="a"), row("002", 1, Name="b", Size=2.5), row("003", 1, deleted=True))
    rows, _ = fold(change("UPDATE", 2, Name="c"), base=base)
    assert rows == {
        "001": row("001", 2, Name="c"),
        "002": row("002", 1, Name="b", Size=2.5),
        "003": row("003", 1, deleted=True),
    }


def overflow(replay_id: int) -> dict[str, Any]:
    return change("GAP_OVERFLOW", replay_id, EMPTY_ID) | {"problem": "overflow"}


def wildcard(replay_id: int, *names: str) -> dict[str, Any]:
    return change("UPDATE", replay_id, "001*") | {"problem": "wildcard", "changed": list(names)}


def test_overflow_makes_every_older_row_stale_but_not_what_was_read_after() -> None:
    base = base_of(row("001", 1, Name="a"), row("002", 1, Name="b"), row("004", 1, deleted=True))
    rows, _ = fold(overflow(5), change("READ", 6, Name="c"), change("CREATE", 7, "003", Name="d"), base=base)
    assert {i: found["_stale"] for i, found in rows.items()} == {
        "001": False,
        "002": True,
        "003": False,
        "004": False,
    }


def test_wildcard_sets_its_columns_to_null_in_rows_older_than_it() -> None:
    base = base_of(row("001", 1, Name="a", Phone="1"), row("002", 1, Phone="2", Size=1.0))
    rows, lost = fold(
        wildcard(5, "Phone"),
        change("UPDATE", 4, Phone="3"),
        change("UPDATE", 6, "002", Phone="4"),
        change("CREATE", 3, "003", Phone="5"),
        base=base,
    )
    assert {i: found["Phone"] for i, found in rows.items()} == {"001": None, "002": "4", "003": None}
    assert not any(found["_stale"] for found in rows.values())
    assert lost == []


def test_changes_of_a_base_row_are_folded_the_same_in_one_go_and_in_two() -> None:
    changes = [
        change("CREATE", 1, Name="a"),
        overflow(2),
        change("UPDATE", 3, Phone="1"),
        wildcard(4, "Name"),
        change("UPDATE", 5, Name="c"),
    ]
    at_once, _ = fold(*changes)
    for cut in range(1, 5):
        first = fold_records(None, pa.Table.from_pylist(changes, schema=READS), KINDS, cut).rows
        rest = [each for each in changes if each["replay_id"] > cut]
        assert fold(*rest, base=first)[0] == at_once


TEXT_KINDS = {"Size": Kind.TEXT}
SCHEMAS = [("schema-1-rest", TEXT_KINDS), ("schema-2-rest", {"Size": Kind.DOUBLE})]
RETYPED = merge_kinds(SCHEMAS)


def test_type_that_loses_values_keeps_an_old_column() -> None:
    assert RETYPED == {"Size": Kind.DOUBLE, "Size__old_schema-1": Kind.TEXT}
    assert merge_kinds(reversed(SCHEMAS)) == {"Size": Kind.TEXT}
    assert old_column("Size", "schema-1-rest") == "Size__old_schema-1"


@pytest.mark.parametrize("is_base", [True, False])
def test_value_without_equal_in_the_new_type_stays_in_the_old_column_and_is_told(is_base: bool) -> None:
    own = {"Id": "001", "_replay_id": 1, "_commit_ms": 0, "_deleted": False, "_stale": False}
    base = base_of({**own, "Size": "big"}, {**own, "Id": "002", "Size": "12.5"}, kinds=TEXT_KINDS)
    changes = [change("CREATE", 1, Size="big"), change("CREATE", 1, "002", Size="12.5")]
    new = change("CREATE", 2, "003", Size=3.0)
    rows, lost = fold(*([] if is_base else changes), new, base=base if is_base else None, kinds=RETYPED)
    found = {i: (each["Size"], each["Size__old_schema-1"], each["_stale"]) for i, each in rows.items()}
    assert found == {"001": (None, "big", False), "002": (12.5, "12.5", False), "003": (3.0, None, False)}
    assert [(each.record_id, each.reason) for each in lost] == [("001", "value_lost")]


def test_time_that_no_calendar_has_is_lost_and_harms_no_other_row() -> None:
    kinds = {"At": Kind.TIMESTAMP, "On": Kind.DATE}
    rows, lost = fold(
        change("CREATE", 1, At=2**62, On=-(2**62)), change("CREATE", 2, "002", At=0), kinds=kinds
    )
    assert (rows["001"]["At"], rows["001"]["On"]) == (None, None)
    assert rows["002"]["At"] is not None
    assert [each.reason for each in lost] == ["value_lost", "value_lost"]


@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize("change_type", ["READ", "UNDELETE"])
def test_whole_row_by_a_later_schema_keeps_what_the_old_type_held(change_type: str, has_base: bool) -> None:
    created = change("CREATE", 1, Size="big") | {"schema_id": "schema-1-rest"}
    base = fold_records(None, pa.Table.from_pylist([created], schema=READS), TEXT_KINDS, 1).rows
    whole = change(change_type, 3, Size=3.0) | {"schema_id": "schema-2-rest"}
    rows, lost = fold(*([] if has_base else [created]), whole, base=base if has_base else None, kinds=RETYPED)
    assert (rows["001"]["Size"], rows["001"]["Size__old_schema-1"], lost) == (3.0, "big", [])
    early = change(change_type, 2) | {"schema_id": "schema-1-rest"}
    rows, _ = fold(*([] if has_base else [created]), early, base=base if has_base else None, kinds=RETYPED)
    assert (rows["001"]["Size"], rows["001"]["Size__old_schema-1"]) == (None, None)


@pytest.mark.parametrize(
    "old,new,value,expected",
    [
        (Kind.DOUBLE, Kind.TEXT, 2.0, "2"),
        (Kind.WHOLE, Kind.DOUBLE, 2, 2.0),
        (Kind.WHOLE, Kind.TEXT, 2, "2"),
    ],
)
def test_conversion_that_keeps_values_needs_no_old_column(
    old: Kind, new: Kind, value: Any, expected: Any
) -> None:
    kinds = merge_kinds([("one", {"Size": old}), ("two", {"Size": new})])
    assert kinds == {"Size": new}
    rows, lost = fold(change("CREATE", 1, Size=value), kinds=kinds)
    assert (rows["001"]["Size"], lost) == (expected, [])


@pytest.mark.parametrize(
    "old,new",
    [
        (Kind.DATE, Kind.TIMESTAMP),
        (Kind.TIMESTAMP, Kind.DATE),
        (Kind.TIMESTAMP, Kind.TEXT),
        (Kind.TEXT, Kind.DATE),
        (Kind.TRUTH, Kind.TEXT),
        (Kind.TRUTH, Kind.DOUBLE),
        (Kind.TEXT, Kind.DOUBLE),
        (Kind.TEXT, Kind.TRUTH),
    ],
)
def test_incompatible_conversion_keeps_the_values_in_an_old_column(old: Kind, new: Kind) -> None:
    kinds = merge_kinds([("schema-1-rest", {"At": old}), ("schema-2-rest", {"At": new})])
    assert kinds == {"At": new, "At__old_schema-1": old}
    value = {Kind.TEXT: "x", Kind.TRUTH: True}.get(old, 86_400_000)
    created = change("CREATE", 1, At=value) | {"schema_id": "schema-1-rest"}
    base = fold_records(None, pa.Table.from_pylist([created], schema=READS), {"At": old}, 1).rows
    rows, _ = fold(wildcard(2, "At"), base=base, kinds=kinds)
    assert rows["001"]["At"] is (False if new is Kind.TRUTH else None)
    assert rows["001"]["At__old_schema-1"] == base["At"][0].as_py()


def test_record_that_was_never_seen_and_is_not_there_lacks_nothing() -> None:
    assert fold(change("UPDATE", 5, Name="b"), change("MISSING", 6)) == ({}, [])


def test_difference_that_does_not_fit_keeps_the_text_and_makes_the_row_stale() -> None:
    bad = change("UPDATE", 2, Name={"diff": "--- \n+++ " + "0" * 64 + "\n@@ -1,1 +1,1 @@\n-a\n+b"}, Phone="1")
    rows, lost = fold(change("CREATE", 1, Name="a"), bad)
    assert rows == {"001": row("001", 2, stale=True, Name="a", Phone="1")}
    assert [each.reason for each in lost] == ["difference"]
