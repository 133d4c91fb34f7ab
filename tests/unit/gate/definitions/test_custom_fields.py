"""Reading the fields of an org definition."""

from __future__ import annotations

from typing import Any

import pytest

from tidewire.errors import DefinitionInvalid
from tidewire.gate.definitions.custom_fields import parse_custom_fields, parse_field
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, RollUp

PATH = "objects.Invoice__c.fields"


def parsed(**spec: object) -> Field:
    return parse_field("X__c", spec, f"{PATH}.X__c")


@pytest.mark.parametrize(
    "word, field_type, length",
    [
        ("Text", FieldType.TEXT, 255),
        ("RichTextArea", FieldType.RICH_TEXT, 32_768),
        ("Html", FieldType.RICH_TEXT, 32_768),
        ("longtextarea", FieldType.LONG_TEXT, 32_768),
        ("Time", FieldType.TIME, 0),
    ],
)
def test_type_has_its_word_and_usual_length(word: str, field_type: FieldType, length: int) -> None:
    field = parsed(type=word)
    assert (field.type, field.length, field.custom) == (field_type, length, True)


def test_multi_picklist_has_values_and_several_defaults() -> None:
    field = parsed(type="MultiselectPicklist", values=["A", "B", "C"], restricted=True, default="C;A")
    assert field.default == "A;C"
    assert [v.value for v in field.picklist if v.is_default] == ["A", "C"]
    assert (field.restricted, field.length) == (True, 4099)


@pytest.mark.parametrize(
    "kind, default, stored",
    [
        ("Date", "1970-01-02", 86_400_000),
        ("Time", "00:00:01", 1000),
        ("Number", 1.005, 1.01),
        ("Checkbox", True, True),
        ("Text", " a ", "a"),
    ],
)
def test_default_is_kept_in_its_stored_form(kind: str, default: object, stored: object) -> None:
    assert parsed(type=kind, default=default).default == stored


def test_location_field_includes_its_parts() -> None:
    fields = parse_custom_fields({"Place__c": {"type": "Geolocation"}}, PATH)
    assert [(f.name, f.compound, f.component) for f in fields] == [
        ("Place__c", "", ""),
        ("Place__Latitude__s", "Place__c", "Latitude"),
        ("Place__Longitude__s", "Place__c", "Longitude"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "Lookup", "references": "Account", "master_detail": True},
        {"type": "MasterDetail", "references": ["Account"]},
    ],
)
def test_master_detail_is_required_and_stays_with_its_master(spec: dict[str, Any]) -> None:
    field = parsed(**spec)
    assert (field.is_master_detail, field.required, field.updateable) == (True, True, False)
    assert (field.reference_to, field.relationship_name) == (("Account",), "X__r")
    assert field.delete_constraint == "Cascade"
    assert parsed(**spec, reparentable=True).updateable


def test_lookup_says_what_a_delete_does() -> None:
    assert parsed(type="Lookup", references="Account").delete_constraint == "SetNull"
    assert parsed(type="Lookup", references="Account", required=True).delete_constraint == "Restrict"
    restricted = parsed(type="Lookup", references="Account", delete_constraint="Restrict")
    assert restricted.delete_constraint == "Restrict"


def test_hierarchy_field_references_user_from_user() -> None:
    (field,) = parse_custom_fields({"Mentor__c": {"type": "Hierarchy"}}, "objects.User.fields")
    assert (field.type, field.reference_to) == (FieldType.REFERENCE, ("User",))
    with pytest.raises(DefinitionInvalid, match="must be on User and reference User"):
        parse_custom_fields({"Mentor__c": {"type": "Hierarchy"}}, PATH)


def test_auto_number_has_a_format_and_a_start() -> None:
    field = parsed(type="AutoNumber", format="INV-{0000}", start=100)
    assert (field.display_format, field.start_number) == ("INV-{0000}", 100)
    assert (field.createable, field.updateable) == (False, False)


@pytest.mark.parametrize(
    "wrong", ["INV", "{YYYY}", "{0}{0}", "{0", "{0}-{yy}", "{00000000000}", "x" * 30 + "{0}", 5]
)
def test_auto_number_format_without_exactly_one_counter_is_rejected(wrong: object) -> None:
    with pytest.raises(DefinitionInvalid, match="format must"):
        parsed(type="AutoNumber", format=wrong)


def test_formula_is_read_only_and_not_in_change_events() -> None:
    field = parsed(type="Text", formula="Name & '!'")
    assert (field.formula, field.length) == ("Name & '!'", 1300)
    assert (field.createable, field.updateable, field.in_change_events) == (False, False, False)


def test_roll_up_has_child_function_field_and_filters() -> None:
    field = parsed(
        type="Currency",
        roll_up={
            "child": "Line__c",
            "child_field": "Invoice__c",
            "function": "sum",
            "field": "Amount__c",
            "filters": [["Paid__c", "=", True], ["Kind__c", "!=", None]],
        },
    )
    assert field.roll_up == RollUp(
        "Line__c", "Invoice__c", "SUM", "Amount__c", (("Paid__c", "=", True), ("Kind__c", "!=", None))
    )
    assert (field.createable, field.in_change_events) == (False, True)


def test_count_gives_whole_numbers() -> None:
    field = parsed(
        type="Number", roll_up={"child": "Line__c", "child_field": "Invoice__c", "function": "COUNT"}
    )
    assert (field.precision, field.scale) == (18, 0)


def test_name_with_a_namespace_keeps_it_and_has_a_label_without() -> None:
    (field,) = parse_custom_fields(
        {"acme__Due_Account__c": {"type": "Lookup", "references": "Account"}}, PATH
    )
    assert (field.name, field.label) == ("acme__Due_Account__c", "Due Account")
    assert field.relationship_name == "acme__Due_Account__r"


COUNT = {"child": "L__c", "child_field": "I__c", "function": "COUNT"}


@pytest.mark.parametrize(
    "spec, message",
    [
        ({"type": "Colour"}, "type must be one of"),
        ({"type": "Address"}, "type must be one of"),
        ({"type": "Text", "size": 3}, "unknown keys: size"),
        ({"type": "Text", "required": "yes"}, "required must be true or false"),
        ({"type": "Text", "length": -1}, "length must be a whole number"),
        ({"type": "Text", "values": ["A"]}, "only picklists"),
        ({"type": "Text", "references": "Account"}, "only a Lookup has `references`"),
        ({"type": "Text", "start": 3}, "only an AutoNumber has `start`"),
        ({"type": "Picklist"}, "needs values"),
        ({"type": "Picklist", "values": "AB"}, "values must be a list"),
        ({"type": "Picklist", "values": ["A", "A"]}, "must be listed once"),
        ({"type": "MultiselectPicklist", "values": ["A;B"]}, "or contain `;`"),
        ({"type": "Picklist", "values": ["A"], "restricted": True, "default": "B"}, "bad value"),
        ({"type": "Date", "default": "soon"}, "default: "),
        ({"type": "Lookup"}, "needs `references`"),
        ({"type": "Lookup", "references": [1]}, "needs `references`"),
        ({"type": "Lookup", "references": "A", "reparentable": True}, "only a master-detail"),
        ({"type": "Lookup", "references": "A", "delete_constraint": "Never"}, "delete_constraint must be"),
        (
            {"type": "Lookup", "references": "A", "required": True, "delete_constraint": "SetNull"},
            "cannot be",
        ),
        ({"type": "MasterDetail", "references": ["A", "B"]}, "exactly one object"),
        ({"type": "MasterDetail", "references": "A", "delete_constraint": "Restrict"}, "must be Cascade"),
        ({"type": "Lookup", "references": "A", "formula": "1"}, "a formula cannot have the type Lookup"),
        ({"type": "Number", "formula": " "}, "formula must be text"),
        ({"type": "Number", "formula": "1", "required": True}, "cannot have `required`"),
        ({"type": "Number", "formula": "1", "roll_up": COUNT}, "not both"),
        ({"type": "Text", "roll_up": COUNT}, "COUNT cannot have the type Text"),
        ({"type": "Date", "roll_up": COUNT}, "COUNT cannot have the type Date"),
        ({"type": "Number", "roll_up": {"child": "L__c"}}, "needs `child_field`"),
        ({"type": "Number", "roll_up": COUNT | {"function": "AVG"}}, "function must be one of"),
        ({"type": "Number", "roll_up": COUNT | {"function": "SUM"}}, "SUM needs `field`"),
        ({"type": "Number", "roll_up": COUNT | {"field": "A__c"}}, "COUNT takes no `field`"),
        ({"type": "Number", "roll_up": COUNT | {"filters": "A"}}, "filters must be a list"),
        ({"type": "Number", "roll_up": COUNT | {"filters": [["A__c", "~", 1]]}}, "operator must be"),
        ({"type": "Number", "roll_up": COUNT | {"filters": [["A__c", "="]]}}, "field, operator and literal"),
        ({"type": "Number", "roll_up": COUNT | {"filters": [["A__c", "=", []]]}}, "literal must be"),
    ],
)
def test_invalid_field_is_rejected_with_its_path(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionInvalid, match=message) as rejected:
        parsed(**spec)
    assert str(rejected.value.details["path"]).startswith(f"{PATH}.X__c")


@pytest.mark.parametrize("name", ["X", "1__c", "a__b__c__c", "X__e"])
def test_field_with_a_name_that_is_not_custom_is_rejected(name: str) -> None:
    with pytest.raises(DefinitionInvalid, match="must end in __c"):
        parse_custom_fields({name: {"type": "Text"}}, PATH)


def test_third_master_detail_field_is_rejected() -> None:
    masters = {f"M{n}__c": {"type": "MasterDetail", "references": "Account"} for n in range(3)}
    with pytest.raises(DefinitionInvalid, match="at most 2 master-detail fields"):
        parse_custom_fields(masters, PATH)


def test_event_field_has_few_types() -> None:
    with pytest.raises(DefinitionInvalid, match="type must be one of"):
        parse_custom_fields({"X__c": {"type": "Html"}}, "events.E__e.fields", for_event=True)
