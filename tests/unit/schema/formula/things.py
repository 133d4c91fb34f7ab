"""An object with a field of every kind, on which the formulas of these tests stand."""

from __future__ import annotations

from tidewire.events import Value
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import choices
from tidewire.schema.formula.check import Formula, check_formula
from tidewire.schema.formula.evaluate import evaluate
from tidewire.schema.formula.parser import parse_formula
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field

DAY = 86_400_000
NOW_MS = 1_700_000_000_789  # 2023-11-14T22:13:20.789Z
TODAY_MS = NOW_MS - NOW_MS % DAY

THING = custom_object(
    "Thing__c",
    "Thing",
    "Things",
    "a00",
    1001,
    None,
    (
        Field(name="Count__c", label="Count", type=FieldType.NUMBER, precision=18, scale=2),
        Field(name="Price__c", label="Price", type=FieldType.CURRENCY, precision=18, scale=2),
        Field(name="Share__c", label="Share", type=FieldType.PERCENT, precision=5, scale=2),
        Field(name="Done__c", label="Done", type=FieldType.CHECKBOX),
        Field(name="Due__c", label="Due", type=FieldType.DATE),
        Field(name="At__c", label="At", type=FieldType.DATETIME),
        Field(name="Hour__c", label="Hour", type=FieldType.TIME),
        Field(name="Note__c", label="Note", type=FieldType.TEXT, length=80),
        Field(name="Long__c", label="Long", type=FieldType.LONG_TEXT, length=32_000),
        Field(
            name="Color__c", label="Color", type=FieldType.PICKLIST, length=40, picklist=choices("Red;Blue")
        ),
        Field(
            name="Tags__c", label="Tags", type=FieldType.MULTI_PICKLIST, length=80, picklist=choices("A;B;C")
        ),
    ),
)

ROW: dict[str, Value] = {
    "Id": "a00000000000001AAA",
    "Name": "Lamp",
    "Count__c": 3.0,
    "Price__c": 9.99,
    "Share__c": 25.0,
    "Done__c": True,
    "Due__c": 19_000 * DAY,  # 2022-01-08
    "At__c": 19_000 * DAY + 3_661_000,
    "Hour__c": 3_600_000,
    "Note__c": "Alpha beta",
    "Color__c": "Red",
    "Tags__c": "A;C",
    "CreatedDate": 19_000 * DAY,
}


def checked(text: str, result: FieldType) -> Formula:
    return check_formula(parse_formula(text), THING, result)


def value_of(text: str, result: FieldType, row: dict[str, Value] | None = None) -> Value:
    return evaluate(checked(text, result), ROW if row is None else row, NOW_MS)
