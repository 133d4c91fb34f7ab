"""What a change of an object's fields does to its replica: the guide's classes of type conversions, and fields that
come, go and are renamed. Each change comes as nothing but a new schema id, or with the event that the guide names.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from datetime import datetime as SnapshotPoint
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import PREFIXES, SCHEMAS, History, schema_of, write_bronze
from tests.unit.pipeline.fold_base import make_base
from tidewire.clock import ManualClock
from tidewire.pipeline.apply.dead_letters import retry
from tidewire.pipeline.lake.columns import old_column
from tidewire.pipeline.lake.control import open_dirty, open_resyncs
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.replicas.record_history import read_history
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.schema.fields import checkbox, date, datetime, double, picklist, text, text_area
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field

CRATE = "Crate__c"
DAY_MS = 86_400_000
NUMBER = double("Mark__c", "Mark", 18, 2)
TEXT = text("Mark__c", "Mark", 80)
LABEL = text("Label__c", "Label", 80)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.fixture(autouse=True)
def crates() -> Iterator[None]:
    """An object of this test alone."""
    PREFIXES[CRATE] = "a0X"
    yield
    del PREFIXES[CRATE], SCHEMAS[CRATE]


def versions(*layouts: list[Field]) -> None:
    """The object's fields, one version after the other."""
    SCHEMAS[CRATE] = [
        schema_of(custom_object(CRATE, "Crate", "Crates", "a0X", 1009, None, fields)) for fields in layouts
    ]


def apply(lake: Lake, history: History, after: int = 0) -> None:
    write_bronze(lake, [event for event in history.events if event.replay_id > after], history.position)
    apply_all(lake)


def rows_of(lake: Lake, *names: str) -> dict[str, tuple[Any, ...]]:
    return {row["Id"]: tuple(row[n] for n in names) for row in read_replica(lake, CRATE).to_pylist()}


def asked_for(lake: Lake) -> dict[str, str]:
    return {entity: each.cause for entity, each in open_resyncs(lake).items()}


def two_steps(lake: Lake, old: Any, new: Any, *, has_base: bool, is_told: bool = False) -> tuple[str, str]:
    """A record by the first schema, perhaps a base, and one by the second, perhaps after the event about all."""
    history = History()
    first = history.create(CRATE, {"Name": "1", **old}, version=0)
    history.commit()
    apply(lake, history)
    if has_base:
        make_base(lake, CRATE, 1)
    position = history.position
    if is_told:
        history.add(CRATE, "UPDATE", ["a0X*"], {}, changed=["Mark__c"], version=1)
        history.commit()
    second = history.create(CRATE, {"Name": "2", **new}, version=1)
    history.commit()
    apply(lake, history, position)
    return first, second


@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize(
    "layouts, old, kept",
    [
        ((NUMBER, TEXT), 12.5, "12.5"),
        ((NUMBER, TEXT), 12.0, "12"),
        ((NUMBER, TEXT), 0.00000025, "0.00000025"),
        ((text_area("Mark__c", "Mark"), TEXT), "a\nb", "a\nb"),
        ((picklist("Mark__c", "Mark", "red;blue"), TEXT), "red", "red"),
        ((TEXT, picklist("Mark__c", "Mark", "red;blue")), "red", "red"),
    ],
)
def test_compatible_conversion_comes_without_an_event_and_keeps_every_value(
    lake: Lake, layouts: tuple[Field, Field], old: Any, kept: Any, has_base: bool
) -> None:
    versions(*([each] for each in layouts))
    first, second = two_steps(lake, {"Mark__c": old}, {"Mark__c": "new"}, has_base=has_base)
    assert rows_of(lake, "Mark__c", "_stale") == {first: (kept, False), second: ("new", False)}
    assert not [name for name in read_replica(lake, CRATE).schema.names if "__old_" in name]
    assert (asked_for(lake), open_dirty(lake)) == ({}, {})


@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize(
    "layouts, old, new",
    [
        ((date("Mark__c", "Mark"), TEXT), DAY_MS, "x"),
        ((TEXT, date("Mark__c", "Mark")), "1970-01-02", DAY_MS),
        ((datetime("Mark__c", "Mark"), NUMBER), DAY_MS, 1.0),
        ((checkbox("Mark__c", "Mark"), TEXT), True, "x"),
        ((checkbox("Mark__c", "Mark"), NUMBER), True, 1.0),
    ],
)
def test_incompatible_conversion_by_one_event_empties_the_column_and_keeps_the_old(
    lake: Lake, layouts: tuple[Field, Field], old: Any, new: Any, has_base: bool
) -> None:
    versions(*([each] for each in layouts))
    first, second = two_steps(lake, {"Mark__c": old}, {"Mark__c": new}, has_base=has_base, is_told=True)
    found = rows_of(lake, "Mark__c", old_column("Mark__c", SCHEMAS[CRATE][0].schema_id), "_stale")
    assert found[first][0] is None
    assert found[first][1] is not None
    assert found[second][0] is not None
    assert (found[second][1], found[first][2], found[second][2]) == (None, False, False)
    assert (asked_for(lake), open_dirty(lake)) == ({}, {})


@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize("layout, old", [(TEXT, "yes"), (TEXT, None), (NUMBER, 1.0)])
def test_field_that_becomes_a_checkbox_by_losing_its_values_is_not_checked(
    lake: Lake, layout: Field, old: Any, has_base: bool
) -> None:
    versions([layout], [checkbox("Mark__c", "Mark")])
    first, second = two_steps(lake, {"Mark__c": old}, {"Mark__c": True}, has_base=has_base, is_told=True)
    found = rows_of(lake, "Mark__c", old_column("Mark__c", SCHEMAS[CRATE][0].schema_id))
    assert found == {first: (False, old), second: (True, None)}
    make_base(lake, CRATE, 1)
    assert rows_of(lake, "Mark__c", old_column("Mark__c", SCHEMAS[CRATE][0].schema_id)) == found


def test_incompatible_conversion_that_no_event_reports_causes_a_resync(lake: Lake) -> None:
    versions([checkbox("Mark__c", "Mark")], [TEXT])
    two_steps(lake, {"Mark__c": True}, {"Mark__c": "x"}, has_base=False)
    assert asked_for(lake) == {CRATE: "schema"}


def test_schemas_that_lose_values_in_the_first_batch_cause_a_resync(lake: Lake) -> None:
    versions([TEXT], [NUMBER])
    history = History()
    history.create(CRATE, {"Mark__c": "many"}, version=0)
    history.create(CRATE, {"Mark__c": 2.0}, version=1)
    history.commit()
    apply(lake, history)
    assert asked_for(lake) == {CRATE: "schema"}


def wildcard_without_fields(lake: Lake, before: list[Field], after: list[Field], **values: Any) -> str:
    versions(before, after)
    history = History()
    record_id = history.create(CRATE, values, version=0)
    history.commit()
    history.add(CRATE, "UPDATE", ["a0X*"], {}, version=1)
    history.commit()
    apply(lake, history)
    return record_id


def test_event_about_all_that_names_no_field_is_identified_by_the_two_schemas(lake: Lake) -> None:
    before = [checkbox("Mark__c", "Mark"), double("Label__c", "Label", 18, 2)]
    record_id = wildcard_without_fields(lake, before, [TEXT, LABEL], Mark__c=True, Label__c=4.0)
    assert rows_of(lake, "Mark__c", "Label__c", "_stale") == {record_id: (None, "4", False)}
    assert asked_for(lake) == {}


@pytest.mark.parametrize(
    "after", [[NUMBER, date("Label__c", "Label")], [TEXT, LABEL], [TEXT, text_area("Label__c", "Label")]]
)
def test_event_about_all_whose_field_is_unknown_causes_a_resync(lake: Lake, after: list[Field]) -> None:
    record_id = wildcard_without_fields(lake, [TEXT, LABEL], after, Mark__c="m", Label__c="l")
    assert rows_of(lake, "_stale") == {record_id: (True,)}
    assert asked_for(lake) == {CRATE: "schema"}


@pytest.mark.parametrize("has_base", [True, False])
def test_time_of_the_first_of_two_schemas_stays_in_the_old_column_after_retyping(
    lake: Lake, has_base: bool
) -> None:
    moment = datetime("Mark__c", "Mark")
    versions([moment], [moment, LABEL], [NUMBER, LABEL])
    history = History()
    if has_base:
        history.create(CRATE, {"Mark__c": 3 * DAY_MS}, version=0)
        history.commit()
        apply(lake, history)
        make_base(lake, CRATE, 1)
    after = history.position if has_base else 0
    first, empty_value = (history.create(CRATE, {"Mark__c": DAY_MS}, version=0) for _ in range(2))
    history.update(CRATE, [empty_value], {"Mark__c": None}, version=0)
    second = history.create(CRATE, {"Mark__c": 2 * DAY_MS}, version=1)
    third = history.create(CRATE, {"Mark__c": 1.0}, version=2)
    history.commit()
    apply(lake, history, after)
    old = old_column("Mark__c", SCHEMAS[CRATE][1].schema_id)
    expected = {
        first: (None, SnapshotPoint(1970, 1, 2, tzinfo=UTC)),
        empty_value: (None, None),
        second: (None, SnapshotPoint(1970, 1, 3, tzinfo=UTC)),
        third: (1.0, None),
    }
    found = rows_of(lake, "Mark__c", old)
    assert {record_id: found[record_id] for record_id in expected} == expected
    told = read_history(lake, CRATE, ids=[first])["after_json"].to_pylist()
    assert [orjson.loads(each).get("Mark__c") for each in told] == [None]
    make_base(lake, CRATE, 1)
    assert rows_of(lake, "Mark__c", old) == found


def test_picklist_that_becomes_a_checkbox_is_a_gap_of_every_record(lake: Lake) -> None:
    versions([picklist("Mark__c", "Mark", "yes;no")], [checkbox("Mark__c", "Mark")])
    history = History()
    ids = [history.create(CRATE, {"Mark__c": mark}, version=0) for mark in ("yes", "no", None)]
    history.commit()
    history.add(CRATE, "GAP_UPDATE", ids, {}, version=1, key="database-transaction".ljust(36, "-"))
    history.commit()
    apply(lake, history)
    assert set(open_dirty(lake)[CRATE]) == set(ids)
    assert set(rows_of(lake, "_stale").values()) == {(True,)}


def test_new_field_is_null_in_older_rows_and_a_removed_one_keeps_its_column(lake: Lake) -> None:
    versions([TEXT], [TEXT, LABEL], [LABEL])
    history = History()
    ids = [history.create(CRATE, {"Mark__c": "m"}, version=0)]
    ids.append(history.create(CRATE, {"Mark__c": "m", "Label__c": "l"}, version=1))
    history.commit()
    ids.append(history.create(CRATE, {"Label__c": "l"}, version=2))
    history.commit()
    apply(lake, history)
    make_base(lake, CRATE, 1)
    assert rows_of(lake, "Mark__c", "Label__c") == dict(
        zip(ids, [("m", None), ("m", "l"), (None, "l")], strict=True)
    )
    assert asked_for(lake) == {}


def test_three_schemas_in_turn_in_one_batch_are_each_understood(lake: Lake) -> None:
    versions([TEXT], [TEXT, LABEL], [TEXT, LABEL, date("Due__c", "Due")])
    history = History()
    ids = [history.create(CRATE, {"Mark__c": f"m{i}"}, version=i % 3) for i in range(6)]
    history.update(CRATE, ids[:2], {"Label__c": "l"}, version=2)
    history.update(CRATE, ids[2:4], {"Mark__c": None}, version=0)
    history.update(CRATE, ids[4:], {"Label__c": "k"}, version=1)
    history.commit()
    apply(lake, history)
    assert rows_of(lake, "Mark__c", "Label__c", "Due__c") == {
        **{ids[i]: (f"m{i}", "l", None) for i in (0, 1)},
        **{ids[i]: (None, None, None) for i in (2, 3)},
        **{ids[i]: (f"m{i}", "k", None) for i in (4, 5)},
    }
    assert asked_for(lake) == {}


def test_renamed_field_causes_a_resync_since_no_event_carries_its_values(lake: Lake) -> None:
    versions([TEXT], [LABEL])
    two_steps(lake, {"Mark__c": "m"}, {"Label__c": "l"}, has_base=True)
    assert asked_for(lake) == {CRATE: "schema"}


def test_new_checkbox_causes_a_resync_since_every_record_has_a_value(lake: Lake) -> None:
    versions([TEXT], [TEXT, checkbox("Done__c", "Done")])
    two_steps(lake, {"Mark__c": "m"}, {"Mark__c": "m", "Done__c": False}, has_base=False)
    assert asked_for(lake) == {CRATE: "schema"}


def test_conversion_first_told_by_an_event_retried_causes_a_resync(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions([TEXT], [NUMBER])
    history = History()
    history.create(CRATE, {"Mark__c": "many"}, version=0)
    history.commit()
    history.create(CRATE, {"Mark__c": 2.0}, version=1)
    history.commit()
    with monkeypatch.context() as patch:
        known = {SCHEMAS[CRATE][0].schema_id: SCHEMAS[CRATE][0].json}
        patch.setattr("tidewire.pipeline.apply.history_files.load_schemas", lambda *_: known)
        apply(lake, history)
    assert asked_for(lake) == {}
    assert retry(lake, 1, ManualClock()).applied == 1
    assert asked_for(lake) == {CRATE: "schema"}
