"""Binds a query to the catalog: names become fields, literals become stored values, types are checked.

A field that the caller may not read raises the same error as one that does not exist, before any other check;
so does an object that is not in the given catalog. The parts: names are in
`scope.py`, conditions in `condition_binder.py`, SELECT in `select_binder.py`, groups in
`aggregate_binder.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidewire.errors import NumberOutOfRange, ObjectUnknown, SoqlSyntaxError
from tidewire.schema.catalog import Catalog
from tidewire.soql.aggregate_binder import bind_aggregate, is_aggregate
from tidewire.soql.ast import Operator, OrderItem, Query
from tidewire.soql.bound import (
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundOrder,
    BoundQuery,
    Column,
    DatePart,
    Distance,
    Operand,
    Selected,
    SelectedParent,
    columns_of,
    is_measured,
    iter_operands,
    nesting_depth,
)
from tidewire.soql.caret import pointing_error
from tidewire.soql.condition_binder import bind_condition, conjuncts, join
from tidewire.soql.functions import bind_operand
from tidewire.soql.scope import NOBODY, Caller, Readable, Scope, is_type_of
from tidewire.soql.select_binder import MAX_PARENTS, bind_select
from tidewire.soql.typing_rules import is_sortable

MAX_OFFSET = 2_000
MAX_ALTERNATIONS = (
    20  # SQLite's parser has a stack of 100 entries, and a parenthesis after an operator takes three
)
_ENTITY_HINT = (
    "If you are attempting to use a custom object, be sure to append the '__c' after the entity name. "
    "Please reference your WSDL or the describe call for the appropriate names."
)


def bind_query(
    query: Query,
    catalog: Catalog,
    readable: Readable | None = None,
    *,
    now_ms: int | None = None,
    caller: Caller = NOBODY,
) -> BoundQuery:
    """Bind a query to the catalog.

    `readable` says which fields the caller may see; without it, all. `now_ms` is the moment that relative
    dates count from, in the caller's time zone; without it they are errors. Raises ObjectUnknown, FieldUnknown,
    FilterInvalid, OperatorInvalid, NumberOutOfRange, or SoqlSyntaxError for what is not supported.
    """
    entity = catalog.try_object(query.entity)
    if entity is None:
        raise _object_error(query)
    return _bind(Scope(query, entity, catalog, readable, now_ms, _bind_inner, caller=caller))


def _object_error(query: Query) -> ObjectUnknown:
    return pointing_error(
        ObjectUnknown,
        query.text,
        query.entity_position,
        f"sObject type '{query.entity}' is not supported. {_ENTITY_HINT}",
        entity=query.entity,
    )


def _bind_inner(query: Query, outer: Scope) -> BoundQuery:
    entity = outer.catalog.try_object(query.entity)
    if entity is None:
        raise _object_error(query)
    return _bind(replace(outer, query=query, entity=entity, is_inner=True))


def _bind(scope: Scope) -> BoundQuery:
    query = scope.query
    scope.check_aliases()
    if "UPDATE" in query.purposes and query.order_by:
        raise scope.syntax_error(query.order_by[0].position, "ORDER BY can not be combined with FOR UPDATE")
    if query.is_count and query.order_by:
        raise scope.syntax_error(query.order_by[0].position, "COUNT() can not be combined with ORDER BY")
    if query.is_count and query.group_by is not None:
        raise scope.syntax_error(query.group_by.position, "COUNT() can not be combined with GROUP BY")
    if query.offset is not None and query.offset > MAX_OFFSET:
        reason = f"Maximum SOQL offset allowed is {MAX_OFFSET}"
        raise scope.error(NumberOutOfRange, query.position, reason, shows_place=False)
    is_grouped = is_aggregate(query)
    if is_grouped and scope.is_inner:
        raise scope.syntax_error(query.position, "aggregates are not supported in subqueries")
    aggregate = bind_aggregate(scope) if is_grouped else None
    select = () if aggregate is not None else bind_select(scope, query.select)
    where = None if query.where is None else bind_condition(scope, query.where)
    if query.scope:
        where = _narrowed(scope, where)
    if where is not None and nesting_depth(where) > MAX_ALTERNATIONS:
        raise scope.syntax_error(query.position, f"AND and OR alternate more than {MAX_ALTERNATIONS} deep")
    order = () if aggregate is not None else _bind_order(scope, query.order_by)
    operands: list[Operand] = [*iter_operands(where), *(item.operand for item in order)]
    if aggregate is not None:
        operands += aggregate.operands
        if where is not None and is_measured(where):
            raise scope.syntax_error(query.position, "DISTANCE is not supported in aggregate queries")
    _check_joins(scope, operands, select)
    return BoundQuery(
        scope.entity,
        select,
        where,
        order,
        query.limit,
        query.offset,
        query.is_count,
        aggregate,
        scope.caller.visibility,
    )


def _narrowed(scope: Scope, where: BoundCondition | None) -> BoundCondition | None:
    """Add the condition of USING SCOPE."""
    wanted = scope.query.scope
    if wanted == "everything":
        return where
    owner = scope.entity.try_field("OwnerId")
    if wanted not in ("mine", "mine_and_my_groups") or owner is None or not scope.is_readable(owner):
        reason = f"scope '{wanted}' is not supported for entity '{scope.entity.name}'"
        raise scope.syntax_error(scope.query.scope_position, reason)
    if not scope.caller.user_id:
        raise scope.syntax_error(scope.query.scope_position, f"scope '{wanted}' needs a user")
    own: BoundCondition = BoundCompare(Column(owner), Operator.EQ, scope.caller.user_id)
    if wanted == "mine_and_my_groups":
        own = BoundIn(Column(owner), (scope.caller.user_id, *scope.caller.queue_ids))
    return own if where is None else join([own, *conjuncts(where)], is_all=True)


def _check_joins(scope: Scope, operands: list[Operand], select: tuple[Selected, ...]) -> None:
    """Raise SoqlSyntaxError for too many relationships; each counts once, wherever it stands."""
    paths = {
        tuple(step.lookup.name for step in column.steps[:end])
        for operand in operands
        for column in columns_of(operand)
        for end in range(1, len(column.steps) + 1)
    }
    paths.update(_selected_paths(select))
    if len(paths) > MAX_PARENTS:
        reason = f"more than {MAX_PARENTS} relationships in one query"
        raise scope.syntax_error(scope.query.position, reason)


def _selected_paths(select: tuple[Selected, ...], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for item in select:
        if isinstance(item, SelectedParent):
            path = (*above, item.lookup.name)
            yield path
            for branch in item.branches:
                yield from _selected_paths(branch.select, path)


def _bind_order(scope: Scope, items: tuple[OrderItem, ...]) -> tuple[BoundOrder, ...]:
    bound: list[BoundOrder] = []
    for item in items:
        operand = bind_operand(scope, item.subject)
        field = operand.field
        if isinstance(operand, DatePart):
            raise scope.syntax_error(item.position, "date functions in ORDER BY need GROUP BY")
        if isinstance(operand, Distance):
            if scope.is_inner:
                raise scope.syntax_error(item.position, "DISTANCE is not supported in subqueries")
            if any(column.steps for each in bound for column in columns_of(each.operand)):
                reason = "DISTANCE must come before fields of related records in ORDER BY"
                raise scope.syntax_error(item.position, reason)
        is_type = isinstance(operand, Column) and is_type_of(operand)
        if is_type or not is_sortable(field):
            reason = f"field '{field.name}' can not be sorted in a query call"
            raise scope.error(SoqlSyntaxError, item.position, reason, field=field.name)
        bound.append(BoundOrder(operand, item.is_descending, item.has_nulls_last))
    return tuple(bound)
