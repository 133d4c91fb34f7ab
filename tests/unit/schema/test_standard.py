from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidewire.schema.field_types import FieldType
from tidewire.schema.layout import FIRST_ADDED_COLUMN
from tidewire.schema.model import ObjectType
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.standard.people import PERSON_OBJECTS
from tidewire.schema.standard.statuses import OPPORTUNITY_STAGES, status_rows

PINNED = json.loads((Path(__file__).parent / "standard_columns.json").read_text())
BY_NAME = {obj.name: obj for obj in STANDARD_OBJECTS}
TOLD_BY_THE_SERVER = {"PlatformEventUsageMetric", "EventBusSubscriber"}

PERSON_FIELDS = {obj.name: obj.stored_fields for obj in PERSON_OBJECTS}

each_object = pytest.mark.parametrize("obj", STANDARD_OBJECTS, ids=lambda obj: obj.name)


@each_object
def test_stored_columns_of_a_release_keep_their_place(obj: ObjectType) -> None:
    # Databases hold these columns: a new field joins the list, and no line may change or leave.
    columns = {f.name: f.column for f in (*obj.stored_fields, *PERSON_FIELDS.get(obj.name, ()))}
    pinned = PINNED[obj.name]
    assert obj.table == pinned["table"]
    assert columns == pinned["columns"]


def test_org_with_person_accounts_has_the_same_fields_and_more() -> None:
    for obj in PERSON_OBJECTS:
        plain = BY_NAME[obj.name]
        assert obj.table == plain.table
        assert [f.name for f in obj.fields][: len(plain.fields)] == [f.name for f in plain.fields]
        assert len({f.column for f in obj.stored_fields}) == len(obj.stored_fields)
    added = {o.name: len(o.fields) - len(BY_NAME[o.name].fields) for o in PERSON_OBJECTS}
    assert added == {"Account": 38, "Contact": 1, "Lead": 0}


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
    if obj.name in TOLD_BY_THE_SERVER:
        expected = {"Id"}
    assert system == (expected if obj.deletable else expected - {"IsDeleted"})
    assert not any(f.createable or f.updateable for f in obj.fields if f.is_system)


@each_object
def test_picklist_defaults_are_among_the_choices(obj: ObjectType) -> None:
    fields = [f for f in obj.fields if f.type is FieldType.PICKLIST and f.default is not None]
    assert all([c.value for c in f.picklist if c.is_default] == [f.default] for f in fields)


def test_prefixes_and_tables_are_distinct() -> None:
    assert len({obj.key_prefix for obj in STANDARD_OBJECTS}) == len(STANDARD_OBJECTS)
    assert len({obj.table for obj in STANDARD_OBJECTS}) == len(STANDARD_OBJECTS)


def test_setup_objects_are_those_that_are_never_captured() -> None:
    assert {o.name for o in STANDARD_OBJECTS if o.is_setup} == {
        "Profile",
        "PermissionSet",
        "PermissionSetAssignment",
        "ObjectPermissions",
        "FieldPermissions",
        "Organization",
        "PushTopic",
        "Group",
        "UserRole",
        "GroupMember",
        "QueueSobject",
        "RecordType",
        "UserLogin",
        *TOLD_BY_THE_SERVER,
        *status_rows(),
    }


@each_object
def test_tables_are_numbered_in_the_order_of_the_list(obj: ObjectType) -> None:
    assert obj.table == f"o{STANDARD_OBJECTS.index(obj) + 1}_0"


@each_object
def test_standard_columns_stay_below_those_that_orgs_add(obj: ObjectType) -> None:
    assert max(int(f.column[1:]) for f in obj.stored_fields if f.column != "id") < FIRST_ADDED_COLUMN


@each_object
def test_required_lookup_says_what_deleting_its_target_does(obj: ObjectType) -> None:
    # Such a lookup cannot become null when its target is deleted.
    lookups = [f for f in obj.fields if f.type is FieldType.REFERENCE and f.required]
    assert all(f.delete_constraint in ("Cascade", "Restrict") for f in lookups)


def test_child_relationships_of_a_parent_have_distinct_names() -> None:
    seen: dict[tuple[str, str], str] = {}
    for obj in STANDARD_OBJECTS:
        for f in obj.fields:
            for target in f.reference_to if f.child_relationship_name else ():
                key = (target, f.child_relationship_name)
                assert key not in seen, f"{obj.name}.{f.name} and {seen[key]}"
                seen[key] = f"{obj.name}.{f.name}"
    assert {name for target, name in seen if target == "Account"} >= {
        "AccountContactRoles",
        "Assets",
        "Cases",
        "ChildAccounts",
        "Contacts",
        "Contracts",
        "Events",
        "Opportunities",
        "Orders",
        "Tasks",
    }
    assert {name for target, name in seen if target == "Campaign"} >= {
        "CampaignMembers",
        "ChildCampaigns",
        "Opportunities",
    }


@pytest.mark.parametrize("name", ["Contact", "User", "Lead"])
def test_name_of_a_person_has_a_column_and_can_be_filtered_but_not_set(name: str) -> None:
    field = BY_NAME[name].by_name["name"]
    assert field.column
    assert (field.is_compound, field.is_filterable, field.is_text) == (True, True, True)
    assert (field.createable, field.updateable) == (False, False)


@pytest.mark.parametrize(
    "entity, field, targets",
    [
        ("Task", "WhoId", {"Contact", "Lead"}),
        ("Lead", "OwnerId", {"Group", "User"}),
        ("Case", "OwnerId", {"Group", "User"}),
        ("Account", "OwnerId", {"User"}),
    ],
)
def test_lookups_point_at_one_or_several_objects(entity: str, field: str, targets: set[str]) -> None:
    assert set(BY_NAME[entity].by_name[field.lower()].reference_to) == targets


@pytest.mark.parametrize(
    "entity, name",
    [
        ("Account", "Name"),
        ("Contact", "Name"),
        ("Case", "CaseNumber"),
        ("Order", "OrderNumber"),
        ("Contract", "ContractNumber"),
        ("ServiceContract", "Name"),
        ("Task", "Subject"),
        ("LeadStatus", "MasterLabel"),
    ],
)
def test_record_is_known_by_its_name_or_what_stands_for_it(entity: str, name: str) -> None:
    field = BY_NAME[entity].name_field
    assert field is not None
    assert field.name == name


@pytest.mark.parametrize("entity", status_rows())
def test_status_rows_set_fields_that_their_object_has(entity: str) -> None:
    obj = BY_NAME[entity]
    rows = status_rows()[entity]
    assert [row["SortOrder"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(obj.try_field(name) for row in rows for name in row)


@pytest.mark.parametrize(
    "entity, status", [("Lead", "LeadStatus"), ("Case", "CaseStatus"), ("Task", "TaskStatus")]
)
def test_status_picklist_has_the_rows_of_its_status_object(entity: str, status: str) -> None:
    field = BY_NAME[entity].by_name["status"]
    rows = status_rows()[status]
    assert [c.value for c in field.picklist] == [row["MasterLabel"] for row in rows]
    assert [field.default] == [row["MasterLabel"] for row in rows if row["IsDefault"]]


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
