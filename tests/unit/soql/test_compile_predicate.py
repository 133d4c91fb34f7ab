from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.errors import FilterInvalid
from tidewire.events import Value
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.soql import ast
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import BoundCondition
from tidewire.soql.compile_predicate import compile_predicate, render_predicate
from tidewire.soql.compile_sql import compile_sql
from tidewire.soql.parser import parse_query
from tidewire.soql.render import render_literal


def where_of(condition: str, catalog: Catalog) -> BoundCondition:
    where = bind_query(parse_query(f"SELECT Id FROM Widget__c WHERE {condition}"), catalog).where
    assert where is not None
    return where


def test_no_condition_holds_for_every_record(widget: ObjectType) -> None:
    assert compile_predicate(None, widget)({}) is True


@pytest.mark.parametrize(
    "condition, record, expected",
    [
        ("Name = 'ACME'", {"Name": "acme"}, True),
        ("Name = 'Straße'", {"Name": "STRASSE"}, True),
        ("Name = '\u00e9'", {"Name": "E\u0301"}, True),
        ("Code__c = 'ACME'", {"Code__c": "acme"}, False),
        ("Code__c LIKE 'AC%'", {"Code__c": "ACME"}, True),
        ("Code__c LIKE 'AC%'", {"Code__c": "acme"}, False),
        ("Name = 'x'", {"Name": None}, False),
        ("Name = 'x'", {}, False),
        ("Name != 'x'", {"Name": None}, True),
        ("Name = NULL", {"Name": None}, True),
        ("Name = ''", {"Name": None}, True),
        ("Name != NULL", {"Name": "a"}, True),
        ("Name IN ('A', 'b')", {"Name": "B"}, True),
        ("Name IN ('a', NULL)", {}, True),
        ("Name NOT IN ('a')", {}, True),
        ("Name NOT IN ('a', NULL)", {}, False),
        ("Name LIKE '%'", {}, False),
        ("NOT Name LIKE '%'", {}, True),
        ("Name LIKE '%M_'", {"Name": "acme"}, True),
        ("Name > ''", {"Name": "a"}, True),
        ("Name > ''", {}, False),
        ("Size__c < 5", {"Size__c": None}, False),
        ("NOT Size__c < 5", {"Size__c": None}, True),
        ("Size__c >= 5", {"Size__c": 5.0}, True),
        ("Count__c = 5", {"Count__c": 5}, True),
        ("Active__c = FALSE", {}, True),
        ("Active__c = TRUE", {"Active__c": 1}, True),
        ("Active__c != TRUE", {"Active__c": True}, False),
        ("Active__c = NULL", {}, False),
        ("Active__c != NULL", {}, True),
        ("OwnerId = '005TW0000000001'", {"OwnerId": "005TW0000000001YAA"}, True),
        ("NOT (Name = 'a' AND Size__c > 1)", {"Name": "a"}, True),
        ("(Name = 'a' OR Name = 'b') AND Size__c = 1", {"Name": "B", "Size__c": 1.0}, True),
    ],
)
def test_predicate_of_a_record(
    catalog: Catalog, widget: ObjectType, condition: str, record: dict[str, Value], expected: bool
) -> None:
    assert compile_predicate(where_of(condition, catalog), widget)(record) is expected


def test_predicate_folds_a_field_once_however_often_it_is_named(catalog: Catalog) -> None:
    source, _ = render_predicate(where_of("Name = 'a' OR Name = 'b' OR Name LIKE 'c%'", catalog))
    assert source.count("record.get") == 1


SQL_WORDS = set(
    re.findall(
        r"\w+", "SELECT FROM WHERE AND OR IN IS NOT NULL LIKE ESCAPE ORDER BY LIMIT id c1 c2 c7 k2 k3 o7_0"
    )
)
PYTHON_WORDS = set(re.findall(r"\w+", "def predicate record get if is not None return and or in v0 v1 v2"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=4, max_size=4))
def test_nothing_a_user_wrote_reaches_sql_text_or_source(catalog: Catalog, texts: list[str]) -> None:
    equal, listed, pattern, above = (render_literal(ast.StringLiteral(text)) for text in texts)
    query = parse_query(
        "SELECT Id, nAmE FROM wIdGeT__c zzAlias"
        f" WHERE (zzAlias.nAmE = {equal} OR CODE__c IN ({listed}, 'qqMarker'))"
        f" AND Name LIKE {pattern} AND Name > {above} AND size__C > 918273.5 ORDER BY nAmE LIMIT 918273"
    )
    bound = bind_query(query, catalog)
    assert bound.where is not None
    sql = compile_sql(bound)
    words = set(re.findall(r"[A-Za-z_]\w*", sql.text))
    assert words <= SQL_WORDS
    assert re.fullmatch(r"[\w\s().,?=<>]*(ESCAPE '\\'[\w\s().,?=<>]*)*", sql.text, re.ASCII)
    assert sql.text.count("?") == len(sql.params)
    source, constants = render_predicate(bound.where)
    assert re.fullmatch(r"def predicate\(record\):[\w\s().:=<>]*", source, re.ASCII)
    assert set(re.findall(r"[A-Za-z_]\w*", source)) <= PYTHON_WORDS | constants.keys()


@pytest.mark.parametrize(
    "condition", ["Parent__r.Name = 'x'", "About__r.Name = 'x'", "Id IN (SELECT Widget__c FROM Part__c)"]
)
def test_condition_beyond_the_record_is_refused(catalog: Catalog, condition: str) -> None:
    bound = bind_query(parse_query(f"SELECT Id FROM Widget__c WHERE {condition}"), catalog)
    with pytest.raises(FilterInvalid, match="not supported here"):
        compile_predicate(bound.where, bound.entity)


def test_distance_of_a_record_without_a_place_is_neither_near_nor_far(catalog: Catalog) -> None:
    for condition, found in (("< 100", False), ("> 100", False), ("< 7000", True)):
        soql = f"SELECT Id FROM Widget__c WHERE DISTANCE(Place__c, GEOLOCATION(0, 0), 'mi') {condition}"
        bound = bind_query(parse_query(soql), catalog)
        holds = compile_predicate(bound.where, bound.entity)
        assert not holds({})
        assert holds({"Place__Latitude__s": 0.0, "Place__Longitude__s": 90.0}) is (
            found or condition == "> 100"
        )
