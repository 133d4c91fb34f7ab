"""Ties a query to the catalog: names become fields, literals become stored values, rules of types are kept.

A field that the caller may not read is answered exactly as one that does not exist, before anything else
about it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidewire.errors import (
    FieldUnknown,
    FilterInvalid,
    NumberOutOfRange,
    ObjectUnknown,
    OperatorInvalid,
    RequestError,
    SoqlSyntaxError,
)
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, FieldType, ObjectType
from tidewire.soql.ast import (
    Aliased,
    And,
    Comparison,
    Condition,
    FieldPath,
    FunctionCall,
    Membership,
    Not,
    NullLiteral,
    Operator,
    Or,
    OrderItem,
    Query,
    SelectItem,
    SemiJoin,
    SetOperator,
    StringLiteral,
    Subject,
    Subquery,
    TypeOf,
)
from tidewire.soql.bound import (
    BoundAnd,
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundLike,
    BoundNot,
    BoundOr,
    BoundOrder,
    BoundQuery,
    nesting_depth,
)
from tidewire.soql.caret import ErrorT, pointing_error
from tidewire.soql.like import parse_pattern
from tidewire.soql.typing_rules import DESCRIBE_TYPES, store_literal

MAX_OFFSET = 2_000
MAX_ALTERNATIONS = (
    20  # SQLite's parser has a stack of 100 entries, and a parenthesis after an operator takes three
)
_ENTITY_HINT = (
    "If you are attempting to use a custom object, be sure to append the '__c' after the entity name. "
    "Please reference your WSDL or the describe call for the appropriate names."
)
_FIELD_HINT = (
    "If you are attempting to use a custom field, be sure to append the '__c' after the custom field name. "
    "Please reference your WSDL or the describe call for the appropriate names."
)
_RELATIONSHIP_HINT = (
    "If you are attempting to use a custom relationship, be sure to append the '__r' after the custom "
    "relationship name. Please reference your WSDL or the describe call for the appropriate names."
)
_EQUALITY = frozenset({Operator.EQ, Operator.NE})

Readable = Callable[[ObjectType, Field], bool]


def bind_query(query: Query, catalog: Catalog, readable: Readable | None = None) -> BoundQuery:
    """The query tied to the catalog.

    `readable` says which fields the caller may see; without it, all. Raises ObjectUnknown, FieldUnknown,
    FilterInvalid, OperatorInvalid, NumberOutOfRange, or SoqlSyntaxError for what is not supported.
    """
    entity = catalog.try_object(query.entity)
    if entity is None:
        raise pointing_error(
            ObjectUnknown,
            query.text,
            query.entity_position,
            f"sObject type '{query.entity}' is not supported. {_ENTITY_HINT}",
            entity=query.entity,
        )
    binder = _Binder(query, entity, readable)
    binder.refuse_unsupported()
    columns = binder.columns()
    where = None if query.where is None else binder.condition(query.where, is_negated=False)
    if where is not None and nesting_depth(where) > MAX_ALTERNATIONS:
        raise binder.error(
            SoqlSyntaxError, query.position, f"AND and OR alternate more than {MAX_ALTERNATIONS} deep"
        )
    return BoundQuery(
        entity,
        columns,
        binder.flat_columns(columns),
        where,
        tuple(binder.order(item) for item in query.order_by),
        query.limit,
        query.offset,
        query.is_count,
    )


@dataclass(frozen=True, slots=True)
class _Binder:
    query: Query
    entity: ObjectType
    readable: Readable | None

    def error(
        self,
        kind: type[ErrorT],
        position: int,
        reason: str,
        *,
        shows_place: bool = True,
        field: str = "",
    ) -> ErrorT:
        details: dict[str, object] = {"field": field} if field else {}
        return pointing_error(
            kind,
            self.query.text,
            position,
            reason,
            shows_place=shows_place,
            entity=self.entity.name,
            **details,
        )

    def refuse_unsupported(self) -> None:
        query = self.query
        if query.group_by is not None:
            raise self.error(SoqlSyntaxError, query.group_by.position, "GROUP BY is not supported")
        if query.is_count and query.order_by:
            raise self.error(
                SoqlSyntaxError, query.order_by[0].position, "COUNT() can not be combined with ORDER BY"
            )
        if query.offset is not None and query.offset > MAX_OFFSET:
            reason = f"Maximum SOQL offset allowed is {MAX_OFFSET}"
            raise self.error(NumberOutOfRange, query.position, reason, shows_place=False)

    # names

    def try_visible(self, name: str) -> Field | None:
        found = self.entity.try_field(name)
        return found if found is not None and self.is_readable(found) else None

    def is_readable(self, field: Field) -> bool:
        return self.readable is None or self.readable(self.entity, field)

    def field(self, subject: Subject) -> Field:
        if isinstance(subject, FunctionCall):
            raise self.error(SoqlSyntaxError, subject.position, f"function '{subject.name}' is not supported")
        names = subject.names
        own_names = {self.entity.name.lower(), self.query.alias.lower()}
        if len(names) > 1 and names[0].lower() in own_names:
            names = names[1:]
        if len(names) > 1:
            raise self.relationship_error(subject, names[0])
        found = self.try_visible(names[0])
        if found is None:
            reason = f"No such column '{names[0]}' on entity '{self.entity.name}'. {_FIELD_HINT}"
            raise self.error(FieldUnknown, subject.position, reason, field=names[0])
        return found

    def relationship_error(self, path: FieldPath, name: str) -> RequestError:
        wanted = name.lower()
        for field in self.entity.fields:
            known = field.relationship_name.lower()
            if known and wanted in (known, known + "__r") and self.is_readable(field):
                return self.error(SoqlSyntaxError, path.position, "relationship paths are not supported")
        reason = f"Didn't understand relationship '{name}' in field path. {_RELATIONSHIP_HINT}"
        return self.error(FieldUnknown, path.position, reason, field=name)

    # SELECT and ORDER BY

    def columns(self) -> tuple[Field, ...]:
        columns: dict[str, Field] = {}
        for item in self.query.select:
            field = self.selected(item)
            if field.name in columns:
                raise self.error(
                    FilterInvalid,
                    item.position,
                    f"duplicate field selected: {field.name}",
                    shows_place=False,
                    field=field.name,
                )
            columns[field.name] = field
        return tuple(columns.values())

    def selected(self, item: SelectItem) -> Field:
        match item:
            case FieldPath() | FunctionCall():
                return self.field(item)
            case Aliased(FieldPath()):
                reason = "only aggregate expressions use field aliasing"
                raise self.error(SoqlSyntaxError, item.position, reason)
            case Aliased(inner):
                return self.field(inner)
            case Subquery():
                raise self.error(SoqlSyntaxError, item.position, "subqueries are not supported")
            case TypeOf():
                raise self.error(SoqlSyntaxError, item.position, "TYPEOF is not supported")

    def flat_columns(self, columns: tuple[Field, ...]) -> tuple[Field, ...]:
        flat: dict[str, Field] = {}
        for column in columns:
            if column.is_compound:
                parts = self.entity.components(column.name)
                flat |= {part.name: part for part in parts if self.is_readable(part)}
            else:
                flat[column.name] = column
        return tuple(flat.values())

    def order(self, item: OrderItem) -> BoundOrder:
        field = self.field(item.subject)
        if not field.is_filterable:
            reason = f"field '{field.name}' can not be sorted in a query call"
            raise self.error(SoqlSyntaxError, item.position, reason, field=field.name)
        return BoundOrder(field, item.is_descending, item.has_nulls_last)

    # WHERE

    def condition(self, condition: Condition, *, is_negated: bool) -> BoundCondition:
        match condition:
            case Not(item):
                return self.condition(item, is_negated=not is_negated)
            case And(items) | Or(items):
                bound = [self.condition(item, is_negated=is_negated) for item in items]
                return _join(bound, is_all=isinstance(condition, And) is not is_negated)
            case Comparison():
                return _negate(self.comparison(condition)) if is_negated else self.comparison(condition)
            case Membership():
                return self.membership(condition, is_negated=is_negated)
            case SemiJoin():
                raise self.error(SoqlSyntaxError, condition.position, "semi-joins are not supported")

    def filter_field(self, subject: Subject) -> Field:
        field = self.field(subject)
        if field.type is FieldType.ADDRESS:
            reason = "Address fields can only be filtered using Distance expressions"
            raise self.error(FilterInvalid, subject.position, reason, field=field.name)
        if not field.is_filterable:
            reason = f"field '{field.name}' can not be filtered in a query call"
            raise self.error(FilterInvalid, subject.position, reason, field=field.name)
        return field

    def operator_error(self, field: Field, position: int) -> OperatorInvalid:
        reason = f"invalid operator on {DESCRIBE_TYPES[field.type]} field"
        return self.error(OperatorInvalid, position, reason, field=field.name)

    def comparison(self, condition: Comparison) -> BoundCompare | BoundLike:
        field = self.filter_field(condition.subject)
        operator = condition.operator
        is_boolean = field.type is FieldType.CHECKBOX
        if (is_boolean and operator not in _EQUALITY) or (operator is Operator.LIKE and not field.is_text):
            raise self.operator_error(field, condition.position)
        if isinstance(condition.value, NullLiteral) and operator not in _EQUALITY:
            reason = "null can only be compared by = and !="
            raise self.error(OperatorInvalid, condition.position, reason, field=field.name)
        if operator is Operator.LIKE and isinstance(condition.value, StringLiteral):
            return BoundLike(field, parse_pattern(condition.value, case_sensitive=field.case_sensitive))
        value = store_literal(self.query.text, condition.position, field, condition.value)
        # Text is never stored empty, so the empty literal is null; only < and > can tell it from null.
        if value == "" and operator in _EQUALITY:
            value = None
        return BoundCompare(field, operator, value)

    def membership(self, condition: Membership, *, is_negated: bool) -> BoundCondition:
        field = self.filter_field(condition.subject)
        is_list = condition.operator in (SetOperator.IN, SetOperator.NOT_IN)
        if not is_list or field.type is FieldType.CHECKBOX:
            raise self.operator_error(field, condition.position)
        values: dict[str | int | float | None, None] = {}
        for literal in condition.values:
            value = store_literal(self.query.text, condition.position, field, literal)
            values[None if value == "" else value] = None
        has_null = None in values
        values.pop(None, None)
        excludes = (condition.operator is SetOperator.NOT_IN) is not is_negated
        return BoundIn(field, tuple(values), has_null, excludes)


def _join(items: list[BoundCondition], *, is_all: bool) -> BoundCondition:
    kind = BoundAnd if is_all else BoundOr
    flat: list[BoundCondition] = []
    for item in items:
        flat.extend(item.items if isinstance(item, kind) else (item,))
    return kind(tuple(flat))


def _negate(item: BoundCompare | BoundLike) -> BoundCondition:
    """Equality and inequality are each other's negation, nulls included; the other operators are not."""
    match item:
        case BoundCompare(field, Operator.EQ, value):
            return BoundCompare(field, Operator.NE, value)
        case BoundCompare(field, Operator.NE, value):
            return BoundCompare(field, Operator.EQ, value)
        case _:
            return BoundNot(item)
