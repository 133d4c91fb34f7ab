"""A query whose names are fields of the catalog and whose literals are stored values.

Conditions have two truth values, never three: a comparison with a null field is false, and what negates it
is true. The tree is in negation normal form: BoundNot stands only around an ordering comparison or a LIKE,
whose negation differs from the opposite operator exactly for nulls. BoundAnd never holds a BoundAnd, nor
BoundOr a BoundOr.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.events import Value
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Operator
from tidewire.soql.like import LikePart


@dataclass(frozen=True, slots=True)
class BoundCompare:
    """A field against one value. `value` is None only for EQ and NE, which then ask whether the field is
    null."""

    field: Field
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class BoundIn:
    """A field against several values, none of them null; `has_null` says whether null was listed too."""

    field: Field
    values: tuple[Value, ...]
    has_null: bool = False
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class BoundLike:
    """A text field's key against a pattern, which is already folded as the field's keys are."""

    field: Field
    parts: tuple[LikePart, ...]


@dataclass(frozen=True, slots=True)
class BoundNot:
    """True where the condition is false, nulls included."""

    item: BoundCompare | BoundLike


@dataclass(frozen=True, slots=True)
class BoundAnd:
    """All of at least two conditions."""

    items: tuple[BoundCondition, ...]


@dataclass(frozen=True, slots=True)
class BoundOr:
    """Any of at least two conditions."""

    items: tuple[BoundCondition, ...]


BoundCondition = BoundCompare | BoundIn | BoundLike | BoundNot | BoundAnd | BoundOr


@dataclass(frozen=True, slots=True)
class BoundOrder:
    """One sort key. Nulls come first unless `has_nulls_last`, whichever the direction."""

    field: Field
    is_descending: bool = False
    has_nulls_last: bool = False


@dataclass(frozen=True)
class BoundQuery:
    """What to read. `columns` are the fields as selected, compounds included.

    `flat_columns` are the fields that must be read for them, each once: a compound is replaced by those of
    its components that the caller may read. Both are empty for a count.
    """

    entity: ObjectType
    columns: tuple[Field, ...]
    flat_columns: tuple[Field, ...]
    where: BoundCondition | None = None
    order: tuple[BoundOrder, ...] = ()
    limit: int | None = None
    offset: int | None = None
    is_count: bool = False


def referenced_fields(where: BoundCondition | None) -> frozenset[str]:
    """The names of the fields that a condition looks at."""
    match where:
        case None:
            return frozenset()
        case BoundAnd(items) | BoundOr(items):
            return frozenset().union(*(referenced_fields(item) for item in items))
        case BoundNot(item):
            return frozenset({item.field.name})
        case BoundCompare(field) | BoundIn(field) | BoundLike(field):
            return frozenset({field.name})


def nesting_depth(where: BoundCondition) -> int:
    """How many ANDs and ORs enclose the deepest comparison."""
    if isinstance(where, BoundAnd | BoundOr):
        return 1 + max(nesting_depth(item) for item in where.items)
    return 0
