"""Every field type has a whole row in the table, and no other place lists types."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tidewire.access.grants import is_permissionable
from tidewire.gate.describe import render_field
from tidewire.gate.metadata.field_render import field_kind
from tidewire.records.conversion import ConversionEffect, try_effect
from tidewire.schema.avro import platform_event_schema
from tidewire.schema.codec import EventSchema
from tidewire.schema.field_types import (
    COMPOUND_TYPES,
    DOC_KINDS,
    ConversionClass,
    FieldType,
    ListOperator,
    ValueKind,
    doc_kind,
)
from tidewire.schema.model import EventType, Field, PicklistValue
from tidewire.schema.values import parse_value, render_value
from tidewire.soql.typing_rules import is_groupable, is_sortable

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "src/tidewire/schema/field_types.py"
SQL_TYPES = {"TEXT", "INTEGER", "REAL"}
AVRO_TYPES = {"string", "int", "long", "double", "boolean"}
# A JSON value of each kind that is rendered as it was parsed.
SAMPLES: dict[ValueKind, object] = {
    ValueKind.TEXT: "a@b.example",
    ValueKind.CHOICES: "a;b",
    ValueKind.ID: "001000000000001AAA",
    ValueKind.INTEGER: 7,
    ValueKind.DOUBLE: 7.0,
    ValueKind.BOOLEAN: True,
    ValueKind.DATE: "2024-02-29",
    ValueKind.DATETIME: "2024-02-29T12:30:00.000Z",
    ValueKind.TIME: "12:30:00.000Z",
}
MOST_LISTED = 3
"""A list of more types than this belongs into the table."""


def field_of(kind: FieldType) -> Field:
    """A field of a type, as a definition makes one."""
    choices = (PicklistValue("a", "A"), PicklistValue("b", "B")) if kind.row.has_choices else ()
    column = "c1" if kind.row.has_column else ""
    return Field(
        name="F__c",
        label="F",
        type=kind,
        length=kind.row.default_length,
        precision=18,
        picklist=choices,
        column=column,
    )


def test_row_names_are_unique() -> None:
    assert len({kind.row.name.lower() for kind in FieldType}) == len(FieldType)
    assert [FieldType(kind.value) for kind in FieldType] == list(FieldType)


def test_metadata_words_name_one_type_each() -> None:
    words = [word for kind in FieldType for word in kind.row.metadata_words or (kind.row.name,)]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("kind", FieldType)
def test_row_has_a_word_for_every_protocol(kind: FieldType) -> None:
    row = kind.row
    assert row.word == row.word.lower() != ""
    assert row.soap_type.partition(":")[0] in ("xsd", "tns", "urn")
    assert row.apex_type
    assert row.metadata_word
    assert DOC_KINDS[row.avro_doc] is row.kind is kind.kind
    assert doc_kind(f"Data:{row.avro_doc}:00N000000000001") is row.kind
    assert row.sql_type in SQL_TYPES
    is_compound = row.kind is ValueKind.COMPOUND
    assert (kind in COMPOUND_TYPES) is is_compound
    assert (row.avro_type in AVRO_TYPES) is not is_compound


@pytest.mark.parametrize("kind", FieldType)
def test_row_makes_sense_in_itself(kind: FieldType) -> None:
    row = kind.row
    if row.length_range is not None:
        least, most = row.length_range
        assert least <= row.default_length <= most
    assert not row.is_formula_result or row.formula_kind is not None
    assert not row.is_event_type or row.is_custom_type
    assert (row.list_operator is ListOperator.INCLUDES) is (row.kind is ValueKind.CHOICES)
    assert not row.has_choices or row.kind in (ValueKind.TEXT, ValueKind.CHOICES)
    assert not row.has_text_key or (row.sql_type == "TEXT" and row.is_filterable)
    if row.kind is ValueKind.COMPOUND:
        assert row.conversion_class is ConversionClass.FIXED


@pytest.mark.parametrize("kind", FieldType)
def test_every_type_is_described(kind: FieldType) -> None:
    field = field_of(kind)
    described = render_field(field, can_edit=True)
    assert (described["type"], described["soapType"]) == (kind.row.word, kind.row.soap_type)
    assert described["sortable"] is is_sortable(field)
    assert described["permissionable"] is is_permissionable(field)
    assert not described["groupable"] or is_groupable(field)
    assert field_kind(None, field) == kind.row.metadata_word


@pytest.mark.parametrize("kind", [each for each in FieldType if each not in COMPOUND_TYPES])
def test_values_of_every_type_are_parsed_rendered_and_encoded(kind: FieldType) -> None:
    field = field_of(kind)
    stored = parse_value(field, SAMPLES[kind.kind])
    assert render_value(field, stored, "Z") == SAMPLES[kind.kind]
    event = EventType(name="E__e", label="E", label_plural="Es", key_prefix="e00", fields=(field,))
    schema = EventSchema(json.dumps(platform_event_schema(event)))
    payload = schema.encode({"CreatedDate": 1, "CreatedById": "005", "F__c": stored})
    assert schema.decode(payload)["F__c"] == stored


@pytest.mark.parametrize("kind", FieldType)
def test_conversions_of_every_type_have_an_effect_or_none(kind: FieldType) -> None:
    is_fixed = kind.row.conversion_class is ConversionClass.FIXED
    assert try_effect(kind, kind) is (None if is_fixed else ConversionEffect.NONE)
    for other in FieldType:
        assert (try_effect(kind, other) is None) is (
            is_fixed or other.row.conversion_class is ConversionClass.FIXED
        )


def types_listed(node: ast.AST) -> set[str]:
    """The members of FieldType that a mapping, a collection or a match statement lists."""
    match node:
        case ast.Dict():
            listed: list[ast.AST] = [*(key for key in node.keys if key is not None), *node.values]
        case ast.Set() | ast.List() | ast.Tuple():
            listed = list(node.elts)
        case ast.Match():
            listed = [
                value.value
                for case in node.cases
                for value in ast.walk(case.pattern)
                if isinstance(value, ast.MatchValue)
            ]
        case _:
            return set()
    return {
        each.attr
        for each in listed
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == "FieldType"
    }


def test_no_list_of_types_stands_outside_of_the_table() -> None:
    found: list[str] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        if path == TABLE:
            continue
        text = path.read_text()
        if "FieldType." not in text:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            for node in ast.walk(ast.parse(text))
            if len(types_listed(node)) > MOST_LISTED
        ]
    assert found == [], "make it a column of FieldTypeRow, or dispatch on ValueKind"


def test_scan_finds_lists_of_types() -> None:
    source = "x = {FieldType.A: 1, FieldType.B: 2}\ny = (FieldType.C, FieldType.A)"
    assert [types_listed(n) for n in ast.walk(ast.parse(source)) if types_listed(n)] == [
        {"A", "B"},
        {"C", "A"},
    ]
