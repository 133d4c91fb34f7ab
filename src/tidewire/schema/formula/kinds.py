"""The kinds of value a formula works with, and how stored values become such values and back.

Numbers are decimals, so that 0.1 + 0.2 is 0.3; a percentage is its fraction, 50 % being 0.5. Dates,
datetimes and times are whole milliseconds, as stored. A blank number field counts as zero and a blank text
field as the empty text; other blanks stay null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation, Overflow

from tidewire.events import Value
from tidewire.schema.field_types import FieldType, FormulaKind
from tidewire.schema.model import Field

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


def try_field_kind(field: Field) -> FormulaKind | None:
    """What a reference to the field yields, or None for one that no formula can read: compounds, long text."""
    return field.type.row.formula_kind if field.column else None


def load_field(field: Field) -> Run:
    """Reads the field from a row."""
    name, kind = field.name, try_field_kind(field)
    if kind is FormulaKind.NUMBER:
        divisor = _HUNDRED if field.type is FieldType.PERCENT else None
        return lambda row, now_ms: _load_number(row.get(name), divisor)
    if kind is FormulaKind.TRUTH:
        return lambda row, now_ms: bool(row.get(name))
    if kind in (FormulaKind.DATE, FormulaKind.DATETIME, FormulaKind.TIME):
        return lambda row, now_ms: _load_whole(row.get(name))
    return lambda row, now_ms: _load_text(row.get(name))


def store_result(result: FieldType, value: FormulaValue) -> Value:
    """Return the stored form of a formula's value. Empty text is null; a checkbox is never null."""
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
