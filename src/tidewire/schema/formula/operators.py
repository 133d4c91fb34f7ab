"""Operators between two operands: the kinds they take, the kind they yield, and their code.

Arithmetic with null is null. Two nulls are equal, and null is neither less nor more than anything. A null
text is an empty one, and a null truth is false.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tidewire.events import Value
from tidewire.schema.field_types import FormulaKind
from tidewire.schema.formula.functions import checked_day, checked_moment, checked_text, power, whole
from tidewire.schema.formula.kinds import ARITHMETIC, FormulaValue, Run
from tidewire.schema.formula.tokens import formula_error
from tidewire.schema.formula.typed import VALUE_KINDS, Typed, common_kind, require
from tidewire.schema.values import DAY_MS

Combine = Callable[[Any, Any], FormulaValue]
Join = Callable[[FormulaValue, Run, Mapping[str, Value], int], FormulaValue]
"""From the value on the left and what computes the right to the joined value; the right may be left alone."""

_DAY = Decimal(DAY_MS)


def _days(number: Decimal) -> int:
    return whole(number) * DAY_MS


def _day_fraction_ms(number: Decimal) -> int:
    return whole(ARITHMETIC.multiply(number, _DAY).to_integral_value())


def _add_days(day_ms: int, number: Decimal) -> int:
    return checked_day((day_ms + _days(number)) // DAY_MS)


def _days_between(left: int, right: int) -> Decimal:
    return ARITHMETIC.divide(Decimal(left - right), _DAY)


_SUMS: dict[tuple[FormulaKind, str, FormulaKind], tuple[FormulaKind, Combine]] = {
    (FormulaKind.NUMBER, "+", FormulaKind.NUMBER): (FormulaKind.NUMBER, ARITHMETIC.add),
    (FormulaKind.NUMBER, "-", FormulaKind.NUMBER): (FormulaKind.NUMBER, ARITHMETIC.subtract),
    (FormulaKind.DATE, "+", FormulaKind.NUMBER): (FormulaKind.DATE, _add_days),
    (FormulaKind.NUMBER, "+", FormulaKind.DATE): (
        FormulaKind.DATE,
        lambda number, day: _add_days(day, number),
    ),
    (FormulaKind.DATE, "-", FormulaKind.NUMBER): (
        FormulaKind.DATE,
        lambda day, number: _add_days(day, ARITHMETIC.minus(number)),
    ),
    (FormulaKind.DATE, "-", FormulaKind.DATE): (FormulaKind.NUMBER, _days_between),
    (FormulaKind.DATETIME, "+", FormulaKind.NUMBER): (
        FormulaKind.DATETIME,
        lambda moment, number: checked_moment(moment + _day_fraction_ms(number)),
    ),
    (FormulaKind.NUMBER, "+", FormulaKind.DATETIME): (
        FormulaKind.DATETIME,
        lambda number, moment: checked_moment(moment + _day_fraction_ms(number)),
    ),
    (FormulaKind.DATETIME, "-", FormulaKind.NUMBER): (
        FormulaKind.DATETIME,
        lambda moment, number: checked_moment(moment - _day_fraction_ms(number)),
    ),
    (FormulaKind.DATETIME, "-", FormulaKind.DATETIME): (FormulaKind.NUMBER, _days_between),
    # A time of day counts in milliseconds and goes round at midnight.
    (FormulaKind.TIME, "+", FormulaKind.NUMBER): (
        FormulaKind.TIME,
        lambda time, number: (time + whole(number)) % DAY_MS,
    ),
    (FormulaKind.TIME, "-", FormulaKind.NUMBER): (
        FormulaKind.TIME,
        lambda time, number: (time - whole(number)) % DAY_MS,
    ),
    (FormulaKind.TIME, "-", FormulaKind.TIME): (
        FormulaKind.NUMBER,
        lambda left, right: Decimal((left - right) % DAY_MS),
    ),
}
_PRODUCTS: dict[str, Combine] = {
    "*": ARITHMETIC.multiply,
    "/": ARITHMETIC.divide,
    "^": power,
}
_ORDERINGS: dict[str, Combine] = {"<": python.lt, "<=": python.le, ">": python.gt, ">=": python.ge}
_ORDERED = (FormulaKind.NUMBER, FormulaKind.DATE, FormulaKind.DATETIME, FormulaKind.TIME)


def combine(text: str, left: Typed, operator: str, right: Typed, position: int) -> tuple[FormulaKind, Join]:
    """Compile `left operator right`. Raises DefinitionInvalid where the kinds do not fit."""
    joined, compared = f"what '{operator}' joins", f"what '{operator}' compares"
    if operator in ("&&", "||"):
        _require_both(text, left, right, FormulaKind.TRUTH, joined)
        return FormulaKind.TRUTH, _and if operator == "&&" else _or
    if operator in ("=", "<>"):
        equal = equality(common_kind(text, (left, right), compared))
        return FormulaKind.TRUTH, _eager(equal if operator == "=" else lambda a, b: not equal(a, b))
    if operator in _ORDERINGS:
        common_kind(text, (left, right), compared)
        require(text, left if right.kind is FormulaKind.NULL else right, _ORDERED, compared)
        function = _ORDERINGS[operator]
        return FormulaKind.TRUTH, _eager(lambda a, b: a is not None and b is not None and function(a, b))
    if operator == "&" or (operator == "+" and FormulaKind.TEXT in (left.kind, right.kind)):
        _require_both(text, left, right, FormulaKind.TEXT, joined)
        return FormulaKind.TEXT, _eager(lambda a, b: checked_text(f"{a or ''}{b or ''}"))
    if operator in _PRODUCTS:
        _require_both(text, left, right, FormulaKind.NUMBER, joined)
        return FormulaKind.NUMBER, _strict(_PRODUCTS[operator])
    # NULL stands for a number here: that gives date + NULL the kind it would have with any number.
    kinds = tuple(
        FormulaKind.NUMBER if item.kind is FormulaKind.NULL else item.kind for item in (left, right)
    )
    found = _SUMS.get((kinds[0], operator, kinds[1]))
    if found is None:
        for item in (left, right):
            require(text, item, (k for k in VALUE_KINDS if k is not FormulaKind.TRUTH), joined)
        reason = f"'{operator}' cannot join {kinds[0].value} and {kinds[1].value}"
        raise formula_error(text, position, reason)
    return found[0], _strict(found[1])


def equality(kind: FormulaKind) -> Combine:
    """Return whether two values of one kind are the same. Text compares letter by letter, case and all."""
    if kind is FormulaKind.TEXT:
        return lambda a, b: (a or "") == (b or "")
    if kind is FormulaKind.TRUTH:
        return lambda a, b: bool(a) is bool(b)
    return python.eq


def negation(run: Run) -> Run:
    """Compile NOT of a truth."""
    return lambda row, now_ms: not run(row, now_ms)


def _require_both(text: str, left: Typed, right: Typed, kind: FormulaKind, subject: str) -> None:
    require(text, left, (kind,), subject)
    require(text, right, (kind,), subject)


def _eager(function: Combine) -> Join:
    return lambda value, right, row, now_ms: function(value, right(row, now_ms))


def _strict(function: Combine) -> Join:
    return _eager(lambda a, b: None if a is None or b is None else function(a, b))


def _and(value: FormulaValue, right: Run, row: Mapping[str, Value], now_ms: int) -> FormulaValue:
    return bool(value) and bool(right(row, now_ms))


def _or(value: FormulaValue, right: Run, row: Mapping[str, Value], now_ms: int) -> FormulaValue:
    return bool(value) or bool(right(row, now_ms))
