"""Binds conditions: operands to columns, literals to stored values, relative dates to ranges.

NOT is pushed to the leaves on the way down (`is_negated`), so the bound tree is in negation normal form and needs no
third truth value: see `tidewire.soql.bound`. Of one condition the field is checked first, then whether it can be
filtered, then the operator, then the literal; the first error is the one that is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidewire.errors import FilterInvalid, OperatorInvalid
from tidewire.schema.field_types import DATE_TYPES, ID_TYPES, FieldType, ListOperator, ValueKind
from tidewire.schema.model import Field
from tidewire.schema.text_keys import fold_key
from tidewire.soql.ast import (
    And,
    Comparison,
    Condition,
    FunctionCall,
    Literal,
    Membership,
    Not,
    NullLiteral,
    Operator,
    Or,
    RelativeDate,
    SemiJoin,
    SetOperator,
    StringLiteral,
    Subject,
    walk_conditions,
)
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
    Distance,
    Operand,
    SelectedField,
    columns_of,
    is_measured,
    iter_conditions,
    iter_operands,
)
from tidewire.soql.dates import relative_range
from tidewire.soql.functions import bind_operand, function_name, only_argument
from tidewire.soql.like import Wildcard, parse_pattern
from tidewire.soql.scope import Scope, is_type_of
from tidewire.soql.typing_rules import store_literal

MAX_SEMI_JOINS = 2
_EQUALITY = frozenset({Operator.EQ, Operator.NE})
_NO_PREFIX = "~"  # in no id, so nothing matches

BindSubject = Callable[[Scope, Subject], Operand]


def bind_condition(scope: Scope, condition: Condition, subject: BindSubject = bind_operand) -> BoundCondition:
    """Bind a condition on the records of the scope; `subject` binds what stands to the left of each operator."""
    bound = _Binder(scope, subject).condition(condition, is_negated=False)
    found = list(iter_conditions(bound))
    if sum(isinstance(each, BoundSemiJoin) for each in found) > MAX_SEMI_JOINS:
        reason = f"Maximum {MAX_SEMI_JOINS} semi join sub-selects are allowed"
        raise scope.syntax_error(condition.position, reason)
    # Distances are computed in Python for the rows that SQL finds, so each must be a condition that SQL can leave out
    # whole. One that OR joins to a relationship would need columns that the rows found do not have.
    for part in conjuncts(bound):
        if is_measured(part) and not isinstance(part, BoundCompare | BoundNot) and _reaches_out(part):
            reason = "DISTANCE can not be joined to a relationship by OR"
            raise scope.syntax_error(condition.position, reason)
    if scope.is_inner and is_measured(bound):
        raise scope.syntax_error(condition.position, "DISTANCE is not supported in subqueries")
    return bound


def conjuncts(where: BoundCondition | None) -> tuple[BoundCondition, ...]:
    """Return the conditions that must all hold; none for no condition."""
    if where is None:
        return ()
    return where.items if isinstance(where, BoundAnd) else (where,)


def _reaches_out(where: BoundCondition) -> bool:
    columns = [column for operand in iter_operands(where) for column in columns_of(operand)]
    return any(column.steps for column in columns) or any(
        isinstance(each, BoundSemiJoin) for each in iter_conditions(where)
    )


@dataclass(frozen=True, slots=True)
class _Binder:
    scope: Scope
    bind_subject: BindSubject

    def condition(self, condition: Condition, *, is_negated: bool) -> BoundCondition:
        """Bind a condition, or its negation."""
        match condition:
            case Not(item):
                return self.condition(item, is_negated=not is_negated)
            case And(items) | Or(items):
                # De Morgan: NOT (a AND b) is NOT a OR NOT b.
                is_all = isinstance(condition, And) is not is_negated
                if not is_all:
                    self.reject_semi_joins(items)
                return join([self.condition(item, is_negated=is_negated) for item in items], is_all=is_all)
            case Comparison():
                return self.comparison(condition, is_negated=is_negated)
            case Membership():
                return self.membership(condition, is_negated=is_negated)
            case SemiJoin():
                return self.semi_join(condition, is_negated=is_negated)

    def reject_semi_joins(self, items: tuple[Condition, ...]) -> None:
        for found in (each for item in items for each in walk_conditions(item)):
            if isinstance(found, SemiJoin):
                reason = "Semi join sub-selects are not allowed with the 'OR' operator"
                raise self.scope.syntax_error(found.position, reason)

    # what is compared

    def operand(self, subject: Subject) -> Operand:
        operand = self.bind_subject(self.scope, subject)
        field = operand.field
        # A place is not filterable either, but has a message of its own.
        if field.type.row.is_place:
            reason = f"{field.type.value} fields can only be filtered using Distance expressions"
            raise self.scope.error(FilterInvalid, subject.position, reason, field=field.name)
        if not field.is_filterable:
            reason = f"field '{field.name}' can not be filtered in a query call"
            raise self.scope.error(FilterInvalid, subject.position, reason, field=field.name)
        return operand

    def operator_error(self, field: Field, position: int) -> OperatorInvalid:
        reason = f"invalid operator on {field.type.row.word} field"
        return self.scope.error(OperatorInvalid, position, reason, field=field.name)

    def stored(self, field: Field, literal: Literal, position: int) -> str | int | float | bool | None:
        return store_literal(self.scope.query.text, position, field, literal)

    # field operator literal

    def comparison(self, condition: Comparison, *, is_negated: bool) -> BoundCondition:
        # toLabel() compares labels, which are not stored: the labels become values here.
        if function_name(condition.subject) == "TOLABEL":
            return self.labelled(condition, (condition.value,), is_negated=is_negated)
        operand = self.operand(condition.subject)
        field, operator = operand.field, condition.operator
        self.check_operator(operand, operator, condition.position)
        if isinstance(condition.value, NullLiteral) and operator not in _EQUALITY:
            reason = "null can only be compared by = and !="
            raise self.scope.error(OperatorInvalid, condition.position, reason, field=field.name)
        # `Owner.Type = 'User'` has no column either: it is a test of the id's prefix.
        if isinstance(operand, Column) and is_type_of(operand):
            is_other = (operator is Operator.NE) is not is_negated
            return self.type_test(operand, (condition.value,), condition.position, is_negated=is_other)
        # Without a clock a relative date falls through to the error of `stored`.
        if isinstance(condition.value, RelativeDate) and self.is_range(field):
            return self.ranged(operand, operator, condition.value, is_negated=is_negated)
        if isinstance(operand, Column) and operator is Operator.LIKE:
            if not isinstance(condition.value, StringLiteral):
                # Raises the error of a literal that does not fit a text.
                self.stored(field, condition.value, condition.position)
            else:
                like = BoundLike(operand, parse_pattern(condition.value, case_sensitive=field.case_sensitive))
                return BoundNot(like) if is_negated else like
        value = self.stored(field, condition.value, condition.position)
        # `= 'B;A'` means the set of both, which is stored in the order of definition.
        if field.type.kind is ValueKind.CHOICES and isinstance(value, str):
            value = ";".join(_chosen(field, value))
        # Text is never stored empty, so `= ''` asks for null. With < and > the empty text stays: nothing is below it.
        if value == "" and operator in _EQUALITY:
            value = None
        bound = BoundCompare(operand, operator, value)
        return negate(bound) if is_negated else bound

    def check_operator(self, operand: Operand, operator: Operator, position: int) -> None:
        field = operand.field
        is_type = isinstance(operand, Column) and is_type_of(operand)
        if (is_type or not field.type.row.is_ordered) and operator not in _EQUALITY:
            raise self.operator_error(field, position)
        if operator is Operator.LIKE and not (field.is_text and isinstance(operand, Column)):
            raise self.operator_error(field, position)
        if isinstance(operand, Distance) and operator not in (Operator.LT, Operator.GT):
            raise self.scope.error(
                OperatorInvalid, position, "DISTANCE can only be compared by < and >", field=field.name
            )

    def is_range(self, field: Field) -> bool:
        return field.type in DATE_TYPES and self.scope.now_ms is not None

    def ranged(
        self, operand: Operand, operator: Operator, literal: RelativeDate, *, is_negated: bool
    ) -> BoundCondition:
        start, end = relative_range(
            literal.name,
            literal.count,
            self.scope.now_ms or 0,
            self.scope.caller.calendar,
            of_days=operand.field.type.kind is ValueKind.DATE,
        )
        # A range [start, end): before it is < start, after it is >= end, and = is both bounds.
        match operator:
            case Operator.LT | Operator.GE:
                bound = BoundCompare(operand, operator, start)
            case Operator.LE:
                bound = BoundCompare(operand, Operator.LT, end)
            case Operator.GT:
                bound = BoundCompare(operand, Operator.GE, end)
            case _:
                # NOT and != cancel out. Outside is either bound negated, so OR; nulls are outside.
                is_outside = (operator is Operator.NE) is not is_negated
                both = [BoundCompare(operand, Operator.GE, start), BoundCompare(operand, Operator.LT, end)]
                return join([negate(each) if is_outside else each for each in both], is_all=not is_outside)
        return negate(bound) if is_negated else bound

    # field operator (literals)

    def membership(self, condition: Membership, *, is_negated: bool) -> BoundCondition:
        operator, position = condition.operator, condition.position
        if function_name(condition.subject) == "TOLABEL":
            return self.labelled(condition, condition.values, is_negated=is_negated)
        operand = self.operand(condition.subject)
        field = operand.field
        # IN is for fields of one value, INCLUDES for multi-select picklists, and a checkbox takes neither.
        is_list = operator in (SetOperator.IN, SetOperator.NOT_IN)
        if field.type.row.list_operator is not (ListOperator.IN if is_list else ListOperator.INCLUDES):
            raise self.operator_error(field, position)
        if isinstance(operand, Distance):
            raise self.scope.error(
                OperatorInvalid, position, "DISTANCE can only be compared by < and >", field=field.name
            )
        excludes = (operator in (SetOperator.NOT_IN, SetOperator.EXCLUDES)) is not is_negated
        if isinstance(operand, Column) and is_type_of(operand):
            return self.type_test(operand, condition.values, position, is_negated=excludes)
        if not is_list and isinstance(operand, Column):
            return self.includes(operand, condition, is_negated=excludes)
        # `CreatedDate IN (TODAY, 2024-01-01T00:00:00Z)`: ranges become comparisons beside the list of values.
        ranges = [literal for literal in condition.values if isinstance(literal, RelativeDate)]
        listed = [
            literal for literal in condition.values if literal not in ranges or not self.is_range(field)
        ]
        tests: list[BoundCondition] = []
        if listed:
            tests.append(self.listed(operand, listed, position, is_negated=excludes))
        if len(listed) < len(condition.values):
            tests += [self.ranged(operand, Operator.EQ, each, is_negated=excludes) for each in ranges]
        return tests[0] if len(tests) == 1 else join(tests, is_all=excludes)

    def listed(
        self, operand: Operand, literals: list[Literal], position: int, *, is_negated: bool
    ) -> BoundIn:
        # A dict keeps the order and drops repetitions; null is a flag of its own, since SQL's IN never finds it.
        values: dict[str | int | float | None, None] = {}
        for literal in literals:
            value = self.stored(operand.field, literal, position)
            values[None if value == "" else value] = None
        has_null = None in values
        values.pop(None, None)
        return BoundIn(operand, tuple(values), has_null, is_negated)

    def includes(self, column: Column, condition: Membership, *, is_negated: bool) -> BoundIncludes:
        choices = []
        for literal in condition.values:
            value = self.stored(column.field, literal, condition.position)
            # 'A;B' asks for both values at once; several literals are alternatives.
            chosen = _chosen(column.field, str(value or ""))
            if not chosen:
                reason = f"{condition.operator.value} takes values, not null"
                raise self.scope.error(OperatorInvalid, condition.position, reason, field=column.field.name)
            choices.append(chosen)
        return BoundIncludes(column, tuple(choices), is_negated)

    # toLabel(field), lookup.Type

    def labelled(
        self, condition: Comparison | Membership, literals: tuple[Literal, ...], *, is_negated: bool
    ) -> BoundCondition:
        """Bind a test of a picklist's labels. A value that the picklist does not list is its own label."""
        call = condition.subject
        operand = self.operand(only_argument(self.scope, call) if isinstance(call, FunctionCall) else call)
        field, operator = operand.field, condition.operator
        is_exclusion = operator in (Operator.NE, SetOperator.NOT_IN)
        is_known = is_exclusion or operator in (Operator.EQ, SetOperator.IN)
        if field.type is not FieldType.PICKLIST or not is_known:
            raise self.operator_error(field, condition.position)
        values: dict[str, None] = {}
        has_null = False
        for literal in literals:
            label = self.stored(field, literal, condition.position)
            if not isinstance(label, str) or not label:
                has_null = True
                continue
            # Two values may share a label. A text that is a listed value's name, but no label, names nothing.
            named = [c.value for c in field.picklist if fold_key(c.label) == fold_key(label)]
            listed = {fold_key(c.value) for c in field.picklist}
            values |= dict.fromkeys(named if named or fold_key(label) in listed else [label])
        if not values and not has_null:
            # No value has such a label. The tree has no constants, so: null and not null, or either.
            both: list[BoundCondition] = [
                BoundCompare(operand, Operator.EQ, None),
                BoundCompare(operand, Operator.NE, None),
            ]
            return join(both, is_all=is_exclusion is is_negated)
        return BoundIn(operand, tuple(values), has_null, is_exclusion is not is_negated)

    def type_test(
        self, column: Column, literals: tuple[Literal, ...], position: int, *, is_negated: bool
    ) -> BoundCondition:
        """Bind a test of the type that a lookup points at: the first characters of an id tell it."""
        (lookup,) = column.others
        tests: list[BoundCondition] = []
        for literal in literals:
            name = self.stored(column.field, literal, position)
            if not name:
                tests.append(BoundCompare(lookup, Operator.NE if is_negated else Operator.EQ, None))
                continue
            # An unknown type is no error: no record is of it.
            target = self.scope.catalog.try_object(str(name))
            like = BoundLike(lookup, (target.key_prefix if target else _NO_PREFIX, Wildcard.ANY))
            tests.append(BoundNot(like) if is_negated else like)
        return tests[0] if len(tests) == 1 else join(tests, is_all=is_negated)

    # field IN (SELECT ...)

    def semi_join(self, condition: SemiJoin, *, is_negated: bool) -> BoundSemiJoin:
        operand = self.operand(condition.subject)
        inner, position = condition.query, condition.query.position
        if not isinstance(operand, Column) or operand.field.type not in ID_TYPES:
            raise self.scope.syntax_error(condition.position, "semi-joins need an ID or reference field")
        if self.scope.is_inner:
            reason = "Nesting of semi join sub-selects is not supported"
            raise self.scope.syntax_error(condition.position, reason)
        for is_there, clause in (
            (inner.is_count, "COUNT()"),
            (inner.group_by is not None, "GROUP BY"),
            (bool(inner.order_by), "ORDER BY"),
            (inner.limit is not None, "LIMIT"),
            (inner.offset is not None, "OFFSET"),
        ):
            if is_there:
                raise self.scope.syntax_error(position, f"{clause} is not allowed in a semi-join")
        # The inner query has the same caller, so it finds only records that they may see.
        bound = self.scope.bind_inner(inner, self.scope)
        selected = [item for item in bound.select if isinstance(item, SelectedField)]
        if len(bound.select) != 1 or len(selected) != 1 or selected[0].field.type not in ID_TYPES:
            reason = "a semi-join must select exactly one ID or reference field"
            raise self.scope.syntax_error(position, reason)
        excludes = (condition.operator is SetOperator.NOT_IN) is not is_negated
        return BoundSemiJoin(operand, bound, Column(selected[0].field), excludes)


def _chosen(field: Field, text: str) -> tuple[str, ...]:
    """Split a `;`-joined text into values of a multi-select picklist, spelled and ordered as it defines them."""
    defined = {fold_key(choice.value): choice.value for choice in field.picklist}
    names = [each.strip() for each in text.split(";") if each.strip()]
    values = dict.fromkeys(defined.get(fold_key(name), name) for name in names)
    order = {value: place for place, value in enumerate(defined.values())}
    return tuple(sorted(values, key=lambda value: order.get(value, len(order))))


def join(items: list[BoundCondition], *, is_all: bool) -> BoundCondition:
    """Join conditions by AND, or by OR, without one such list inside another."""
    kind = BoundAnd if is_all else BoundOr
    flat: list[BoundCondition] = []
    for item in items:
        flat.extend(item.items if isinstance(item, kind) else (item,))
    return kind(tuple(flat))


def negate(item: BoundCompare) -> BoundCondition:
    """Negate a comparison: = and != are each other's negation, nulls included; other operators get a BoundNot."""
    match item:
        case BoundCompare(operand, Operator.EQ, value):
            return BoundCompare(operand, Operator.NE, value)
        case BoundCompare(operand, Operator.NE, value):
            return BoundCompare(operand, Operator.EQ, value)
        case _:
            return BoundNot(item)
