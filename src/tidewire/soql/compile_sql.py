"""Writes a bound query as SQL that SQLite and PostgreSQL read alike.

SQL has three truth values, our conditions two. Because the tree is in negation normal form, only two shapes
are needed: a plain comparison, whose NULL counts as false wherever no NOT is above it, and for what is true
of nulls `(x IS NULL OR ...)`. No NOT is ever written around a comparison.

The text of the SQL is made of words, column and table names from the catalog, and placeholders; whatever a
user wrote is a parameter. Text is compared by its folded key, never by its value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidewire.errors import FilterInvalid, InternalError
from tidewire.events import Value
from tidewire.schema.folding import fold_key
from tidewire.schema.model import Field, FieldType
from tidewire.soql.ast import Operator
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
from tidewire.soql.like import render_sql_pattern, successor, try_exact, try_prefix

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_NO_LIMIT = 2**63 - 1  # SQLite has no OFFSET without LIMIT
# SQLite refuses expressions more than 1,000 deep, and a chain of n terms is n deep.
_CHAIN = 64
_ALWAYS, _NEVER = "1 = 1", "1 = 0"


@dataclass(frozen=True, slots=True)
class CompiledSql:
    """A statement with `?` placeholders. `columns` are the fields of the result, none for a count."""

    text: str
    params: tuple[Value, ...]
    columns: tuple[Field, ...]


def compile_sql(bound: BoundQuery, *, include_deleted: bool = False) -> CompiledSql:
    """The statement for a query: one row per record in a fixed order, or one number for a count."""
    writer = _Writer([])
    table = _identifier(bound.entity.table)
    filters = []
    deleted = bound.entity.try_field("IsDeleted")
    if not include_deleted and deleted is not None and deleted.column:
        filters.append(f"{column_of(deleted)} = 0")
    if bound.where is not None:
        filters.append(writer.condition(bound.where))
    rows = ["FROM", table]
    if filters:
        rows += ["WHERE", " AND ".join(filters)]
    if bound.is_count:
        # A limit bounds what is counted, so it belongs inside.
        if page := writer.page(bound):
            rows = ["FROM (SELECT 1", *rows, *page, ") AS counted"]
        words = ["SELECT COUNT(*)", *rows]
    else:
        listed = ", ".join(column_of(field) if field.column else "NULL" for field in bound.flat_columns)
        words = ["SELECT", listed or "NULL", *rows, "ORDER BY", _order_by(bound.order), *writer.page(bound)]
    return CompiledSql(" ".join(words), tuple(writer.params), bound.flat_columns)


def column_of(field: Field) -> str:
    """The column that holds a field's value."""
    if field.type is FieldType.ID:
        return "id"
    if not field.column:
        reason = f"field '{field.name}' can not be filtered in a query call"
        raise FilterInvalid(reason, field=field.name)
    return _identifier(field.column)


def compared_column(field: Field) -> str:
    """The column that WHERE and ORDER BY look at: the folded key of a text, the value of anything else."""
    column = column_of(field)
    return _identifier(field.key_column) if field.is_text else column


def _identifier(name: str) -> str:
    if _IDENTIFIER.fullmatch(name) is None:
        raise InternalError("a physical name in the catalog is not an identifier")
    return name


def _order_by(order: tuple[BoundOrder, ...]) -> str:
    keys: list[str] = []
    for item in order:
        direction = " DESC" if item.is_descending else ""
        column = compared_column(item.field)
        if item.field.type is FieldType.CHECKBOX:
            keys.append(f"COALESCE({column}, 0){direction}")
            continue
        if item.field.type is not FieldType.ID:
            # The engines disagree on where nulls go, so a key of its own says it.
            keys.append(f"({column} IS {'' if item.has_nulls_last else 'NOT '}NULL)")
        keys.append(column + direction)
    if not any(item.field.type is FieldType.ID for item in order):
        keys.append("id")
    return ", ".join(keys)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes text from left to right and collects the parameters in the same order."""

    params: list[Value]

    def put(self, value: Value) -> str:
        self.params.append(int(value) if isinstance(value, bool) else value)
        return "?"

    def page(self, bound: BoundQuery) -> list[str]:
        if bound.limit is None and bound.offset is None:
            return []
        words = ["LIMIT", self.put(_NO_LIMIT if bound.limit is None else bound.limit)]
        return words if bound.offset is None else [*words, "OFFSET", self.put(bound.offset)]

    def condition(self, where: BoundCondition) -> str:
        match where:
            case BoundAnd(items):
                return self.chain(items, " AND ")
            case BoundOr(items):
                return self.chain(items, " OR ")
            case BoundNot(item):
                return self.unlike(item) if isinstance(item, BoundLike) else self.unordered(item)
            case BoundCompare():
                return self.compare(where)
            case BoundIn():
                return self.membership(where)
            case BoundLike():
                return self.like(where)

    def chain(self, items: tuple[BoundCondition, ...], word: str) -> str:
        # The deepest operand last and outside of any group: there it adds only one level to the expression,
        # and the least to the parser's stack.
        *terms, last = (self.condition(item) for item in sorted(items, key=nesting_depth))
        while len(terms) > _CHAIN:
            groups = [terms[start : start + _CHAIN] for start in range(0, len(terms), _CHAIN)]
            terms = [f"({word.join(group)})" for group in groups]
        return f"({word.join([*terms, last])})"

    def compare(self, item: BoundCompare) -> str:
        column = compared_column(item.field)
        is_equal = item.operator is Operator.EQ
        if item.field.type is FieldType.CHECKBOX:
            return _checkbox_test(column, item.value, is_equal=is_equal)
        if item.value is None:
            return f"{column} IS NULL" if is_equal else f"{column} IS NOT NULL"
        if item.operator is Operator.NE:
            return f"({column} IS NULL OR {column} <> {self.put(_key(item.field, item.value))})"
        return self.ordering(item, item.operator)

    def ordering(self, item: BoundCompare, operator: Operator) -> str:
        return f"{compared_column(item.field)} {operator.value} {self.put(_key(item.field, item.value))}"

    def unordered(self, item: BoundCompare) -> str:
        column = compared_column(item.field)
        return f"({column} IS NULL OR {self.ordering(item, _OPPOSITES[item.operator])})"

    def membership(self, item: BoundIn) -> str:
        column = compared_column(item.field)
        values = dict.fromkeys(_key(item.field, value) for value in item.values)
        nullness = f"{column} IS {'' if item.has_null is not item.is_negated else 'NOT '}NULL"
        if not values:
            return nullness
        listed = ", ".join(self.put(value) for value in values)
        if item.is_negated:
            return f"({nullness} {'AND' if item.has_null else 'OR'} {column} NOT IN ({listed}))"
        return f"({nullness} OR {column} IN ({listed}))" if item.has_null else f"{column} IN ({listed})"

    def like(self, item: BoundLike) -> str:
        column = compared_column(item.field)
        exact, prefix = try_exact(item.parts), try_prefix(item.parts)
        if exact is not None:
            return f"{column} = {self.put(exact)}"
        if prefix is None:
            return f"{column} LIKE {self.put(render_sql_pattern(item.parts))} ESCAPE '\\'"
        if not prefix:
            return f"{column} IS NOT NULL"
        # A range can use the index on the key column; LIKE cannot.
        text = f"{column} >= {self.put(prefix)}"
        end = successor(prefix)
        return text if end is None else f"({text} AND {column} < {self.put(end)})"

    def unlike(self, item: BoundLike) -> str:
        column = compared_column(item.field)
        return (
            f"({column} IS NULL OR {column} NOT LIKE {self.put(render_sql_pattern(item.parts))} ESCAPE '\\')"
        )


_OPPOSITES = {
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.GT: Operator.LE,
    Operator.GE: Operator.LT,
}


def _checkbox_test(column: str, value: Value, *, is_equal: bool) -> str:
    """A checkbox is never null: a missing one is false."""
    if value is None:
        return _NEVER if is_equal else _ALWAYS
    return f"{column} = 1" if bool(value) is is_equal else f"({column} IS NULL OR {column} = 0)"


def _key(field: Field, value: Value) -> Value:
    if field.is_text and isinstance(value, str):
        return fold_key(value, case_sensitive=field.case_sensitive)
    return value
