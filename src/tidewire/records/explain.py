"""Says by which index, if any, a query would find its records, and how many each way has to look at.

The index is one of ours: the id, lookups, unique and external-id fields, and names have one. Records are
counted, not guessed, but never more than `MAX_COUNTED`: from there on a number means "at least". A way costs
what it reads in relation to the share of the table from which on reading all of it is as quick.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidewire.records.table import is_indexed
from tidewire.schema.field_types import FieldType
from tidewire.soql.ast import Operator
from tidewire.soql.bound import (
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundLike,
    BoundOr,
    BoundQuery,
    BoundSemiJoin,
    Column,
    columns_of,
    is_measured,
    iter_operands,
)
from tidewire.soql.compile_sql import compile_sql
from tidewire.soql.condition_binder import conjuncts
from tidewire.soql.like import try_exact, try_prefix
from tidewire.storage.store import Reader

MAX_COUNTED = 100_000
_WORTHWHILE_SHARE = 0.3  # of a table; above it an index saves nothing


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to find the records of a query.

    `fields` have the index; `unindexed` are the fields of each condition that no index helps with.
    """

    entity: str
    fields: tuple[str, ...]
    is_indexed: bool
    cardinality: int
    entity_cardinality: int
    relative_cost: float
    unindexed: tuple[tuple[str, ...], ...]


def explain_query(reader: Reader, bound: BoundQuery, *, include_deleted: bool = False) -> list[Plan]:
    """Every way to find the query's records, the cheapest first; one of them is to look at all records."""
    # What is out of sight is not counted either: the numbers would tell what its fields hold.
    every = BoundQuery(bound.entity, (), is_count=True, limit=MAX_COUNTED, visibility=bound.visibility)
    total = _count(reader, every, include_deleted=include_deleted)
    parts = conjuncts(bound.where)
    unindexed = tuple(_names(part) for part in parts if not _uses_index(part))
    measured = any(is_measured(part) for part in parts)
    plain = None if measured else bound.where
    found = _count(reader, replace(every, where=plain), include_deleted=include_deleted)
    plans = [Plan(bound.entity.name, (), False, found, total, _cost(total, total), unindexed)]
    for part in parts:
        if _uses_index(part):
            read = _count(reader, replace(every, where=part), include_deleted=include_deleted)
            plans.append(
                Plan(bound.entity.name, _names(part), True, read, total, _cost(read, total), unindexed)
            )
    return sorted(plans, key=lambda plan: (plan.relative_cost, not plan.is_indexed))


def _count(reader: Reader, bound: BoundQuery, *, include_deleted: bool) -> int:
    sql = compile_sql(bound, include_deleted=include_deleted)
    ((count,),) = reader.execute(sql.text, sql.params)
    return int(count)


def _cost(read: int, total: int) -> float:
    return round(read / (total * _WORTHWHILE_SHARE), 3) if total else 0.0


def _names(part: BoundCondition) -> tuple[str, ...]:
    columns: Iterable[Column] = (column for operand in iter_operands(part) for column in columns_of(operand))
    paths = (
        ".".join([*(step.lookup.relationship_name for step in column.steps), column.field.name])
        for column in columns
    )
    return tuple(dict.fromkeys(paths))


def _uses_index(part: BoundCondition) -> bool:
    match part:
        case BoundCompare(operand, operator):
            return _is_own_key(operand) and operator is not Operator.NE
        case BoundIn(operand) | BoundSemiJoin(operand):
            return _is_own_key(operand) and not part.is_negated
        case BoundLike(operand, parts):
            return _is_own_key(operand) and (try_exact(parts) is not None or bool(try_prefix(parts)))
        case BoundOr(items):
            return all(_uses_index(item) for item in items)
        case _:
            return False


def _is_own_key(operand: object) -> bool:
    if not isinstance(operand, Column) or operand.steps or operand.others:
        return False
    return operand.field.type is FieldType.ID or is_indexed(operand.field)
