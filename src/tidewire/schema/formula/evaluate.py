"""Runs a checked formula on a record."""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.events import Value
from tidewire.schema.formula.check import Formula
from tidewire.schema.formula.kinds import store_result


def evaluate(formula: Formula, row: Mapping[str, Value], now_ms: int) -> Value:
    """The stored form of the formula's value for this record, not yet rounded to a field's scale. Never raises.

    What is undefined, such as a division by zero or a number without bound, is null, or False for a checkbox.
    """
    try:
        return store_result(formula.result, formula.run(row, now_ms))
    except ArithmeticError:
        return store_result(formula.result, None)
