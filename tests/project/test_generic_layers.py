"""The generic layers do not name standard objects or their fields: `crm` and `schema.standard` do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewire.schema.model import ObjectType
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.standard.people import PERSON_OBJECTS
from tidewire.schema.standard.streaming import (
    EVENT_BUS_SUBSCRIBER,
    PUSH_TOPIC,
    STREAMING_CHANNEL,
    USAGE_METRIC,
)

SOURCE = Path(__file__).parents[2] / "src/tidewire"
LAYERS = ("records", "storage", "eventlog", "soql", "matching", "delivery", "capture", "schema")
STREAMING = (EVENT_BUS_SUBSCRIBER, PUSH_TOPIC, STREAMING_CHANNEL, USAGE_METRIC)
"""The objects that configure and measure streaming belong to capture, matching and delivery."""

OWN = frozenset(
    (
        # Fields of every object, custom ones included, and the objects that those fields point at.
        *("Id", "Name", "OwnerId", "RecordTypeId", "IsDeleted", "SystemModstamp", "MasterLabel"),
        *("CreatedDate", "CreatedById", "LastModifiedDate", "LastModifiedById"),
        *("LastViewedDate", "LastReferencedDate", "User", "Group", "RecordType"),
        # Fields of share objects, which custom objects have too.
        *("ParentId", "UserOrGroupId"),
        # Field types, and the parts of the compound ones.
        *("Address", "Email", "Location", "Phone"),
        *("Street", "City", "State", "PostalCode", "Country", "Latitude", "Longitude", "GeocodeAccuracy"),
        *("Salutation", "FirstName", "LastName"),
        # SOQL: the object that a polymorphic lookup points at, as in `What.Type`.
        "Type",
    )
)
"""Names that are the engine's own, though standard objects use them as well."""


def names_of(*objects: ObjectType) -> frozenset[str]:
    return frozenset(name for obj in objects for name in (obj.name, *(f.name for f in obj.fields)))


FOREIGN = names_of(*STANDARD_OBJECTS, *PERSON_OBJECTS) - names_of(*STREAMING) - OWN
FOREIGN_KEYS = frozenset(name.lower() for name in FOREIGN)


def iter_named(text: str) -> Iterator[tuple[int, str]]:
    """Lines and names of standard objects and fields among the string literals of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in FOREIGN:
            yield node.lineno, str(node.value)
        # Fields are also looked up by their lower-case names.
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "by_name"
            and isinstance(node.slice, ast.Constant)
            and node.slice.value in FOREIGN_KEYS
        ):
            yield node.lineno, str(node.slice.value)


@pytest.mark.parametrize("layer", LAYERS)
def test_generic_layer_names_no_standard_object_or_field(layer: str) -> None:
    modules = [
        path for path in (SOURCE / layer).rglob("*.py") if SOURCE / "schema/standard" not in path.parents
    ]
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in modules
        for line, name in iter_named(path.read_text())
    ]

    assert modules
    assert found == []


def test_scan_finds_names_of_objects_and_fields_in_both_spellings() -> None:
    text = 'a = "Opportunity"\nb = row["WhoId"]\nc = obj.by_name["closedate"]\nd = "Name"\n'

    assert sorted(iter_named(text)) == [(1, "Opportunity"), (2, "WhoId"), (3, "closedate")]
