"""Compiles a condition to a Python function over one record.

The function's source is made of fixed words and numbered names; every field name, literal and pattern is a
constant in its globals, so nothing a user wrote is ever part of the source. A text field is folded at most
once per record.

The function sees one record only: conditions on related records or on other queries raise FilterInvalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from tidewire.errors import FilterInvalid
from tidewire.events import Value
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.text_keys import fold_key
from tidewire.soql.ast import Operator
from tidewire.soql.bound import (
    BoundAnd,
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundIncludes,
    BoundLike,
    BoundNot,
    BoundOr,
    BoundSemiJoin,
    Column,
    DatePart,
    Distance,
    Operand,
)
from tidewire.soql.dates import part_of
from tidewire.soql.distance import distance_between
from tidewire.soql.like import compile_matcher

Predicate = Callable[[Mapping[str, Value]], bool]

_PYTHON_OPERATORS = {
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.GT: ">",
    Operator.GE: ">=",
}


def compile_predicate(where: BoundCondition | None, entity: ObjectType) -> Predicate:
    """Compile a test of a record, given as stored values by field name; a missing name counts as null.

    Agrees with the SQL of `compile_sql` on every record of `entity`. Raises FilterInvalid for a condition
    that needs more than the record's own fields.
    """
    if where is None:
        return lambda record: True
    source, namespace = render_predicate(where)
    code = compile(source, f"<condition on {entity.name}>", "exec")
    exec(code, namespace)  # noqa: S102  the source holds nothing that a user wrote
    return cast("Predicate", namespace["predicate"])


def render_predicate(where: BoundCondition) -> tuple[str, dict[str, object]]:
    """Return the source of the function `predicate`, and the constants that it needs as its globals."""
    writer = _Writer()
    expression = writer.condition(where)
    lines = ["def predicate(record):", *writer.loads, f"    return {expression}"]
    return "\n".join(lines), writer.constants


@dataclass(slots=True)
class _Writer:
    constants: dict[str, object] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    names: dict[Operand, str] = field(default_factory=dict)

    def put(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def load(self, operand: Operand) -> str:
        """Return the local name of an operand's comparable value: a text's key, anything else as stored."""
        known = self.names.get(operand)
        if known is not None:
            return known
        source = self.source(operand)
        local = self.names[operand] = f"v{len(self.names)}"
        self.loads.append(f"    {local} = {source}")
        if isinstance(operand, Column) and operand.field.is_text:
            fold = self.put(partial(fold_key, case_sensitive=operand.field.case_sensitive))
            self.loads.append(f"    if {local} is not None: {local} = {fold}({local})")
        return local

    def source(self, operand: Operand) -> str:
        match operand:
            case Column(column, steps):
                if steps or operand.others:
                    raise FilterInvalid("relationships are not supported here", field=column.name)
                return f"record.get({self.put(column.name)})"
            case DatePart(function, column, _, calendar):
                local = self.load(column)
                part = partial(part_of, function, calendar=calendar)
                return f"None if {local} is None else {self.put(part)}({local})"
            case Distance():
                latitude, longitude = self.load(operand.latitude), self.load(operand.longitude)
                measure = partial(distance_between, point=operand.point, is_in_miles=operand.is_in_miles)
                return f"{self.put(measure)}({latitude}, {longitude})"

    def condition(self, where: BoundCondition) -> str:
        match where:
            case BoundAnd(items):
                return f"({' and '.join(self.condition(item) for item in items)})"
            case BoundOr(items):
                return f"({' or '.join(self.condition(item) for item in items)})"
            case BoundNot(item):
                return f"(not {self.condition(item)})"
            case BoundCompare():
                return self.compare(where)
            case BoundIn():
                return self.membership(where)
            case BoundIncludes():
                return self.includes(where)
            case BoundSemiJoin(operand):
                raise FilterInvalid("semi-joins are not supported here", field=operand.field.name)
            case BoundLike(column, parts):
                local = self.load(column)
                return f"({local} is not None and {self.put(compile_matcher(parts))}({local}))"

    def compare(self, item: BoundCompare) -> str:
        local = self.load(item.operand)
        is_equal = item.operator is Operator.EQ
        if item.operand.field.type is FieldType.CHECKBOX and item.value is None:
            return "False" if is_equal else "True"
        if item.operand.field.type is FieldType.CHECKBOX:
            return f"({local} {'==' if bool(item.value) is is_equal else '!='} 1)"
        if item.value is None:
            return f"({local} is {'' if is_equal else 'not '}None)"
        constant = self.put(_key(item.operand.field, item.value))
        operator = _PYTHON_OPERATORS.get(item.operator)
        if operator is None:
            return f"({local} {'==' if is_equal else '!='} {constant})"
        return f"({local} is not None and {local} {operator} {constant})"

    def membership(self, item: BoundIn) -> str:
        local = self.load(item.operand)
        members: set[Value] = {_key(item.operand.field, value) for value in item.values}
        if item.has_null:
            members.add(None)
        word = "not in" if item.is_negated else "in"
        return f"({local} {word} {self.put(frozenset(members))})"

    def includes(self, item: BoundIncludes) -> str:
        local = self.load(item.operand)
        choices = tuple(frozenset(choice) for choice in item.choices)
        word = "not " if item.is_negated else ""
        return f"({word}{self.put(partial(_has_any, choices))}({local}))"


def _has_any(choices: tuple[frozenset[str], ...], text: str | None) -> bool:
    chosen = frozenset() if text is None else frozenset(text.split(";"))
    return any(choice <= chosen for choice in choices)


def _key(column: Field, value: Value) -> Value:
    if column.is_text and isinstance(value, str):
        return fold_key(value, case_sensitive=column.case_sensitive)
    return value
