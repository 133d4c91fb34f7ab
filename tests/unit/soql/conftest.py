"""One object with a field of every kind, and the tables that hold its records."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from tidewire.events import Value
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType, PicklistValue
from tidewire.schema.text_keys import fold_key

LoadRows = Callable[[Iterable[Mapping[str, Value]]], sqlite3.Connection]


def make_field(name: str, kind: FieldType, column: str, **settings: str | bool) -> Field:
    return Field(
        name=name,
        label=name,
        type=kind,
        column=column,
        custom=name.endswith(("__c", "__s")),
        compound=str(settings.get("compound", "")),
        component=str(settings.get("component", "")),
        reference_to=tuple(str(settings.get("reference_to", "")).split()),
        relationship_name=str(settings.get("relationship_name", "")),
        child_relationship_name=str(settings.get("child_relationship_name", "")),
        picklist=tuple(
            PicklistValue(value, f"{value}!") for value in str(settings.get("values", "")).split()
        ),
        case_sensitive=bool(settings.get("case_sensitive", False)),
    )


WIDGET = ObjectType(
    name="Widget__c",
    label="Widget",
    label_plural="Widgets",
    key_prefix="a00",
    table="o7_0",
    fields=(
        make_field("Id", FieldType.ID, "id"),
        make_field("IsDeleted", FieldType.CHECKBOX, "c1"),
        make_field("Name", FieldType.TEXT, "c2"),
        make_field("Code__c", FieldType.TEXT, "c3", case_sensitive=True),
        make_field("Email__c", FieldType.EMAIL, "c4"),
        make_field("Stage__c", FieldType.PICKLIST, "c5", values="New Open Closed"),
        make_field("Count__c", FieldType.INTEGER, "c6"),
        make_field("Size__c", FieldType.NUMBER, "c7"),
        make_field("Price__c", FieldType.CURRENCY, "c8"),
        make_field("Active__c", FieldType.CHECKBOX, "c9"),
        make_field("Due__c", FieldType.DATE, "c10"),
        make_field("At__c", FieldType.DATETIME, "c11"),
        make_field("Start__c", FieldType.TIME, "c12"),
        make_field("OwnerId", FieldType.REFERENCE, "c13", relationship_name="Owner", reference_to="Crew__c"),
        make_field("Notes__c", FieldType.LONG_TEXT, "c14"),
        make_field("SiteAddress", FieldType.ADDRESS, ""),
        make_field("SiteStreet", FieldType.TEXT_AREA, "c15", compound="SiteAddress"),
        make_field("SiteCity", FieldType.TEXT, "c16", compound="SiteAddress"),
        make_field("Contact__c", FieldType.PERSON_NAME, ""),
        make_field("Unstored__c", FieldType.TEXT, ""),
        make_field("Tags__c", FieldType.MULTI_PICKLIST, "c17", values="red green blue"),
        make_field("Place__c", FieldType.LOCATION, ""),
        make_field("Place__Latitude__s", FieldType.NUMBER, "c18", compound="Place__c", component="Latitude"),
        make_field(
            "Place__Longitude__s", FieldType.NUMBER, "c19", compound="Place__c", component="Longitude"
        ),
        make_field(
            "Parent__c",
            FieldType.REFERENCE,
            "c20",
            reference_to="Widget__c",
            relationship_name="Parent__r",
            child_relationship_name="Offspring",
        ),
        make_field(
            "About__c",
            FieldType.REFERENCE,
            "c21",
            reference_to="Crew__c Part__c",
            relationship_name="About__r",
        ),
        make_field(
            "Secret__c", FieldType.REFERENCE, "c22", reference_to="Hidden__c", relationship_name="Secret__r"
        ),
        make_field("Rich__c", FieldType.RICH_TEXT, "c23"),
    ),
)
CREW = ObjectType(
    name="Crew__c",
    label="Crew",
    label_plural="Crews",
    key_prefix="005",
    table="o9_0",
    fields=(
        make_field("Id", FieldType.ID, "id"),
        make_field("Name", FieldType.PERSON_NAME, "c1"),
        make_field("FirstName", FieldType.TEXT, "c2", compound="Name", component="FirstName"),
        make_field("LastName", FieldType.TEXT, "c3", compound="Name", component="LastName"),
        make_field("Boss__c", FieldType.REFERENCE, "c4", reference_to="Crew__c", relationship_name="Boss__r"),
    ),
)
PART = ObjectType(
    name="Part__c",
    label="Part",
    label_plural="Parts",
    key_prefix="a02",
    table="o10_0",
    fields=(
        make_field("Id", FieldType.ID, "id"),
        make_field("IsDeleted", FieldType.CHECKBOX, "c1"),
        make_field("Name", FieldType.TEXT, "c2"),
        make_field("Cost__c", FieldType.CURRENCY, "c3"),
        make_field(
            "Widget__c",
            FieldType.REFERENCE,
            "c4",
            reference_to="Widget__c",
            relationship_name="Widget__r",
            child_relationship_name="Parts__r",
        ),
    ),
)
BARE = ObjectType(
    name="Bare__c",
    label="Bare",
    label_plural="Bares",
    key_prefix="a01",
    table="o8_0",
    fields=(make_field("Id", FieldType.ID, "id"),),
)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return Catalog(1, (WIDGET, BARE, CREW, PART))


@pytest.fixture(scope="session")
def widget() -> ObjectType:
    return WIDGET


@pytest.fixture(scope="session")
def cases() -> Path:
    return Path(__file__).parents[2] / "soql"


@pytest.fixture(scope="session")
def load_rows() -> LoadRows:
    """A way to put records into a table laid out as the store lays it out."""
    stored = WIDGET.stored_fields
    texts = [field for field in stored if field.is_text]
    columns = [field.column for field in stored] + [field.key_column for field in texts]
    marks = ", ".join("?" for _ in columns)

    def key(field: Field, value: Value) -> Value:
        return (
            fold_key(value, case_sensitive=field.case_sensitive)
            if field.is_text and isinstance(value, str)
            else value
        )

    def load(rows: Iterable[Mapping[str, Value]]) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:")
        connection.execute("PRAGMA case_sensitive_like = ON")
        connection.execute(f"CREATE TABLE {WIDGET.table} ({', '.join(columns)})")
        connection.executemany(
            f"INSERT INTO {WIDGET.table} VALUES ({marks})",
            [
                [row.get(field.name) for field in stored]
                + [key(field, row.get(field.name)) for field in texts]
                for row in rows
            ],
        )
        return connection

    return load
