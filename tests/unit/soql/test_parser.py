from __future__ import annotations

from pathlib import Path

import pytest

from tidewire.errors import RequestError, SoqlSyntaxError
from tidewire.schema.catalog import Catalog
from tidewire.soql.ast import (
    And,
    Comparison,
    FieldPath,
    Membership,
    Not,
    NumberLiteral,
    Operator,
    Or,
    OrderItem,
    Query,
    SetOperator,
    StringLiteral,
    walk_conditions,
)
from tidewire.soql.binder import bind_query
from tidewire.soql.cursor import MAX_NESTING
from tidewire.soql.parser import parse_query
from tidewire.soql.render import render_query


def test_identity_statements_come_back_as_they_were(cases: Path) -> None:
    statements = (cases / "identity.soql").read_text(encoding="utf-8").splitlines()
    assert len(statements) >= 200
    for statement in statements:
        assert render_query(parse_query(statement)) == statement


def test_faulty_statements_get_their_code_place_and_reason(cases: Path, catalog: Catalog) -> None:
    blocks = (cases / "errors.soql").read_text(encoding="utf-8").strip().split("\n\n")[1:]
    assert len(blocks) >= 140
    for block in blocks:
        statement, expected = block.split("\n")
        code, place, reason = expected.split(" ", 2)
        with pytest.raises(RequestError) as caught:
            bind_query(parse_query(statement.replace("⏎", "\n")), catalog, now_ms=0)
        details = caught.value.details
        found = (caught.value.code, f"{details['row']}:{details['column']}", details["reason"])
        assert found == (code, place, reason), statement
        assert caught.value.message.endswith(reason)


def test_query_with_every_clause_is_read_into_its_tree() -> None:
    text = """select id, w.Name from Widget__c w
        where (Name <> 'a' or not Size__c >= +5) and Code__c not in ('x')
        order by Name asc nulls first, id DESC nulls last limit 10 offset 020"""
    assert parse_query(text) == Query(
        select=(FieldPath(("id",)), FieldPath(("w", "Name"))),
        entity="Widget__c",
        alias="w",
        where=And(
            (
                Or(
                    (
                        Comparison(FieldPath(("Name",)), Operator.NE, StringLiteral("a")),
                        Not(Comparison(FieldPath(("Size__c",)), Operator.GE, NumberLiteral("5"))),
                    )
                ),
                Membership(FieldPath(("Code__c",)), SetOperator.NOT_IN, (StringLiteral("x"),)),
            )
        ),
        order_by=(OrderItem(FieldPath(("Name",))), OrderItem(FieldPath(("id",)), True, True)),
        limit=10,
        offset=20,
    )


def test_nodes_know_their_place_in_the_text() -> None:
    query = parse_query("SELECT Id FROM A WHERE B = 1 AND (C = 2 OR NOT D = 3)")
    text = query.text
    starts = [text[condition.position :][:5] for condition in walk_conditions(query.where)]
    assert starts == ["B = 1", "B = 1", "C = 2", "C = 2", "NOT D", "D = 3"]
    assert text[query.entity_position] == "A"


def test_not_binds_to_the_next_condition_only() -> None:
    assert parse_query("SELECT Id FROM A WHERE NOT B = 1 AND C = 2") == parse_query(
        "SELECT Id FROM A WHERE (NOT B = 1) AND (C = 2)"
    )


def test_redundant_parentheses_leave_no_trace() -> None:
    assert parse_query("SELECT Id FROM A WHERE ((B = 1))") == parse_query("SELECT Id FROM A WHERE B = 1")


def test_keywords_that_name_objects_can_stand_in_from() -> None:
    assert parse_query("SELECT Id FROM Order ORDER BY Id").entity == "Order"
    assert parse_query("SELECT Id FROM Group").entity == "Group"


@pytest.mark.parametrize("alias", ["Account AS a", "Account a"])
def test_from_alias_is_read_with_and_without_as(alias: str) -> None:
    assert parse_query(f"SELECT Id FROM {alias}").alias == "a"


@pytest.mark.parametrize("word", ["LIKE", "first", "As"])
def test_reserved_word_as_alias_is_refused(word: str) -> None:
    with pytest.raises(SoqlSyntaxError, match="unexpected token"):
        parse_query(f"SELECT Id FROM Account {word}")


@pytest.mark.parametrize(
    "opening, closing",
    [("(", ")"), ("NOT ", ""), ("(NOT ", ")"), ("Id IN (SELECT Id FROM A WHERE ", ")")],
)
def test_query_nested_past_the_limit_is_refused(opening: str, closing: str) -> None:
    levels = 5_000 if len(opening) < 10 else 2_000
    text = "SELECT Id FROM A WHERE " + opening * levels + "B = 1" + closing * levels
    with pytest.raises(SoqlSyntaxError, match=f"nest more than {MAX_NESTING} deep"):
        parse_query(text)


def test_nested_functions_past_the_limit_are_refused() -> None:
    with pytest.raises(SoqlSyntaxError, match="deep"):
        parse_query("SELECT " + "F(" * 5_000 + "Id" + ")" * 5_000 + " FROM A")


def test_number_of_thousands_of_digits_is_refused_politely() -> None:
    with pytest.raises(RequestError, match="numeric value out of range"):
        parse_query("SELECT Id FROM A LIMIT " + "9" * 6_000)
    with pytest.raises(RequestError, match="numeric value out of range"):
        parse_query("SELECT Id FROM A WHERE B = LAST_N_DAYS:" + "9" * 6_000)


def test_comments_count_as_blanks() -> None:
    commented = """SELECT /* the key */ Id // to the end of the row
        FROM/**/A WHERE B = 'no // comment /* here */' /* LIMIT 5
        LIMIT 6 */ LIMIT 7//"""
    plain = "SELECT Id FROM A WHERE B = 'no // comment /* here */' LIMIT 7"
    assert parse_query(commented) == parse_query(plain)


@pytest.mark.parametrize("written", ["MINE_AND_MY_GROUPS", "MineAndMyGroups", "mine_and_my_groups"])
def test_scope_is_read_in_any_spelling(written: str) -> None:
    assert parse_query(f"SELECT Id FROM A USING SCOPE {written}").scope == "mine_and_my_groups"
