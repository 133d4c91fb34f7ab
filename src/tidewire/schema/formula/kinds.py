"""The kinds of value a formula works with, and how stored values become such values and back.

Numbers are decimals, so that 0.1 + 0.2 is 0.3; a percentage is its fraction, 50 % being 0.5. Dates,
datetimes and times are whole milliseconds, as stored. A blank number field counts as zero and a blank text
field as the empty text; other blanks stay null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from enum import Enum

from tidewire.events import Value
from tidewire.schema.model import LONG_TEXT_TYPES, Field, FieldType

FormulaValue = Decimal | str | bool | int | None
Run = Callable[[Mapping[str, Value], int], FormulaValue]
"""A compiled piece of a formula: from a row and the time in ms to a value. ArithmeticError means undefined."""

# What overflows or divides by zero raises an ArithmeticError, which makes the whole result null.
ARITHMETIC = Context(
    prec=40,
    rounding=ROUND_HALF_UP,
    Emin=-300,
    Emax=300,
    traps=[DivisionByZero, InvalidOperation, Overflow],
)
MAX_TEXT_CHARS = 32_768
_HUNDRED = Decimal(100)


class Kind(Enum):
    """What an expression yields; the value is the word for it in messages."""

    NUMBER = "number"
    TEXT = "text"
    TRUTH = "true or false"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    PICKLIST = "picklist"
    MULTI_PICKLIST = "multi-select picklist"
    NULL = "null"  # the literal, which fits every kind


_FIELD_KINDS = {
    FieldType.ID: Kind.TEXT,
    FieldType.REFERENCE: Kind.TEXT,
    FieldType.TEXT: Kind.TEXT,
    FieldType.TEXT_AREA: Kind.TEXT,
    FieldType.EMAIL: Kind.TEXT,
    FieldType.PHONE: Kind.TEXT,
    FieldType.URL: Kind.TEXT,
    FieldType.AUTO_NUMBER: Kind.TEXT,
    FieldType.PERSON_NAME: Kind.TEXT,
    FieldType.INTEGER: Kind.NUMBER,
    FieldType.NUMBER: Kind.NUMBER,
    FieldType.CURRENCY: Kind.NUMBER,
    FieldType.PERCENT: Kind.NUMBER,
    FieldType.CHECKBOX: Kind.TRUTH,
    FieldType.DATE: Kind.DATE,
    FieldType.DATETIME: Kind.DATETIME,
    FieldType.TIME: Kind.TIME,
    FieldType.PICKLIST: Kind.PICKLIST,
    FieldType.MULTI_PICKLIST: Kind.MULTI_PICKLIST,
}
RESULT_KINDS = {
    FieldType.TEXT: Kind.TEXT,
    FieldType.NUMBER: Kind.NUMBER,
    FieldType.CURRENCY: Kind.NUMBER,
    FieldType.PERCENT: Kind.NUMBER,
    FieldType.CHECKBOX: Kind.TRUTH,
    FieldType.DATE: Kind.DATE,
    FieldType.DATETIME: Kind.DATETIME,
    FieldType.TIME: Kind.TIME,
}
"""The types that a formula field may have."""


def try_field_kind(field: Field) -> Kind | None:
    """What a reference to the field yields, or None for one that no formula can read: compounds, long text."""
    if field.type in LONG_TEXT_TYPES or not field.column:
        return None
    return _FIELD_KINDS.get(field.type)


def load_field(field: Field) -> Run:
    """Reads the field from a row."""
    name, kind = field.name, try_field_kind(field)
    if kind is Kind.NUMBER:
        divisor = _HUNDRED if field.type is FieldType.PERCENT else None
        return lambda row, now_ms: _load_number(row.get(name), divisor)
    if kind is Kind.TRUTH:
        return lambda row, now_ms: bool(row.get(name))
    if kind in (Kind.DATE, Kind.DATETIME, Kind.TIME):
        return lambda row, now_ms: _load_whole(row.get(name))
    return lambda row, now_ms: _load_text(row.get(name))


def store_result(result: FieldType, value: FormulaValue) -> Value:
    """The stored form of a formula's value. Empty text is null; a checkbox is never null."""
    if result is FieldType.CHECKBOX:
        return value is True
    if isinstance(value, Decimal):
        number = ARITHMETIC.multiply(value, _HUNDRED) if result is FieldType.PERCENT else value
        return float(number) + 0.0  # no negative zero
    if value == "":
        return None
    return value


def _load_number(value: Value, divisor: Decimal | None) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Decimal(0)
    if not math.isfinite(value):
        raise ArithmeticError("not a finite number")
    # A double's shortest text is what its sender wrote; its exact binary value would carry noise along.
    number = ARITHMETIC.create_decimal(repr(value))
    return number if divisor is None else ARITHMETIC.divide(number, divisor)


def _load_whole(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _load_text(value: Value) -> str:
    return value if isinstance(value, str) else ""
