from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.errors import RequestError, leaf_errors
from tidewire.schema.catalog import Catalog
from tidewire.soql import ast
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import (
    BoundQuery,
    BoundSemiJoin,
    Distance,
    Operand,
    columns_of,
    iter_conditions,
    iter_operands,
)
from tidewire.soql.compile_predicate import compile_predicate
from tidewire.soql.compile_sql import compile_scan, compile_sql
from tidewire.soql.dates import COUNTED_DATES, RELATIVE_DATES
from tidewire.soql.parser import RESERVED, parse_query
from tidewire.soql.render import render_query

WORDS = """
    SELECT FROM WHERE AND OR NOT IN LIKE ORDER BY ASC DESC NULLS FIRST LAST LIMIT OFFSET GROUP HAVING COUNT
    ROLLUP TYPEOF WHEN THEN ELSE END TRUE FALSE NULL TODAY LAST_N_DAYS INCLUDES USING WITH FOR ALL
    Id Name Size__c Active__c Due__c At__c OwnerId Notes__c SiteAddress Widget__c w Owner x
    Owner.Name Parent__r.Name About__r.Type Tags__c EXCLUDES CUBE CALENDAR_YEAR(At__c) COUNT(Id) FIELDS(ALL)
    mine everything SCOPE UPDATE TRACKING SECURITY_ENFORCED w.Owner o /**/ // USD5.5 convertTimezone(At__c)
    Parts__r DISTANCE(Place__c,GEOLOCATION(1,2),'mi') (SELECT Widget__c Part__c) VIEW toLabel(Stage__c)
    ( ) , . : = != <> < <= > >= 1 -2.5 0 'a' 'A%' '' '\\'' 2024-01-01 2024-01-01T00:00:00Z ' * \\
"""
NOW_MS = 1_700_000_000_000
VOCABULARY = st.lists(st.sampled_from(WORDS.split()), max_size=20)


def take_further(bound: BoundQuery) -> None:
    is_alone = not any(isinstance(each, BoundSemiJoin) for each in iter_conditions(bound.where))
    operands: list[Operand] = [*iter_operands(bound.where), *(item.operand for item in bound.order)]
    if bound.aggregate is not None:
        operands += bound.aggregate.operands
    if not any(isinstance(operand, Distance) for operand in operands):
        if bound.aggregate is None:
            compile_sql(bound)
        compile_scan(bound, operands, after_id="", row_count=5)
    if is_alone and not any(column.steps for operand in operands for column in columns_of(operand)):
        compile_predicate(bound.where, bound.entity)({})


def run(text: str, catalog: Catalog) -> None:
    """Take a query all the way; whatever is wrong with it must be one of our errors, with its place."""
    try:
        query = parse_query(text)
        assert parse_query(render_query(query)) == query
        bound = bind_query(query, catalog, now_ms=NOW_MS)
    except RequestError as error:
        refusal = error
    else:
        take_further(bound)
        return
    assert type(refusal) in leaf_errors()
    assert {"row", "column", "query", "reason"} <= refusal.details.keys()


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused(catalog: Catalog, text: str) -> None:
    run(text, catalog)


@settings(deadline=None)
@given(VOCABULARY)
def test_any_words_are_read_or_refused(catalog: Catalog, words: list[str]) -> None:
    run("SELECT Id FROM Widget__c " + " ".join(words), catalog)
    run(" ".join(words), catalog)


@settings(deadline=None)
@given(VOCABULARY)
def test_any_condition_words_are_read_or_refused(catalog: Catalog, words: list[str]) -> None:
    run("SELECT Id FROM Widget__c WHERE Name = 'x' AND " + " ".join(words), catalog)


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}", fullmatch=True).filter(
    lambda name: (
        name.upper()
        not in RESERVED
        | RELATIVE_DATES
        | COUNTED_DATES
        | {
            "TRUE",
            "FALSE",
            "COUNT",
            "TYPEOF",
            "ORDER",
            "OFFSET",
            "FOR",
            "UPDATE",
            "ALL",
            "ROLLUP",
            "CUBE",
            "WHEN",
        }
        | {"ELSE", "END", "THEN"}
    )
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@st.composite
def string_literals(draw: st.DrawFn) -> ast.StringLiteral:
    value = draw(TEXTS)
    wildcards = [place for place, char in enumerate(value) if char in "%_"]
    escaped = draw(st.sets(st.sampled_from(wildcards))) if wildcards else set()
    return ast.StringLiteral(value, tuple(sorted(escaped)))


LITERALS: st.SearchStrategy[ast.Literal] = st.one_of(
    string_literals(),
    st.from_regex(r"-?[0-9]{1,8}(\.[0-9]{1,4})?", fullmatch=True).map(ast.NumberLiteral),
    st.builds(ast.CurrencyLiteral, st.sampled_from(["USD", "EUR"]), st.sampled_from(["0", "12", "7.50"])),
    st.booleans().map(ast.BooleanLiteral),
    st.just(ast.NullLiteral()),
    st.dates().map(lambda day: ast.DateLiteral(day.isoformat())),
    st.datetimes().map(lambda at: ast.DateTimeLiteral(at.isoformat(timespec="milliseconds") + "Z")),
    st.times().map(lambda at: ast.TimeLiteral(at.isoformat(timespec="seconds") + "Z")),
    st.sampled_from(sorted(RELATIVE_DATES)).map(ast.RelativeDate),
    st.builds(ast.RelativeDate, st.sampled_from(sorted(COUNTED_DATES)), st.integers(0, 999)),
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: ast.FieldPath(tuple(names)))
CALLS = st.builds(ast.FunctionCall, NAMES, st.lists(PATHS, min_size=1, max_size=2).map(tuple))
SUBJECTS = PATHS | CALLS
TESTS = st.one_of(
    st.builds(ast.Comparison, SUBJECTS, st.sampled_from(ast.Operator), LITERALS),
    st.builds(
        ast.Membership,
        SUBJECTS,
        st.sampled_from(ast.SetOperator),
        st.lists(LITERALS, min_size=1, max_size=3).map(tuple),
    ),
)


def combine(inner: st.SearchStrategy[ast.Condition]) -> st.SearchStrategy[ast.Condition]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(ast.And, several), st.builds(ast.Or, several), st.builds(ast.Not, inner))


CONDITIONS: st.SearchStrategy[ast.Condition] = st.recursive(TESTS, combine, max_leaves=6)
SELECTED: st.SearchStrategy[ast.SelectItem] = st.one_of(SUBJECTS, st.builds(ast.Aliased, SUBJECTS, NAMES))
QUERIES = st.builds(
    ast.Query,
    select=st.lists(SELECTED, min_size=1, max_size=3).map(tuple),
    entity=NAMES,
    alias=st.just("") | NAMES,
    joined=st.lists(
        st.builds(ast.FromAlias, st.lists(NAMES, min_size=2, max_size=3).map(tuple), NAMES), max_size=2
    ).map(tuple),
    scope=st.sampled_from(["", "mine", "mine_and_my_groups", "scopingRule"]),
    where=st.none() | CONDITIONS,
    security=st.sampled_from(["", "USER_MODE", "SECURITY_ENFORCED"]),
    group_by=st.none()
    | st.builds(
        ast.GroupBy,
        st.lists(SUBJECTS, min_size=1, max_size=2).map(tuple),
        st.sampled_from(ast.Grouping),
        st.none() | CONDITIONS,
    ),
    order_by=st.lists(st.builds(ast.OrderItem, SUBJECTS, st.booleans(), st.booleans()), max_size=2).map(
        tuple
    ),
    limit=st.none() | st.integers(0, 2**31 - 1),
    offset=st.none() | st.integers(0, 2**31 - 1),
    purposes=st.permutations(["VIEW", "REFERENCE", "UPDATE"]).map(lambda words: tuple(words[:2])),
    statistics=st.sampled_from([(), ("TRACKING",), ("VIEWSTAT", "TRACKING")]),
)


@settings(deadline=None)
@given(QUERIES)
def test_any_tree_comes_back_from_its_text(query: ast.Query) -> None:
    assert parse_query(render_query(query)) == query


@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_longest_flat_condition_is_taken_all_the_way(catalog: Catalog, operator: str) -> None:
    terms = f" {operator} ".join(f"Size__c={number}" for number in range(5_000))
    bound = bind_query(parse_query(f"SELECT Id FROM Widget__c WHERE {terms}"), catalog)
    assert compile_sql(bound).text.count("?") == 5_000
    assert compile_predicate(bound.where, bound.entity)({"Size__c": 4_999.0}) is (operator == "OR")
