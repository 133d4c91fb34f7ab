"""The syntax tree of a query, before its names are resolved.

The tree covers more of SOQL than the binder accepts, so that each error can be exact: the parser knows the
grammar, the user of a query decides what of it is allowed. Nodes compare by content; `position`,
the place in the query text, and the text itself do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum


class Operator(Enum):
    """An operator between a field and one value."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    LIKE = "LIKE"


class SetOperator(Enum):
    """An operator between a field and a list of values."""

    IN = "IN"
    NOT_IN = "NOT IN"
    INCLUDES = "INCLUDES"
    EXCLUDES = "EXCLUDES"


@dataclass(frozen=True, slots=True)
class StringLiteral:
    """A quoted text with its escapes resolved.

    `escaped_wildcards` are the places in `value` of each `%` or `_` that was written with a backslash.
    """

    value: str
    escaped_wildcards: tuple[int, ...] = ()
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NumberLiteral:
    """A number as written, without a leading plus."""

    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CurrencyLiteral:
    """An amount with the code of its currency in front, `USD5000.5`."""

    code: str
    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BooleanLiteral:
    """TRUE or FALSE."""

    value: bool
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NullLiteral:
    """NULL."""

    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DateLiteral:
    """A day, `2024-02-29`; always one that exists."""

    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DateTimeLiteral:
    """An instant with its offset, `2024-02-29T12:00:00+02:00`; always one that exists."""

    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TimeLiteral:
    """A time of day, `12:00:00.000Z`; always one that exists."""

    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RelativeDate:
    """A range of days relative to today: `TODAY`, or with a count `LAST_N_DAYS:5`."""

    name: str
    count: int | None = None
    position: int = field(default=0, compare=False)


Literal = (
    StringLiteral
    | NumberLiteral
    | CurrencyLiteral
    | BooleanLiteral
    | NullLiteral
    | DateLiteral
    | DateTimeLiteral
    | TimeLiteral
    | RelativeDate
)


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field as named: `Name`, `Account.Name`, `Owner.Profile.Name`."""

    names: tuple[str, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """`COUNT(Id)`, `CALENDAR_YEAR(convertTimezone(CreatedDate))`, `FIELDS(ALL)`."""

    name: str
    arguments: tuple[Argument, ...]
    position: int = field(default=0, compare=False)


Subject = FieldPath | FunctionCall
Argument = FieldPath | FunctionCall | Literal


@dataclass(frozen=True, slots=True)
class Aliased:
    """A selected field or function that the result calls by another name."""

    item: Subject
    alias: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Subquery:
    """A query in parentheses in the SELECT list: the children of each row."""

    query: Query
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TypeOfBranch:
    """WHEN the related record is an `entity` THEN these fields."""

    entity: str
    fields: tuple[FieldPath, ...]


@dataclass(frozen=True, slots=True)
class TypeOf:
    """TYPEOF: fields that depend on what a polymorphic lookup points at. `otherwise` is empty without ELSE."""

    relationship: FieldPath
    branches: tuple[TypeOfBranch, ...]
    otherwise: tuple[FieldPath, ...] = ()
    position: int = field(default=0, compare=False)


SelectItem = FieldPath | FunctionCall | Aliased | Subquery | TypeOf


@dataclass(frozen=True, slots=True)
class Comparison:
    """`Name = 'x'`."""

    subject: Subject
    operator: Operator
    value: Literal
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Membership:
    """`Name IN ('x', 'y')`."""

    subject: Subject
    operator: SetOperator
    values: tuple[Literal, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """`Id IN (SELECT AccountId FROM Contact)`, or NOT IN."""

    subject: Subject
    operator: SetOperator
    query: Query
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """All of the conditions, of which there are at least two."""

    items: tuple[Condition, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """Any of the conditions, of which there are at least two."""

    items: tuple[Condition, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """Not the condition."""

    item: Condition
    position: int = field(default=0, compare=False)


Condition = Comparison | Membership | SemiJoin | And | Or | Not


class Grouping(Enum):
    """How the groups of GROUP BY are made; the value is the word around the list."""

    PLAIN = ""
    ROLLUP = "ROLLUP"
    CUBE = "CUBE"


@dataclass(frozen=True, slots=True)
class GroupBy:
    """GROUP BY with its fields and functions."""

    items: tuple[Subject, ...]
    grouping: Grouping = Grouping.PLAIN
    having: Condition | None = None
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One key of ORDER BY. Nulls come first, whichever the direction, unless the query says NULLS LAST."""

    subject: Subject
    is_descending: bool = False
    has_nulls_last: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class FromAlias:
    """A further name in FROM for what a relationship leads to: `c.Account a`."""

    path: tuple[str, ...]
    alias: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT. `is_count` is `SELECT COUNT()`, which selects nothing else; `select` is then empty.

    `entity_prefix` is what stands before the dot in the FROM of a child subquery, `Account.Contacts`. `scope` is
    the name after USING SCOPE in its documented spelling, `security` the word after WITH. `purposes` are VIEW,
    REFERENCE and UPDATE, in the order of their FOR clauses; `statistics` are what UPDATE names.
    """

    select: tuple[SelectItem, ...]
    entity: str
    alias: str = ""
    entity_prefix: str = ""
    joined: tuple[FromAlias, ...] = ()
    is_count: bool = False
    scope: str = ""
    where: Condition | None = None
    security: str = ""
    group_by: GroupBy | None = None
    order_by: tuple[OrderItem, ...] = ()
    limit: int | None = None
    offset: int | None = None
    purposes: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    text: str = field(default="", compare=False, repr=False)
    position: int = field(default=0, compare=False)
    entity_position: int = field(default=0, compare=False)
    scope_position: int = field(default=0, compare=False)


def walk_conditions(condition: Condition | None) -> Iterator[Condition]:
    """Yield every condition of the tree, itself first, in the order of the text; does not enter semi-joins."""
    if condition is None:
        return
    yield condition
    if isinstance(condition, And | Or):
        for item in condition.items:
            yield from walk_conditions(item)
    elif isinstance(condition, Not):
        yield from walk_conditions(condition.item)
