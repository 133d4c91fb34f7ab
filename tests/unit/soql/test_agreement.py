"""The SQL, the predicate and a plain reading of the rules pick the same records."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.events import Value
from tidewire.ids import make_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.text_keys import fold_key
from tidewire.soql import ast
from tidewire.soql.ast import Operator, SetOperator
from tidewire.soql.binder import bind_query
from tidewire.soql.compile_predicate import compile_predicate
from tidewire.soql.compile_sql import compile_sql
from tidewire.soql.dates import (
    COUNTED_DATES,
    DATE_FUNCTIONS,
    RELATIVE_DATES,
    Calendar,
    part_of,
    relative_range,
)
from tidewire.soql.literals import try_date_ms, try_datetime_ms
from tidewire.soql.parser import parse_query
from tidewire.soql.render import render_query
from tidewire.soql.scope import Caller
from tidewire.soql.zones import UTC, Zone, load_zone

ORDERINGS = {
    Operator.LT: lambda a, b: a < b,
    Operator.LE: lambda a, b: a <= b,
    Operator.GT: lambda a, b: a > b,
    Operator.GE: lambda a, b: a >= b,
}
# Letters that fold to each other, to several, or only after composition; wildcards; the edges of UTF-8.
LETTERS = "aAbBßsS\u0130i\u0131IéÉe\u0301Å\u212b\ufb03株%_\\' \ud7ff\ue000\U0010ffff"
TEXTS = st.text(LETTERS, min_size=1, max_size=4)
IDS = st.integers(1, 5).map(lambda number: make_id("005", number))
DAYS = st.sampled_from(["1969-12-31", "1970-01-01", "2024-02-29"])
MOMENTS = st.sampled_from(
    ["1970-01-01T00:00:00Z", "1970-01-01T01:00:00+01:00", "2024-02-29T23:59:59.999-08:00"]
)
CHOICES = st.lists(
    st.sampled_from(["red", "green", "blue", "re%", "ed"]), min_size=1, max_size=3, unique=True
).map(sorted)
NOW_MS = 951_782_400_000  # 29 February 2000, a Tuesday
CALENDAR = Calendar(load_zone("America/Los_Angeles"), fiscal_month=4)
RELATIVE = [
    *((name, None) for name in sorted(RELATIVE_DATES)),
    *((name, count) for name in sorted(COUNTED_DATES) for count in (0, 1, 5, 2**31 - 1)),
]
WHOLES = st.integers(-3, 3)
DOUBLES = st.sampled_from([-2.5, -1.0, 0.0, 0.1, 2.0, 2.5])

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "Name": st.none() | TEXTS,
            "Code__c": st.none() | TEXTS,
            "Count__c": st.none() | WHOLES,
            "Size__c": st.none() | DOUBLES,
            "Price__c": st.none() | DOUBLES,
            "Active__c": st.sampled_from([None, 0, 1]),
            "Due__c": st.none() | DAYS.map(try_date_ms),
            "At__c": st.none() | MOMENTS.map(try_datetime_ms),
            "OwnerId": st.none() | IDS,
            "Tags__c": st.none() | CHOICES.map(";".join),
            "Place__Latitude__s": st.sampled_from([None, -45.5, 0.0, 60.0]),
            "Place__Longitude__s": st.sampled_from([None, -120.0, 0.0, 179.5]),
        }
    ),
    max_size=8,
)


@st.composite
def string_literals(draw: st.DrawFn) -> ast.StringLiteral:
    value = draw(st.just("") | TEXTS)
    wildcards = [place for place, char in enumerate(value) if char in "%_"]
    escaped = draw(st.sets(st.sampled_from(wildcards))) if wildcards else set()
    return ast.StringLiteral(value, tuple(sorted(escaped)))


def number_literal(number: float) -> ast.NumberLiteral:
    return ast.NumberLiteral(str(number))


LITERALS: dict[str, st.SearchStrategy[ast.Literal]] = {
    "Name": string_literals(),
    "Code__c": string_literals(),
    "Count__c": (WHOLES | DOUBLES).map(number_literal),
    "Size__c": (WHOLES | DOUBLES).map(number_literal),
    "Price__c": st.sampled_from(["0", "2", "2.50"]).map(lambda amount: ast.CurrencyLiteral("USD", amount)),
    "Due__c": DAYS.map(ast.DateLiteral),
    "At__c": MOMENTS.map(ast.DateTimeLiteral),
    "OwnerId": (IDS | IDS.map(lambda text: text[:15]) | IDS.map(str.lower) | st.just("")).map(
        ast.StringLiteral
    ),
}
NULL = ast.NullLiteral()


@st.composite
def special_conditions(draw: st.DrawFn) -> ast.Condition:
    """Relative dates, date functions and multi-select picklists."""
    kind = draw(st.sampled_from(["relative", "listed", "part", "tags"]))
    if kind == "tags":
        tags = ast.FieldPath(("Tags__c",))
        operator = draw(st.sampled_from([SetOperator.INCLUDES, SetOperator.EXCLUDES]))
        values = draw(st.lists(CHOICES.map(";".join).map(ast.StringLiteral), min_size=1, max_size=2))
        return ast.Membership(tags, operator, tuple(values))
    orderings = st.sampled_from([op for op in Operator if op is not Operator.LIKE])
    date = ast.FieldPath((draw(st.sampled_from(["Due__c", "At__c"])),))
    if kind == "part":
        names = sorted(DATE_FUNCTIONS - {"DAY_ONLY", "HOUR_IN_DAY"})
        converted = ast.FunctionCall("convertTimezone", (ast.FieldPath(("At__c",)),))
        moment = draw(st.sampled_from((date, converted)))
        assert isinstance(moment, ast.FieldPath | ast.FunctionCall)
        call = ast.FunctionCall(draw(st.sampled_from(names)), (moment,))
        numbers = st.sampled_from([1, 2, 7, 12, 29, 60, 1969, 1970, 2000, 2024])
        return ast.Comparison(call, draw(orderings), number_literal(draw(numbers)))
    relative = ast.RelativeDate(*draw(st.sampled_from(RELATIVE)))
    if kind == "relative":
        return ast.Comparison(date, draw(orderings), relative)
    set_operator = draw(st.sampled_from([SetOperator.IN, SetOperator.NOT_IN]))
    return ast.Membership(date, set_operator, (relative, *draw(st.just((NULL,)) | st.just(()))))


@st.composite
def simple_conditions(draw: st.DrawFn) -> ast.Condition:
    if draw(st.integers(0, 3)) == 0:
        return draw(special_conditions())
    if draw(st.integers(0, 7)) == 0:
        operator = draw(st.sampled_from([Operator.EQ, Operator.NE]))
        truth = draw(st.booleans().map(ast.BooleanLiteral) | st.just(NULL))
        return ast.Comparison(ast.FieldPath(("Active__c",)), operator, truth)
    name = draw(st.sampled_from(sorted(LITERALS)))
    subject, literals = ast.FieldPath((name,)), LITERALS[name]
    if draw(st.booleans()):
        set_operator = draw(st.sampled_from([SetOperator.IN, SetOperator.NOT_IN]))
        values = draw(st.lists(literals | st.just(NULL), min_size=1, max_size=3))
        return ast.Membership(subject, set_operator, tuple(values))
    operators = [op for op in Operator if op is not Operator.LIKE or name in ("Name", "Code__c")]
    operator = draw(st.sampled_from(operators))
    nullable = operator in (Operator.EQ, Operator.NE)
    return ast.Comparison(subject, operator, draw(literals | st.just(NULL) if nullable else literals))


def combine(inner: st.SearchStrategy[ast.Condition]) -> st.SearchStrategy[ast.Condition]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(ast.And, several), st.builds(ast.Or, several), st.builds(ast.Not, inner))


CONDITIONS: st.SearchStrategy[ast.Condition] = st.recursive(simple_conditions(), combine, max_leaves=8)


def reads_as_true(condition: ast.Condition, record: Mapping[str, Value], entity: ObjectType) -> bool:
    """The rules, word by word."""
    match condition:
        case ast.And(items):
            return all(reads_as_true(item, record, entity) for item in items)
        case ast.Or(items):
            return any(reads_as_true(item, record, entity) for item in items)
        case ast.Not(item):
            return not reads_as_true(item, record, entity)
        case ast.Comparison(ast.FunctionCall(function, (ast.FieldPath((name,)),)), operator, literal):
            assert isinstance(literal, ast.NumberLiteral)
            return compares(part(function, record[name], UTC), operator, int(literal.text))
        case ast.Comparison(
            ast.FunctionCall(function, (ast.FunctionCall(_, (ast.FieldPath((name,)),)),)), operator, literal
        ):
            assert isinstance(literal, ast.NumberLiteral)
            return compares(part(function, record[name], CALENDAR.zone), operator, int(literal.text))
        case ast.Comparison(ast.FieldPath((name,)), operator, ast.RelativeDate(range_name, count)):
            start, end = relative_range(range_name, count, NOW_MS, CALENDAR, of_days=name == "Due__c")
            moment = record[name]
            if moment is None:
                return operator is Operator.NE
            return {
                Operator.EQ: start <= int(moment) < end,
                Operator.NE: not start <= int(moment) < end,
                Operator.LT: int(moment) < start,
                Operator.LE: int(moment) < end,
                Operator.GT: int(moment) >= end,
                Operator.GE: int(moment) >= start,
            }[operator]
        case ast.Membership(ast.FieldPath(("Tags__c",)), set_operator, choices):
            held_tags = set(str(record["Tags__c"] or "").split(";"))
            has_any = any(
                set(choice.value.split(";")) <= held_tags
                for choice in choices
                if isinstance(choice, ast.StringLiteral)
            )
            return has_any is (set_operator is SetOperator.INCLUDES)
        case ast.Membership(subject, set_operator, (ast.RelativeDate() as relative, *others)):
            is_in = reads_as_true(ast.Comparison(subject, Operator.EQ, relative), record, entity)
            assert isinstance(subject, ast.FieldPath)
            is_null = bool(others) and record[subject.names[0]] is None
            return (is_in or is_null) is (set_operator is SetOperator.IN)
        case ast.Comparison(ast.FieldPath((name,)), operator, literal):
            field = entity.by_name[name.lower()]
            held, given_value = comparable(entity, name, record[name]), literal_value(entity, name, literal)
            if field.type is FieldType.CHECKBOX:
                held = bool(held)
            if operator is Operator.LIKE:
                assert isinstance(literal, ast.StringLiteral)
                return isinstance(held, str) and is_like(held, literal, case_sensitive=field.case_sensitive)
            if operator in (Operator.EQ, Operator.NE):
                wanted = None if given_value == "" else given_value
                return (held == wanted) is (operator is Operator.EQ)
            return held is not None and ORDERINGS[operator](held, given_value)
        case ast.Membership(ast.FieldPath((name,)), set_operator, literals):
            wanted_values = [literal_value(entity, name, literal) for literal in literals]
            held = comparable(entity, name, record[name])
            is_listed = any((None if value == "" else value) == held for value in wanted_values)
            return is_listed is (set_operator is SetOperator.IN)
        case _:
            raise AssertionError(condition)


def part(function: str, moment: Value, zone: Zone) -> int | None:
    return None if moment is None else part_of(function, int(moment), replace(CALENDAR, zone=zone))


def compares(held: int | None, operator: Operator, wanted: int) -> bool:
    if operator in (Operator.EQ, Operator.NE):
        return (held == wanted) is (operator is Operator.EQ)
    return held is not None and bool(ORDERINGS[operator](held, wanted))


def comparable(entity: ObjectType, name: str, value: Value) -> Value:
    field = entity.by_name[name.lower()]
    if field.is_text and isinstance(value, str):
        return fold_key(value, case_sensitive=field.case_sensitive)
    return value


def literal_value(entity: ObjectType, name: str, literal: ast.Literal) -> Value:
    match literal:
        case ast.StringLiteral(value) if name == "OwnerId" and value:
            number = int(value[6:15])
            return make_id("005", number)
        case ast.StringLiteral(value):
            return comparable(entity, name, value)
        case ast.NumberLiteral(text) | ast.CurrencyLiteral(_, text):
            return float(text)
        case ast.BooleanLiteral(truth):
            return truth
        case ast.DateLiteral(text):
            return try_date_ms(text)
        case ast.DateTimeLiteral(text):
            return try_datetime_ms(text)
        case _:
            return None


def is_like(key: str, literal: ast.StringLiteral, *, case_sensitive: bool) -> bool:
    tokens = re.split(
        "(\0.)",
        "".join(
            f"\0{char}" if char in "%_" and place not in literal.escaped_wildcards else char
            for place, char in enumerate(literal.value)
        ),
    )
    symbols = {"\0%": ".*", "\0_": "."}
    source = "".join(
        symbols.get(token) or re.escape(fold_key(token, case_sensitive=case_sensitive)) for token in tokens
    )
    return re.fullmatch(source, key, re.DOTALL) is not None


@settings(max_examples=400, deadline=None)
@given(rows=ROWS, condition=CONDITIONS)
def test_sql_predicate_and_rules_pick_the_same_records(
    catalog: Catalog,
    widget: ObjectType,
    load_rows: Callable[[Iterable[Mapping[str, Value]]], sqlite3.Connection],
    rows: list[dict[str, Value]],
    condition: ast.Condition,
) -> None:
    records = [{"Id": make_id("a00", number), "IsDeleted": 0, **row} for number, row in enumerate(rows)]
    text = render_query(ast.Query((ast.FieldPath(("Id",)),), "Widget__c", where=condition))
    bound = bind_query(parse_query(text), catalog, now_ms=NOW_MS, caller=Caller(calendar=CALENDAR))
    predicate = compile_predicate(bound.where, widget)
    sql = compile_sql(bound)
    store = load_rows(records)
    by_sql = [row[0] for row in store.execute(sql.text, sql.params)]
    store.close()
    assert by_sql == [record["Id"] for record in records if predicate(record)]
    assert by_sql == [record["Id"] for record in records if reads_as_true(condition, record, widget)]


@settings(max_examples=150, deadline=None)
@given(
    rows=ROWS,
    orders=st.lists(
        st.tuples(
            st.sampled_from(["Name", "Code__c", "Count__c", "Size__c", "Active__c", "Due__c", "OwnerId"]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=3,
        unique_by=lambda order: order[0],
    ),
)
def test_sql_sorts_as_the_rules_say(
    catalog: Catalog,
    widget: ObjectType,
    load_rows: Callable[[Iterable[Mapping[str, Value]]], sqlite3.Connection],
    rows: list[dict[str, Value]],
    orders: list[tuple[str, bool, bool]],
) -> None:
    records: list[dict[str, Value]] = [
        {"Id": make_id("a00", n), "IsDeleted": 0, **row} for n, row in enumerate(rows)
    ]
    items = tuple(
        ast.OrderItem(ast.FieldPath((name,)), is_descending, has_nulls_last)
        for name, is_descending, has_nulls_last in orders
    )
    text = render_query(ast.Query((ast.FieldPath(("Id",)),), "Widget__c", order_by=items))
    sql = compile_sql(bind_query(parse_query(text), catalog))
    store = load_rows(reversed(records))
    by_sql = [row[0] for row in store.execute(sql.text, sql.params)]
    store.close()
    expected = list(records)
    # Python's sort is stable, so the last key goes first.
    for name, is_descending, has_nulls_last in reversed(orders):

        def is_null(record: Mapping[str, Value], name: str = name) -> bool:
            return record[name] is None and name != "Active__c"

        def key(record: Mapping[str, Value], name: str = name) -> str | float:
            value = comparable(widget, name, record[name])
            return value if isinstance(value, str) else float(value or 0)

        nulls = [record for record in expected if is_null(record)]
        others = [record for record in expected if not is_null(record)]
        others.sort(key=key, reverse=is_descending)
        expected = others + nulls if has_nulls_last else nulls + others
    assert by_sql == [record["Id"] for record in expected]
