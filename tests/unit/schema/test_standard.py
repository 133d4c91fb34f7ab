from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidewire.schema.model import FieldType, ObjectType
from tidewire.schema.standard import OPPORTUNITY_STAGES, STANDARD_OBJECTS

PINNED = json.loads((Path(__file__).parent / "standard_columns.json").read_text())
BY_NAME = {obj.name: obj for obj in STANDARD_OBJECTS}

each_object = pytest.mark.parametrize("obj", STANDARD_OBJECTS, ids=lambda obj: obj.name)


@each_object
def test_stored_columns_of_a_release_keep_their_place(obj: ObjectType) -> None:
    # Databases hold these columns: a new field may join the list, but no line may change or leave.
    columns = {f.name: f.column for f in obj.stored_fields}
    pinned = PINNED[obj.name]
    assert obj.table == pinned["table"]
    assert {name: columns.get(name) for name in pinned["columns"]} == pinned["columns"]


@each_object
def test_columns_of_an_object_are_distinct(obj: ObjectType) -> None:
    columns = [f.column for f in obj.stored_fields]
    assert len(set(columns)) == len(columns)
    assert all(f.column for f in obj.fields if not f.is_compound)


@each_object
def test_field_names_are_distinct_in_any_letter_case(obj: ObjectType) -> None:
    assert len(obj.by_name) == len(obj.fields)


@each_object
def test_lookups_point_at_objects_that_exist(obj: ObjectType) -> None:
    lookups = [f for f in obj.fields if f.type is FieldType.REFERENCE]
    assert all(f.relationship_name and set(f.reference_to) <= set(BY_NAME) for f in lookups)


@each_object
def test_components_name_a_compound_of_their_object(obj: ObjectType) -> None:
    parts = [f for f in obj.fields if f.compound]
    assert all(obj.by_name[f.compound.lower()].is_compound and f.component for f in parts)
    assert all(obj.components(f.name) for f in obj.fields if f.is_compound)


@each_object
def test_system_fields_are_out_of_reach_of_callers(obj: ObjectType) -> None:
    system = {f.name for f in obj.fields if f.is_system}
    expected = {
        "Id",
        "IsDeleted",
        "CreatedDate",
        "CreatedById",
        "LastModifiedDate",
        "LastModifiedById",
        "SystemModstamp",
    }
    assert system == (expected - {"IsDeleted"} if obj.name in ("User", "Organization") else expected)
    assert not any(f.createable or f.updateable for f in obj.fields if f.is_system)


@each_object
def test_picklist_defaults_are_among_the_choices(obj: ObjectType) -> None:
    fields = [f for f in obj.fields if f.type is FieldType.PICKLIST and f.default is not None]
    assert all([c.value for c in f.picklist if c.is_default] == [f.default] for f in fields)


def test_prefixes_and_tables_are_distinct() -> None:
    assert len({obj.key_prefix for obj in STANDARD_OBJECTS}) == len(STANDARD_OBJECTS)
    assert len({obj.table for obj in STANDARD_OBJECTS}) == len(STANDARD_OBJECTS)


def test_business_objects_can_be_captured_and_setup_objects_cannot() -> None:
    assert {o.name for o in STANDARD_OBJECTS if not o.is_setup} == {
        "Account",
        "Contact",
        "Opportunity",
        "User",
    }


def test_every_opportunity_stage_is_a_choice() -> None:
    stage = BY_NAME["Opportunity"].by_name["stagename"]
    assert [c.value for c in stage.picklist] == [s.name for s in OPPORTUNITY_STAGES]
    assert [s.name for s in OPPORTUNITY_STAGES if s.is_won] == ["Closed Won"]
    categories = {c.value for c in BY_NAME["Opportunity"].by_name["forecastcategory"].picklist}
    names = {c.value for c in BY_NAME["Opportunity"].by_name["forecastcategoryname"].picklist}
    assert {s.forecast_category for s in OPPORTUNITY_STAGES} <= categories
    assert {s.forecast_category_name for s in OPPORTUNITY_STAGES} <= names


def test_push_topic_defaults_notify_for_every_operation() -> None:
    fields = BY_NAME["PushTopic"].by_name
    operations = ("create", "update", "delete", "undelete")
    assert all(fields[f"notifyforoperation{operation}"].default is True for operation in operations)
    assert fields["notifyforfields"].default == "Referenced"
    assert (fields["name"].length, fields["name"].unique, fields["query"].length) == (25, True, 1300)
