"""A query whose names are fields of the catalog and whose literals are stored values.

Conditions have two truth values, never three: a comparison with a null field is false, and what negates it
is true. The tree is in negation normal form: BoundNot stands only around an ordering comparison or a LIKE,
whose negation differs from the opposite operator exactly for nulls. BoundAnd never holds a BoundAnd, nor
BoundOr a BoundOr.

A field of a related record is reached by steps, one lookup each. Where a lookup is null or names nothing, so
is every field beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidewire.events import Value
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Grouping, Operator
from tidewire.soql.dates import UTC_CALENDAR, Calendar
from tidewire.soql.like import LikePart
from tidewire.soql.zones import UTC, Zone


@dataclass(frozen=True, slots=True)
class Step:
    """One lookup followed to the record of `target` that it names."""

    lookup: Field
    target: ObjectType


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the queried record, or of the one at the end of the steps.

    Behind a lookup to several types, `others` are the same field of the further types; at most one of them
    all has a value.
    """

    field: Field
    steps: tuple[Step, ...] = ()
    others: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class DatePart:
    """A date function of a column; `field` describes its result.

    With `is_converted` the query converts the time to the caller's zone, which is then the calendar's.
    """

    function: str
    column: Column
    field: Field
    calendar: Calendar = UTC_CALENDAR
    is_converted: bool = False


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of a place from a point in degrees; null where the place is. `field` describes its result."""

    latitude: Column
    longitude: Column
    point: tuple[float, float]
    is_in_miles: bool
    field: Field


Operand = Column | DatePart | Distance


@dataclass(frozen=True, slots=True)
class BoundCompare:
    """An operand against one value. `value` is None only for EQ and NE, which then ask whether it is null."""

    operand: Operand
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class BoundIn:
    """An operand against several values, none of them null; `has_null` says whether null was listed too."""

    operand: Operand
    values: tuple[Value, ...]
    has_null: bool = False
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class BoundLike:
    """A column's key, or its id, against a pattern, which is already folded as the field's keys are."""

    operand: Column
    parts: tuple[LikePart, ...]


@dataclass(frozen=True, slots=True)
class BoundIncludes:
    """Whether a multi-select picklist has all the values of any of the choices."""

    operand: Column
    choices: tuple[tuple[str, ...], ...]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class BoundSemiJoin:
    """Whether an id is among those that another query finds in `selected`, a column of its own."""

    operand: Column
    query: BoundQuery
    selected: Column
    is_negated: bool = False


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


BoundCondition = (
    BoundCompare | BoundIn | BoundLike | BoundIncludes | BoundSemiJoin | BoundNot | BoundAnd | BoundOr
)


@dataclass(frozen=True, slots=True)
class DerivedRows:
    """Rows that an object has without storing them: one for each record of `source` that meets `where`.

    `values` maps field names to a column of the record, or to a value that all rows have. With `apart`, the two
    columns must differ. A row's id is `id_start`, eight characters, then the rest of the record's id with `id_mark`
    as its sixteenth character. Rows with equal values of `merged_by` are one row, with the least of each other value.
    """

    source: ObjectType
    where: BoundCondition | None
    values: Mapping[str, Column | Value]
    id_start: str
    id_mark: str
    apart: tuple[Column, Column] | None = None
    merged_by: tuple[str, ...] = ()


class Visibility(Protocol):
    """Which records of an object the caller may see."""

    @property
    def user_id(self) -> str:
        """The caller."""

    def __call__(self, obj: ObjectType, /) -> BoundCondition | None:
        """Return the condition that visible records meet; None if all are visible."""

    def derived(self, obj: ObjectType, /) -> tuple[DerivedRows, ...]:
        """Return rows that exist besides the stored ones; the condition applies to them too."""


@dataclass(frozen=True, slots=True)
class BoundOrder:
    """One sort key. Nulls come first unless `has_nulls_last`, whichever the direction."""

    operand: Operand
    is_descending: bool = False
    has_nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class SelectedField:
    """A field of the record under the name that the answer gives it.

    `parts` are the fields that must be read for it: itself, or of a compound the components that the caller
    may read. `function` is empty, `TOLABEL` or `FORMAT`, which shows times in `zone`.
    """

    name: str
    field: Field
    parts: tuple[Field, ...]
    function: str = ""
    zone: Zone = UTC


@dataclass(frozen=True, slots=True)
class SelectedDistance:
    """A distance under the name that the answer gives it."""

    name: str
    distance: Distance


@dataclass(frozen=True, slots=True)
class SelectedType:
    """The name of the record's type, as `Type` of a lookup to several types."""

    name: str


@dataclass(frozen=True, slots=True)
class Branch:
    """What to read of a related record if it is an `entity` and visible."""

    entity: ObjectType
    select: tuple[Selected, ...]
    visibility: Visibility | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SelectedParent:
    """The record that a lookup names. One of a type without a branch counts as null."""

    name: str
    lookup: Field
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class SelectedChildren:
    """The records of `query` whose `lookup` names this record."""

    name: str
    lookup: Field
    query: BoundQuery


Selected = SelectedField | SelectedDistance | SelectedType | SelectedParent | SelectedChildren


@dataclass(frozen=True, slots=True)
class Group:
    """What records are grouped by: `Name`, `Account.Name`, `CALENDAR_YEAR(CreatedDate)`."""

    name: str
    operand: Column | DatePart

    @property
    def rolled_name(self) -> str:
        """The name of the column that GROUPING gives: 1 where the value was rolled up."""
        return f"GROUPING({self.name})"


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate function over a group. `function` is COUNT, COUNT_DISTINCT, SUM, AVG, MIN or MAX."""

    name: str
    function: str
    operand: Column


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """Rows per group instead of per record.

    HAVING, ORDER BY and `select`, which pairs names in the answer with what they show, use the names of groups
    and measures as if they were fields.
    """

    groups: tuple[Group, ...]
    measures: tuple[Measure, ...]
    grouping: Grouping
    select: tuple[tuple[str, Field], ...]
    having: BoundCondition | None
    order: tuple[BoundOrder, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What must be read of each record: for the groups, then for the measures."""
        groups = tuple(group.operand for group in self.groups)
        return (*groups, *(measure.operand for measure in self.measures))


@dataclass(frozen=True)
class BoundQuery:
    """What to read. `select` is empty for a count and for an aggregate.

    Records that `visibility` hides, related ones included, count as absent; without it all are visible.
    """

    entity: ObjectType
    select: tuple[Selected, ...]
    where: BoundCondition | None = None
    order: tuple[BoundOrder, ...] = ()
    limit: int | None = None
    offset: int | None = None
    is_count: bool = False
    aggregate: BoundAggregate | None = None
    visibility: Visibility | None = field(default=None, compare=False, repr=False)

    @property
    def columns(self) -> tuple[Field, ...]:
        """The record's own fields as selected, compounds included."""
        return tuple(item.field for item in self.select if isinstance(item, SelectedField))

    @property
    def flat_columns(self) -> tuple[Field, ...]:
        """The record's own fields that must be read, each once, compounds replaced by their components."""
        return flat_columns(self.select)


def flat_columns(select: tuple[Selected, ...]) -> tuple[Field, ...]:
    """Return the fields of one record that must be read for a selection, each once."""
    flat: dict[str, Field] = {}
    for item in select:
        match item:
            case SelectedField():
                flat |= {part.name: part for part in item.parts}
            case SelectedDistance(_, distance):
                both = (distance.latitude.field, distance.longitude.field)
                flat |= {part.name: part for part in both}
            case SelectedParent():
                flat[item.lookup.name] = item.lookup
            case SelectedType() | SelectedChildren():
                pass
    return tuple(flat.values())


def iter_conditions(where: BoundCondition | None) -> Iterator[BoundCondition]:
    """Yield every condition of the tree, itself first; does not enter semi-joins."""
    if where is None:
        return
    yield where
    if isinstance(where, BoundAnd | BoundOr):
        for item in where.items:
            yield from iter_conditions(item)
    elif isinstance(where, BoundNot):
        yield from iter_conditions(where.item)


def iter_operands(where: BoundCondition | None) -> Iterator[Operand]:
    """Everything that a condition looks at; does not enter semi-joins."""
    for condition in iter_conditions(where):
        match condition:
            case BoundCompare() | BoundIn() | BoundLike() | BoundIncludes() | BoundSemiJoin():
                yield condition.operand
            case BoundNot() | BoundAnd() | BoundOr():
                pass


def columns_of(operand: Operand) -> tuple[Column, ...]:
    """Return the columns that an operand is computed from."""
    match operand:
        case Column():
            return (operand, *operand.others)
        case DatePart():
            return columns_of(operand.column)
        case Distance():
            return (operand.latitude, operand.longitude)


def referenced_fields(where: BoundCondition | None) -> frozenset[str]:
    """Return the names of the record's own fields that a condition looks at."""
    columns = [column for operand in iter_operands(where) for column in columns_of(operand)]
    return frozenset(column.steps[0].lookup.name if column.steps else column.field.name for column in columns)


def is_measured(where: BoundCondition) -> bool:
    """Return whether a condition compares a distance, which is never computed in SQL."""
    return any(isinstance(operand, Distance) for operand in iter_operands(where))


def nesting_depth(where: BoundCondition) -> int:
    """How many ANDs, ORs and semi-joins enclose the deepest comparison."""
    if isinstance(where, BoundAnd | BoundOr):
        return 1 + max(nesting_depth(item) for item in where.items)
    if isinstance(where, BoundSemiJoin):
        return 2 + (0 if where.query.where is None else nesting_depth(where.query.where))
    return 0
