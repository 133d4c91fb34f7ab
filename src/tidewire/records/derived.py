"""The fields that are computed from the other fields of a record.

They are a person's joined Name, the fields of the object's own rule, roll-ups of a record that has no
children yet, and formulas, each computed after those it refers to. A formula that reads the time is volatile,
and so is every formula that refers to it: it is stored as of the last write and computed again whenever the
record is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from tidewire.errors import DefinitionInvalid
from tidewire.events import Value
from tidewire.records.object_rules import DerivedRule
from tidewire.schema.field_types import NUMBER_TYPES, FieldType
from tidewire.schema.formula.check import Formula, check_formula
from tidewire.schema.formula.evaluate import evaluate
from tidewire.schema.formula.parser import parse_formula
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import join_person_name

_FORMULA_TEXT_CHARS = 1300
_DEFAULT_WHOLE_DIGITS = 18
_ROUNDING = Context(prec=80, rounding=ROUND_HALF_UP)


@dataclass(frozen=True, slots=True)
class _Step:
    field: Field
    formula: Formula


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to compute for an object. `formulas` stand after those they refer to; so do `volatile` ones."""

    formulas: tuple[_Step, ...]
    volatile: tuple[_Step, ...]
    counted: tuple[Field, ...]
    name: Field | None


def check_formulas(obj: ObjectType) -> None:
    """Refuse, with DefinitionInvalid, an object with a formula that is wrong or that refers to itself."""
    _plan(obj)


def compute_derived(
    obj: ObjectType,
    row: Mapping[str, Value],
    now_ms: int,
    before: Mapping[str, Value] | None = None,
    rule: DerivedRule | None = None,
) -> dict[str, Value]:
    """Compute the derived fields of a record whose other fields are as in `row`.

    `before` is the row until now, None for a new record; `rule` is the object's own. Roll-ups are not counted
    here: those of a new record start at zero.
    """
    plan = _plan(obj)
    derived: dict[str, Value] = {}
    if plan.name is not None:
        derived[plan.name.name] = join_person_name(row)
    if before is None:
        derived |= {f.name: fit_number(f, 0) for f in plan.counted if row.get(f.name) is None}
    if rule is not None:
        derived |= fit_values(obj, rule(obj, row, before, now_ms))
    if not plan.formulas:
        return derived
    return derived | _run(plan.formulas, {**row, **derived}, now_ms)


def default_name(obj: ObjectType, row: Mapping[str, Value]) -> dict[str, Value]:
    """Return the name of a custom object's record that has none: the first fifteen characters of its id."""
    field = obj.name_field
    if not obj.custom or field is None or field.type is not FieldType.TEXT or row.get(field.name) is not None:
        return {}
    return {field.name: str(row["Id"])[:15]}


def refresh_volatile(obj: ObjectType, row: Mapping[str, Value], now_ms: int) -> dict[str, Value]:
    """What the volatile formulas of a stored record are worth now; empty if the object has none.

    `row` must have the fields named by `volatile_inputs`.
    """
    plan = _plan(obj)
    return _run(plan.volatile, dict(row), now_ms) if plan.volatile else {}


@lru_cache(maxsize=1024)
def volatile_inputs(obj: ObjectType) -> frozenset[str]:
    """Return the fields that volatile formulas read and that are not such formulas themselves."""
    volatile = _plan(obj).volatile
    computed = {step.field.name for step in volatile}
    return frozenset(name for step in volatile for name in step.formula.references) - computed


def fit_number(field: Field, value: float) -> int | float | None:
    """A number rounded half up to the field's scale; None if it has more digits than the field can hold."""
    if not math.isfinite(value):
        return None
    scale = 0 if field.type is FieldType.INTEGER else field.scale
    whole_digits = field.precision - scale if field.precision else _DEFAULT_WHOLE_DIGITS
    # A double's shortest text rounds as people expect; its exact binary value would not at halves.
    number = Decimal(repr(value))
    if abs(number) >= 10**whole_digits:
        return None
    number = number.quantize(Decimal(1).scaleb(-scale), context=_ROUNDING)
    if abs(number) >= 10**whole_digits:
        return None
    return int(number) if field.type is FieldType.INTEGER else float(number) + 0.0  # no negative zero


def fit_value(field: Field, value: Value) -> Value:
    """Return a computed value as the field can hold it: text is cut, numbers are rounded."""
    if isinstance(value, str):
        return value[: field.length or _FORMULA_TEXT_CHARS] or None
    is_number = field.type in NUMBER_TYPES
    return fit_number(field, value) if is_number and value is not None else value


def fit_values(obj: ObjectType, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values of those fields that the object stores, each as its field can hold it."""
    fields = {name: field for name in values if (field := obj.try_field(name)) is not None and field.column}
    return {name: fit_value(field, values[name]) for name, field in fields.items()}


def _run(steps: tuple[_Step, ...], row: dict[str, Value], now_ms: int) -> dict[str, Value]:
    """Compute the steps in order; `row` takes each value, for those that come later."""
    values: dict[str, Value] = {}
    for step in steps:
        value = fit_value(step.field, evaluate(step.formula, row, now_ms))
        row[step.field.name] = values[step.field.name] = value
    return values


@lru_cache(maxsize=1024)
def _plan(obj: ObjectType) -> _Plan:
    checked = {f.name: _Step(f, _check(obj, f)) for f in obj.fields if f.formula}
    graph = {name: step.formula.references & checked.keys() for name, step in checked.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        # The sorter names each field before the one that needs it; people read it the other way round.
        cycle = list(reversed(error.args[1]))
        path = f"{obj.name}.{cycle[0]}"
        raise DefinitionInvalid(
            f"{path}: the formula refers to itself: {' -> '.join(cycle)}", path=path
        ) from error
    volatile: set[str] = set()
    for name in order:
        formula = checked[name].formula
        if formula.is_volatile or formula.references & volatile:
            volatile.add(name)
    name_field = obj.name_field
    is_person = name_field is not None and name_field.type is FieldType.PERSON_NAME and name_field.column
    return _Plan(
        formulas=tuple(checked[name] for name in order),
        volatile=tuple(checked[name] for name in order if name in volatile),
        counted=tuple(f for f in obj.fields if f.roll_up and f.roll_up.function in ("COUNT", "SUM")),
        name=name_field if is_person else None,
    )


def _check(obj: ObjectType, field: Field) -> Formula:
    path = f"{obj.name}.{field.name}"
    try:
        return check_formula(parse_formula(field.formula), obj, field.type)
    except DefinitionInvalid as error:
        raise DefinitionInvalid(f"{path}: {error.message}", **{**error.details, "path": path}) from error
