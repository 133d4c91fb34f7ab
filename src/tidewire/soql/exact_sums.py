"""Sums in SQL without adding floats: decimals are counted in units of their last place, in two parts."""

from __future__ import annotations

from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field


def exact_sum(field: Field, column: str) -> list[str]:
    """The four columns of a sum: how many values, how many of them are no decimal, and the sums of two parts."""
    if field.type is FieldType.INTEGER:
        units, is_odd = column, "0"
    else:
        # Fifteen digits are what a double surely keeps, so dividing the units again must give the value.
        unit = f"{10**field.scale}.0"
        largest = f"{10 ** (15 - field.scale)}.0"
        units = f"CASE WHEN ABS({column}) < {largest} THEN CAST(ROUND({column} * {unit}) AS INTEGER) END"
        is_exact = f"ABS({column}) < {largest} AND CAST({units} AS REAL) / {unit} = {column}"
        is_odd = f"SUM(CASE WHEN {column} IS NULL OR ({is_exact}) THEN 0 ELSE 1 END)"
    parts = [f"SUM(({units}) {operator} 1000000)" for operator in ("/", "%")]
    return [f"COUNT({column})", is_odd, *parts]
