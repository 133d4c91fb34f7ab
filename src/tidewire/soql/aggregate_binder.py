"""Binds queries with aggregate functions or GROUP BY: groups, measures, and what HAVING and ORDER BY see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidewire.schema.field_types import NUMBER_TYPES, FieldType
from tidewire.schema.model import Field
from tidewire.soql.ast import (
    Aliased,
    FieldPath,
    FunctionCall,
    Grouping,
    Query,
    Subject,
    Subquery,
    TypeOf,
)
from tidewire.soql.bound import (
    BoundAggregate,
    BoundOrder,
    BoundSemiJoin,
    Column,
    DatePart,
    Distance,
    Group,
    Measure,
    Operand,
    iter_conditions,
)
from tidewire.soql.condition_binder import bind_condition
from tidewire.soql.functions import (
    AGGREGATES,
    bind_operand,
    converted_name,
    function_name,
    only_argument,
    result_field,
)
from tidewire.soql.scope import Scope, is_type_of, relationship_of
from tidewire.soql.typing_rules import is_groupable, is_sortable

MAX_ROLLED = 3


def is_aggregate(query: Query) -> bool:
    """Return whether a query returns groups instead of records."""
    items = [item.item if isinstance(item, Aliased) else item for item in query.select]
    return query.group_by is not None or any(function_name(item) in AGGREGATES for item in items)


def bind_aggregate(scope: Scope) -> BoundAggregate:
    """Bind the groups of a query and its measures."""
    binder = _Binder(scope)
    query = scope.query
    binder.check_clauses()
    if query.group_by is not None:
        for item in query.group_by.items:
            binder.add_group(item)
    select = binder.select()
    having = None
    if query.group_by is not None and query.group_by.having is not None:
        having = bind_condition(scope, query.group_by.having, binder.subject)
        if any(isinstance(each, BoundSemiJoin) for each in iter_conditions(having)):
            raise scope.syntax_error(query.group_by.position, "semi-joins are not supported in HAVING")
    order = [
        BoundOrder(binder.subject(scope, key.subject), key.is_descending, key.has_nulls_last)
        for key in query.order_by
    ]
    return BoundAggregate(
        tuple(binder.groups),
        tuple(binder.measures),
        query.group_by.grouping if query.group_by is not None else Grouping.PLAIN,
        select,
        having,
        tuple(order),
    )


@dataclass(slots=True)
class _Binder:
    scope: Scope
    groups: list[Group] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)

    def check_clauses(self) -> None:
        query = self.scope.query
        if query.group_by is None:
            for is_there, clause in ((query.order_by, "ORDER BY"), (query.limit is not None, "LIMIT")):
                if is_there:
                    reason = (
                        f"Non-grouped query that uses overall aggregate functions cannot also use {clause}"
                    )
                    raise self.scope.syntax_error(query.position, reason)
        elif query.group_by.grouping is not Grouping.PLAIN and len(query.group_by.items) > MAX_ROLLED:
            reason = f"{query.group_by.grouping.value} takes at most {MAX_ROLLED} fields"
            raise self.scope.syntax_error(query.group_by.position, reason)

    # GROUP BY

    def add_group(self, subject: Subject) -> None:
        operand = bind_operand(self.scope, subject)
        name = operand.field.name
        if isinstance(operand, Distance) or (isinstance(operand, Column) and is_type_of(operand)):
            raise self.scope.syntax_error(subject.position, f"'{name}' can not be grouped in a query call")
        if not is_groupable(operand.field):
            reason = f"field '{name}' can not be grouped in a query call"
            raise self.scope.syntax_error(subject.position, reason)
        if any(group.operand == operand for group in self.groups):
            raise self.scope.syntax_error(subject.position, f"duplicate grouped field: {name}")
        self.groups.append(Group(_shown(operand), operand))

    # SELECT

    def select(self) -> tuple[tuple[str, Field], ...]:
        selected: dict[str, tuple[str, Field]] = {}
        expressions = 0
        for item in self.scope.query.select:
            if isinstance(item, Subquery | TypeOf):
                reason = "subqueries and TYPEOF are not supported in aggregate queries"
                raise self.scope.syntax_error(item.position, reason)
            subject, name = (item.item, item.alias) if isinstance(item, Aliased) else (item, "")
            found = self.subject(self.scope, subject).field
            if not name and isinstance(subject, FieldPath):
                name = self.scope.column(subject).field.name
            elif not name:
                name, expressions = f"expr{expressions}", expressions + 1
            if name.lower() in selected:
                raise self.scope.syntax_error(item.position, f"duplicate alias: {name}")
            selected[name.lower()] = (name, found)
        return tuple(selected.values())

    def subject(self, scope: Scope, subject: Subject) -> Operand:
        """Return a measure, a grouped field or GROUPING, as a field of the answer's rows."""
        name = function_name(subject)
        if isinstance(subject, FunctionCall) and name in AGGREGATES:
            return self.measure(subject, name)
        if isinstance(subject, FunctionCall) and name == "GROUPING":
            group = self.group(self.grouped(subject))
            return Column(result_field(group.rolled_name, FieldType.INTEGER))
        group = self.group(subject)
        return Column(replace(group.operand.field, name=group.name))

    def grouped(self, call: FunctionCall) -> Subject:
        argument = call.arguments[0]
        if isinstance(argument, FunctionCall) and len(call.arguments) == 1:
            return argument
        return only_argument(self.scope, call)

    def group(self, subject: Subject) -> Group:
        operand = bind_operand(self.scope, subject)
        for group in self.groups:
            if group.operand == operand:
                return group
        shown = _shown(operand)
        raise self.scope.syntax_error(subject.position, f"Field must be grouped or aggregated: {shown}")

    def measure(self, call: FunctionCall, name: str) -> Column:
        path = only_argument(self.scope, call)
        column = self.scope.column(path)
        kind = column.field.type
        is_fit = kind in NUMBER_TYPES if name in ("SUM", "AVG") else column.field.is_filterable
        if name in ("MIN", "MAX"):
            is_fit = is_sortable(column.field) and kind is not FieldType.CHECKBOX
        if not is_fit or is_type_of(column):
            reason = f"field {column.field.name} does not support aggregate operator {name}"
            raise self.scope.syntax_error(call.position, reason)
        slot = f"{name}({_shown(column)})"
        measure = Measure(slot, name, column)
        if measure not in self.measures:
            self.measures.append(measure)
        if name in ("COUNT", "COUNT_DISTINCT"):
            return Column(result_field(slot, FieldType.INTEGER))
        if name == "AVG":
            return Column(result_field(slot, FieldType.NUMBER))
        return Column(replace(column.field, name=slot))


def _shown(operand: Operand) -> str:
    match operand:
        case Column(field, steps):
            return ".".join([*(relationship_of(step.lookup) for step in steps), field.name])
        case DatePart(function, column):
            return f"{function}({converted_name(_shown(column), operand.is_converted)})"
        case Distance():
            return operand.field.name
