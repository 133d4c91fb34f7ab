"""Writes the text of one SELECT: tables and joins, selected columns, sort keys and conditions.

SQL has three truth values, SOQL two. Because the bound tree is in negation normal form, two shapes suffice: a
plain comparison, whose NULL counts as false because no NOT is above it, and `(x IS NULL OR ...)` for what is
true of nulls. No NOT is ever written around a comparison.

Parameters are `?` and bound by position, so the order in which text is written is the order of the parameters.
Only joins are written late: their text stands before WHERE, but is known after it. Their parameters are kept
apart (`Tables.join_params`) and put in their place at the end.

Fields of related records are read through outer joins, one for each different path, whose ON leaves out records
that the caller may not see. A query without paths has neither joins nor aliases. Distances are never written as
SQL: `tidewire.records.query` removes them first and computes them for the rows found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidewire.errors import InternalError
from tidewire.events import Value
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.activities import ARCHIVED_FIELDS
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
    BoundOrder,
    BoundSemiJoin,
    Column,
    DatePart,
    DerivedRows,
    Distance,
    Measure,
    Operand,
    Step,
    Visibility,
    columns_of,
    iter_operands,
    nesting_depth,
)
from tidewire.soql.dates import render_part
from tidewire.soql.like import Wildcard, render_sql_pattern, successor, try_exact, try_prefix
from tidewire.soql.physical_names import column_of, compared_column, identifier
from tidewire.soql.recent_item_dates import NO_DATE, RECENT_ITEM_DATES, is_recent_item_date, join_recent_items

_NO_LIMIT = 2**63 - 1  # SQLite has no OFFSET without LIMIT
# SQLite refuses expressions more than 1,000 deep, and a chain of n terms is n deep.
_CHAIN = 64
_ALWAYS, _NEVER = "1 = 1", "1 = 0"


@dataclass(slots=True)
class Tables:
    """The tables of one SELECT: its object's own, and one for each path that was asked for."""

    entity: ObjectType
    is_joined: bool
    include_deleted: bool
    level: int = 0  # of nesting: a semi-join's SELECT must not use the aliases of the one around it
    aliases: dict[tuple[Step, ...], str] = field(default_factory=dict)
    uses: dict[tuple[Step, ...], str] = field(default_factory=dict)
    joins: list[str] = field(default_factory=list)
    join_params: list[Value] = field(default_factory=list)
    visibility: Visibility | None = None
    source: str = ""  # what FROM names: the object's table, or a subquery that adds derived rows to it

    def __post_init__(self) -> None:
        derived = () if self.visibility is None else self.visibility.derived(self.entity)
        if derived:
            # FROM stands before every JOIN, and nothing was joined yet: these parameters come first.
            self.source = _with_derived(self.entity, derived, self.join_params, self.level)
        else:
            self.source = identifier(self.entity.table)

    def alias(self, steps: tuple[Step, ...]) -> str:
        """Return the alias of the table at the end of a path, joining it on first use."""
        known = self.aliases.get(steps)
        if known is not None:
            return known
        # Asking for the lookup's column joins the tables on the way, which must stand before this one.
        lookup = self.column(column_of(steps[-1].lookup), steps[:-1]) if steps else ""
        alias = f"t{self.level}_{len(self.aliases)}"
        if steps:
            target = identifier(steps[-1].target.table)
            deleted = self.try_deleted(steps[-1].target)
            # In ON, not in WHERE: a deleted or hidden parent makes its fields null, it does not drop the row.
            alive = f" AND {alias}.{deleted} = 0" if deleted else ""
            seen = self.try_seen(steps[-1].target, alias)
            self.joins.append(f"LEFT JOIN {target} AS {alias} ON {alias}.id = {lookup}{alive}{seen}")
        self.aliases[steps] = alias
        return alias

    def use_date(self, column: Column) -> str:
        """Return the column with the time at which the caller last used the record."""
        if self.visibility is None:
            return NO_DATE
        if column.steps not in self.uses:
            record = self.column("id", column.steps)
            alias = self.uses[column.steps] = f"u{self.level}_{len(self.uses)}"
            self.joins.append(join_recent_items(alias, record))
            self.join_params.append(self.visibility.user_id)
        return f"{self.uses[column.steps]}.{RECENT_ITEM_DATES[column.field.name]}"

    def try_seen(self, entity: ObjectType, alias: str) -> str:
        """Return the condition that keeps an invisible record out of a join, or nothing."""
        rule = None if self.visibility is None else self.visibility(entity)
        if rule is None:
            return ""
        # The rule is written for the joined table as if that were the query's own, under the alias it has here.
        own = Tables(entity, True, self.include_deleted, self.level, {(): alias})
        return f" AND {Writer(self.join_params, own).condition(rule)}"

    def try_deleted(self, entity: ObjectType) -> str | None:
        """Return the column that marks deleted records, or None if deleted records count or cannot exist."""
        deleted = entity.try_field("IsDeleted")
        is_stored = deleted is not None and bool(deleted.column)
        return column_of(deleted) if deleted is not None and is_stored and not self.include_deleted else None

    def column(self, name: str, steps: tuple[Step, ...] = ()) -> str:
        return f"{self.alias(steps)}.{name}" if self.is_joined else name

    def words(self) -> list[str]:
        if self.is_joined:
            return ["FROM", self.source, "AS", self.alias(()), *self.joins]
        is_stored = self.source == self.entity.table
        return ["FROM", self.source] if is_stored else ["FROM", self.source, "AS found_rows"]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes text from left to right and collects parameters in the same order."""

    params: list[Value]
    tables: Tables

    def put(self, value: Value) -> str:
        # Checkboxes are stored as 0 and 1; PostgreSQL does not compare an integer with a boolean.
        self.params.append(int(value) if isinstance(value, bool) else value)
        return "?"

    def all_params(self, before_joins: int = 0) -> tuple[Value, ...]:
        """Return the parameters in the order of the text; those of joins follow the first `before_joins`."""
        return (*self.params[:before_joins], *self.tables.join_params, *self.params[before_joins:])

    def page(self, limit: int | None, offset: int | None) -> list[str]:
        if limit is None and offset is None:
            return []
        words = ["LIMIT", self.put(_NO_LIMIT if limit is None else limit)]
        return words if offset is None else [*words, "OFFSET", self.put(offset)]

    def filters(self, where: BoundCondition | None) -> list[str]:
        """Return what every row must meet: alive, not archived, visible to the caller, and the query's WHERE."""
        filters = []
        deleted = self.tables.try_deleted(self.tables.entity)
        if deleted:
            filters.append(f"{self.tables.column(deleted)} = 0")
        archived = self.tables.entity.try_field(ARCHIVED_FIELDS.get(self.tables.entity.name, ""))
        if archived is not None and not self.tables.include_deleted:
            filters.append(f"{self.tables.column(column_of(archived))} = 0")
        rule = None if self.tables.visibility is None else self.tables.visibility(self.tables.entity)
        if rule is not None:
            filters.append(self.condition(rule))
        if where is not None:
            filters.append(self.condition(where))
        return filters

    def among(self, id_field: Field, ids: Sequence[str]) -> str:
        marks = ", ".join(self.put(record_id) for record_id in ids)
        return f"{self.tables.column(column_of(id_field))} IN ({marks})"

    # operands

    def selected(self, operand: Operand) -> str:
        """Return the column to read for an operand; NULL for a field that is not stored."""
        match operand:
            case Column(field) if not operand.others and is_recent_item_date(field):
                return self.tables.use_date(operand)
            case Column(field, steps) if not operand.others:
                is_stored = bool(field.column) or field.type is FieldType.ID
                return self.tables.column(column_of(field), steps) if is_stored else "NULL"
            case Column(field, steps):
                # A lookup to several types names one record, so at most one of the columns has a value.
                return f"COALESCE({', '.join(self.selected(each) for each in _alternatives(operand))})"
            case _:
                return self.compared(operand)

    def compared(self, operand: Operand) -> str:
        """Return the column to compare and sort an operand by: of a text, its folded key."""
        match operand:
            case Column():
                names = [
                    self.tables.use_date(each)
                    if is_recent_item_date(each.field)
                    else self.tables.column(compared_column(each.field), each.steps)
                    for each in _alternatives(operand)
                ]
                return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"
            case DatePart(function, column, _, calendar):
                return render_part(function, self.compared(column), calendar)
            case Distance():
                raise InternalError("a distance was left in what should become SQL")

    # groups

    def group_key(self, operand: Operand) -> str:
        # A checkbox that was never set is false, and must not be a group beside the false ones.
        column = self.compared(operand)
        return f"COALESCE({column}, 0)" if operand.field.type is FieldType.CHECKBOX else column

    def measure(self, measure: Measure) -> list[str]:
        field = measure.operand.field
        column = self.selected(measure.operand)
        match measure.function:
            case "COUNT":
                return [f"COUNT({column})"]
            case "COUNT_DISTINCT":
                return [f"COUNT(DISTINCT {self.compared(measure.operand)})"]
            case "MIN" | "MAX":
                return [f"{measure.function}({column})"]
            case _:
                return _exact_sum(field, column)

    # ORDER BY

    def order_by(self, order: tuple[BoundOrder, ...]) -> str:
        """Return the sort keys; the id comes last, so that equal rows have one order on every page."""
        keys: list[str] = []
        is_by_id = False
        for item in order:
            direction = " DESC" if item.is_descending else ""
            column = self.compared(item.operand)
            kind = item.operand.field.type
            if kind is FieldType.CHECKBOX:
                keys.append(f"COALESCE({column}, 0){direction}")
                continue
            # The id is never null and ends every tie: neither a null key nor a further id is needed.
            is_own_id = item.operand == Column(item.operand.field) and kind is FieldType.ID
            is_by_id = is_by_id or is_own_id
            if not is_own_id:
                # SQLite and PostgreSQL sort nulls at different ends, so a key before the value decides.
                keys.append(f"({column} IS {'' if item.has_nulls_last else 'NOT '}NULL)")
            # The platform sorts a picklist by the order of its definition, then values that it no longer lists.
            if kind is FieldType.PICKLIST and item.operand.field.picklist:
                keys.append(self.definition_order(item.operand.field, column) + direction)
            keys.append(column + direction)
        if not is_by_id:
            keys.append(self.tables.column("id"))
        return ", ".join(keys)

    def definition_order(self, field: Field, column: str) -> str:
        values = dict.fromkeys(_key(field, choice.value) for choice in field.picklist)
        cases = " ".join(f"WHEN {self.put(value)} THEN {place}" for place, value in enumerate(values))
        return f"CASE {column} {cases} ELSE {len(values)} END"

    # WHERE

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
            case BoundIncludes():
                return self.includes(where)
            case BoundSemiJoin():
                return self.semi_join(where)

    def chain(self, items: tuple[BoundCondition, ...], word: str) -> str:
        # SQLite limits both the depth of an expression and its parser's stack. `a AND b AND c` nests to the left, so
        # long chains are cut into groups; the deepest operand comes last and outside of any group, where it adds
        # one level only.
        *terms, last = (self.condition(item) for item in sorted(items, key=nesting_depth))
        while len(terms) > _CHAIN:
            groups = [terms[start : start + _CHAIN] for start in range(0, len(terms), _CHAIN)]
            terms = [f"({word.join(group)})" for group in groups]
        return f"({word.join([*terms, last])})"

    def compare(self, item: BoundCompare) -> str:
        """Write = and != with nulls counted as values, and the other operators as they are."""
        column = self.compared(item.operand)
        is_equal = item.operator is Operator.EQ
        if item.operand.field.type is FieldType.CHECKBOX:
            return _checkbox_test(column, item.value, is_equal=is_equal)
        if item.value is None:
            return f"{column} IS NULL" if is_equal else f"{column} IS NOT NULL"
        if item.operator is Operator.NE:
            return f"({column} IS NULL OR {column} <> {self.put(_key(item.operand.field, item.value))})"
        return self.ordering(item, item.operator)

    def ordering(self, item: BoundCompare, operator: Operator) -> str:
        return (
            f"{self.compared(item.operand)} {operator.value} {self.put(_key(item.operand.field, item.value))}"
        )

    def unordered(self, item: BoundCompare) -> str:
        """Write the negation of <, <=, > or >=: the opposite operator, or null."""
        column = self.compared(item.operand)
        return f"({column} IS NULL OR {self.ordering(item, _OPPOSITES[item.operator])})"

    def membership(self, item: BoundIn) -> str:
        column = self.compared(item.operand)
        # Values that differ in letter case only have one key.
        values = dict.fromkeys(_key(item.operand.field, value) for value in item.values)
        # IN finds nulls if null was listed; NOT IN finds them if it was not.
        nullness = f"{column} IS {'' if item.has_null is not item.is_negated else 'NOT '}NULL"
        if not values:
            return nullness
        listed = ", ".join(self.put(value) for value in values)
        if item.is_negated:
            return f"({nullness} {'AND' if item.has_null else 'OR'} {column} NOT IN ({listed}))"
        return f"({nullness} OR {column} IN ({listed}))" if item.has_null else f"{column} IN ({listed})"

    def like(self, item: BoundLike) -> str:
        column = self.compared(item.operand)
        exact, prefix = try_exact(item.parts), try_prefix(item.parts)
        if exact is not None:
            return f"{column} = {self.put(exact)}"
        if prefix is None:
            return f"{column} LIKE {self.put(render_sql_pattern(item.parts))} ESCAPE '\\'"
        if not prefix:
            return f"{column} IS NOT NULL"
        # `abc%` as a range from `abc` to `abd`: a range can use the index on the key column, LIKE cannot.
        text = f"{column} >= {self.put(prefix)}"
        end = successor(prefix)
        return text if end is None else f"({text} AND {column} < {self.put(end)})"

    def unlike(self, item: BoundLike) -> str:
        column = self.compared(item.operand)
        return (
            f"({column} IS NULL OR {column} NOT LIKE {self.put(render_sql_pattern(item.parts))} ESCAPE '\\')"
        )

    def includes(self, item: BoundIncludes) -> str:
        column = self.compared(item.operand)
        # Values never hold the `;` that joins them. With one more at each end, every value stands between two.
        word, joiner = ("NOT LIKE", " OR ") if item.is_negated else ("LIKE", " AND ")
        tests = []
        for choice in item.choices:
            patterns = [render_sql_pattern((Wildcard.ANY, f";{value};", Wildcard.ANY)) for value in choice]
            marks = [f"(';' || {column} || ';') {word} {self.put(each)} ESCAPE '\\'" for each in patterns]
            tests.append(f"({joiner.join(marks)})")
        if item.is_negated:
            return f"({column} IS NULL OR ({' AND '.join(tests)}))"
        return f"({' OR '.join(tests)})"

    def semi_join(self, item: BoundSemiJoin) -> str:
        column = self.compared(item.operand)
        inner = item.query
        has_joins = needs_joins(inner.where, (), ())
        level = self.tables.level + 1
        tables = Tables(
            inner.entity, has_joins, self.tables.include_deleted, level, visibility=inner.visibility
        )
        writer = Writer(self.params, tables)
        before_joins = len(self.params)
        filters = writer.filters(inner.where)
        selected = writer.selected(item.selected)
        # A null among the ids would make NOT IN unknown, and so false, for every row.
        filters.append(f"{selected} IS NOT NULL")
        # The inner joins stand before the inner WHERE, whose parameters are written already.
        self.params[before_joins:before_joins] = tables.join_params
        query = " ".join(["SELECT", selected, *tables.words(), *where_words(filters)])
        if item.is_negated:
            return f"({column} IS NULL OR {column} NOT IN ({query}))"
        return f"{column} IN ({query})"


_OPPOSITES = {
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.GT: Operator.LE,
    Operator.GE: Operator.LT,
}


def _checkbox_test(column: str, value: Value, *, is_equal: bool) -> str:
    """Compare a checkbox, which is never null: one that was never set is false."""
    if value is None:
        return _NEVER if is_equal else _ALWAYS
    return f"{column} = 1" if bool(value) is is_equal else f"({column} IS NULL OR {column} = 0)"


def _exact_sum(field: Field, column: str) -> list[str]:
    """Return the four columns of a sum that adds no floats: see `compile_sql.compile_groups`.

    They are the number of values, the number of those that are no decimal of the field's scale, and the sums of two
    parts: the values in units of their last place, divided by a million, and the remainders. Each part fits an
    integer of 64 bits for any number of rows that a table can hold.
    """
    if field.type is FieldType.INTEGER:
        units, is_odd = column, "0"
    else:
        # A double keeps fifteen digits exactly, so dividing the units again must give the value.
        unit = f"{10**field.scale}.0"
        largest = f"{10 ** (15 - field.scale)}.0"
        units = f"CASE WHEN ABS({column}) < {largest} THEN CAST(ROUND({column} * {unit}) AS INTEGER) END"
        is_exact = f"ABS({column}) < {largest} AND CAST({units} AS REAL) / {unit} = {column}"
        is_odd = f"SUM(CASE WHEN {column} IS NULL OR ({is_exact}) THEN 0 ELSE 1 END)"
    parts = [f"SUM(({units}) {operator} 1000000)" for operator in ("/", "%")]
    return [f"COUNT({column})", is_odd, *parts]


def _alternatives(column: Column) -> tuple[Column, ...]:
    return (column, *column.others)


def _key(field: Field, value: Value) -> Value:
    if field.is_text and isinstance(value, str):
        return fold_key(value, case_sensitive=field.case_sensitive)
    return value


def _with_derived(
    entity: ObjectType, derived: tuple[DerivedRows, ...], params: list[Value], level: int
) -> str:
    """Return an object's stored and derived rows as a subquery with the columns of its table.

    Parts are written in the order of the text, so that their parameters come in that order too.
    """
    stored = [f for f in entity.stored_fields if f.type is not FieldType.ID]
    columns = ["id"]
    for each in stored:
        columns += [column_of(each), compared_column(each)] if each.is_text else [column_of(each)]
    parts = []
    if entity.table:
        parts.append(f"SELECT {', '.join(columns)} FROM {identifier(entity.table)}")  # noqa: S608
    parts += [_derived(stored, columns, rows, params, level) for rows in derived if not rows.merged_by]
    by_key: dict[tuple[str, ...], list[DerivedRows]] = {}
    for rows in derived:
        if rows.merged_by:
            by_key.setdefault(rows.merged_by, []).append(rows)
    # Rows with equal keys are one row: a record that is shared for two reasons is shared once.
    for number, (key, several) in enumerate(by_key.items()):
        inner = " UNION ALL ".join([_derived(stored, columns, rows, params, level) for rows in several])
        keys = [column_of(entity.by_name[name.lower()]) for name in key]
        least = ", ".join(name if name in keys else f"MIN({name}) AS {name}" for name in columns)
        parts.append(f"SELECT {least} FROM ({inner}) AS merged_{number} GROUP BY {', '.join(keys)}")  # noqa: S608
    return f"({' UNION ALL '.join(parts)})"


def _derived(
    stored: list[Field], names: list[str], rows: DerivedRows, params: list[Value], level: int
) -> str:
    looked_at = [each for each in rows.values.values() if isinstance(each, Column)]
    has_joins = needs_joins(rows.where, (), [*looked_at, *(rows.apart or ())])
    tables = Tables(rows.source, has_joins, True, level)
    writer = Writer(params, tables)
    own_id = tables.column("id")
    start, mark = writer.put(rows.id_start), writer.put(rows.id_mark)
    # The id of a derived row: eight characters that name its kind, then the rest of the record's own id, with the
    # mark as the sixteenth character (the first of the three that check letter case).
    cells = [f"{start} || substr({own_id}, 9, 7) || {mark} || substr({own_id}, 17, 2)"]
    for each in stored:
        value = rows.values.get(each.name)
        if isinstance(value, Column):
            cells += (
                [writer.selected(value), writer.compared(value)] if each.is_text else [writer.selected(value)]
            )
        else:
            texts = [value, _key(each, value)] if each.is_text else [value]
            cells += ["NULL" if text is None else writer.put(text) for text in texts]
    filters = [] if rows.where is None else [writer.condition(rows.where)]
    if rows.apart is not None:
        filters.append(" <> ".join(writer.selected(each) for each in rows.apart))
    listed = ", ".join(f"{cell} AS {name}" for cell, name in zip(cells, names, strict=True))
    return " ".join([f"SELECT {listed}", *tables.words(), *where_words(filters)])


def where_words(filters: list[str]) -> list[str]:
    """Return WHERE with all these filters, or nothing."""
    return ["WHERE", " AND ".join(filters)] if filters else []


def needs_joins(
    where: BoundCondition | None, order: tuple[BoundOrder, ...], operands: Iterable[Operand]
) -> bool:
    """Return whether any of these is a field of a related record or of the table of recent items."""
    every: list[Operand] = [*iter_operands(where), *(item.operand for item in order), *operands]
    every_column = [column for operand in every for column in columns_of(operand)]
    return any(column.steps or is_recent_item_date(column.field) for column in every_column)
