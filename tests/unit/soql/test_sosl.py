"""Searches: what parses, what is refused, and what they find in a real org."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.orgs import TestOrg
from tidewire.errors import ObjectUnknown, PlatformError, SearchMalformed, SoqlSyntaxError
from tidewire.soql.like import Wildcard
from tidewire.soql.search_terms import Both, Either, SearchWords, Without, Words
from tidewire.soql.sosl import parse_search


def test_search_is_taken_apart() -> None:
    search = parse_search(
        "FIND {acme OR \"blue sky\"} IN NAME FIELDS RETURNING Account(Id, Name WHERE Name LIKE 'a%)' LIMIT 5),"
        " Contact LIMIT 7"
    )
    assert search.words == Either((Words(("acme",)), Words(("blue sky",))))
    assert (search.scope, search.limit) == ("NAME", 7)
    assert [(q.entity, q.limit) for q in search.returning] == [("Account", 5), ("Contact", None)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "FIND acme",
        "FIND {}",
        "FIND {a}",
        "FIND {acme OR}",
        "FIND {acme NOT other}",
        "FIND {NOT acme}",
        "FIND {acme AND}",
        "FIND {acme AND OR other}",
        "FIND {(acme}",
        "FIND {acme)}",
        "FIND {()}",
        'FIND {"acme}',
        "FIND {**}",
        "FIND {ac\0me}",
        "FIND {" + "(" * 6 + "acme" + ")" * 6 + "}",
        "FIND {" + "acme " * 51 + "}",
        "FIND {acme} WITH DATA CATEGORY Geography__c AT usa__c",
        "FIND {acme} WITH METADATA = 'LABELS'",
        "FIND {acme} WITH SPELL_CORRECTION = maybe",
        "FIND {acme} WITH NOTHING",
        "FIND {acme} UPDATE NOTHING",
        "FIND {acme} UPDATE TRACKING LIMIT 5",
        "FIND {acme} RETURNING Account(Id OFFSET 5), Contact",
        "FIND {acme} IN SOME FIELDS",
        "FIND {acme} RETURNING",
        "FIND {acme} RETURNING Account(Id",
        "FIND {acme} WITH DIVISION = 'x'",
        "FIND {acme} LIMIT x",
        "FIND {acme}" + " " * 20_000,
    ],
)
def test_malformed_search_is_refused(text: str) -> None:
    with pytest.raises(SearchMalformed):
        parse_search(text)


A, B, C = Words(("aaa",)), Words(("bbb",)), Words(("ccc",))


@pytest.mark.parametrize(
    "text, words",
    [
        ("aaa", A),
        ("aaa bbb", Both((A, B))),
        ("aaa and bbb", Both((A, B))),
        ("aaa OR bbb ccc", Either((A, Both((B, C))))),
        ("(aaa OR bbb) ccc", Both((Either((A, B)), C))),
        ("aaa AND NOT bbb", Both((A, Without(B)))),
        ("aaa AND NOT (bbb OR ccc)", Both((A, Without(Either((B, C)))))),
        ('"aaa AND bbb"', Words(("aaa AND bbb",))),
        ('"aaa \\"b*b\\""', Words(('aaa "b*b"',))),
        ("a*a?", Words(("a", Wildcard.ANY, "a", Wildcard.ONE))),
        (r"a\*a\?", Words(("a*a?",))),
        (r"\(aaa\)", Words(("(aaa)",))),
        (r"aaa \{b", Both((A, Words(("{b",))))),
    ],
)
def test_words_are_joined_as_written(text: str, words: SearchWords) -> None:
    assert parse_search(f"FIND {{{text}}}").words == words


@pytest.mark.parametrize(
    "clauses",
    [
        "WITH SNIPPET",
        "WITH SNIPPET (target_length=120) WITH HIGHLIGHT",
        "WITH SPELL_CORRECTION = false LIMIT 5",
        "RETURNING Account WITH USER_MODE LIMIT 5 UPDATE TRACKING",
        "UPDATE VIEWSTAT",
        "UPDATE TRACKING, VIEWSTAT",
    ],
)
def test_clauses_that_leave_no_record_out_are_accepted(clauses: str) -> None:
    assert parse_search(f"FIND {{aaa}} {clauses}").words == A


def test_what_stands_in_brackets_is_soqls_own() -> None:
    with pytest.raises(SoqlSyntaxError):
        parse_search("FIND {acme} RETURNING Account(Id WHERE)")


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for search in (text, f"FIND {{{text}}}", f"FIND {{acme}} RETURNING Account({text})"):
        try:
            parse_search(search)
        except PlatformError:
            continue


async def found(org: TestOrg, sosl: str, *, as_reader: bool = False) -> list[str]:
    answers = await org.gate.search(org.reader if as_reader else org.admin, sosl)
    return sorted(str(row.get("Name") or row["LastName"]) for rows in answers for row in rows.rows)


async def test_words_are_found_in_any_field_and_letter_case(org: TestOrg) -> None:
    await org.make_account("Blue Harbour", BillingCity="Oslo")
    await org.make_account("Green Harbour", Phone="555-123")
    await org.gate.create(org.call, "Contact", {"LastName": "Harbourmaster", "Email": "h@example.org"})
    returning = "RETURNING Account(Name), Contact(Name)"
    assert await found(org, f"FIND {{HARBOUR}} {returning}") == [
        "Blue Harbour",
        "Green Harbour",
        "Harbourmaster",
    ]
    assert await found(org, f"FIND {{harbour oslo}} {returning}") == ["Blue Harbour"]
    assert await found(org, f"FIND {{oslo OR 555*23}} {returning}") == ["Blue Harbour", "Green Harbour"]
    assert await found(org, f"FIND {{example}} IN EMAIL FIELDS {returning}") == ["Harbourmaster"]
    assert await found(org, f"FIND {{555}} IN NAME FIELDS {returning}") == []
    assert await found(org, "FIND {harbour} RETURNING Account(Name WHERE Phone != null)") == ["Green Harbour"]


async def test_search_without_objects_looks_everywhere(org: TestOrg) -> None:
    await org.make_account("Lonely Lighthouse")
    answers = await org.gate.search(org.admin, "FIND {lighthouse}")
    assert [(rows.entity.name, len(rows.rows)) for rows in answers if rows.rows] == [("Account", 1)]


async def test_hidden_fields_and_objects_are_not_searched(org: TestOrg) -> None:
    await org.make_account("Quiet", Phone="98765")
    assert await found(org, "FIND {98765} RETURNING Account(Name)") == ["Quiet"]
    assert await found(org, "FIND {98765} RETURNING Account(Name)", as_reader=True) == []
    with pytest.raises(ObjectUnknown):
        await org.gate.search(org.reader, "FIND {98765} RETURNING Opportunity(Name)")


async def test_words_are_excluded_grouped_and_escaped(org: TestOrg) -> None:
    await org.make_account("Blue Harbour", BillingCity="Oslo")
    await org.make_account("Green Harbour", BillingCity="Bergen")
    await org.make_account("Grey (old) Harbour*")
    returning = "RETURNING Account(Name)"
    assert await found(org, f"FIND {{harbour AND NOT oslo}} {returning}") == [
        "Green Harbour",
        "Grey (old) Harbour*",
    ]
    assert await found(org, f"FIND {{harbour AND NOT (oslo OR bergen)}} {returning}") == [
        "Grey (old) Harbour*"
    ]
    assert await found(org, f"FIND {{(oslo OR bergen) AND harbour}} {returning}") == [
        "Blue Harbour",
        "Green Harbour",
    ]
    assert await found(org, f"FIND {{\\(old\\) OR harbour\\*}} {returning}") == ["Grey (old) Harbour*"]
    assert await found(org, f'FIND {{"e harbour"}} {returning}') == ["Blue Harbour"]


async def test_object_has_its_own_limit_and_offset(org: TestOrg) -> None:
    for number in range(5):
        await org.make_account(f"Harbour {number}")
    part = "RETURNING Account(Name ORDER BY Name LIMIT 2 OFFSET 2)"
    assert await found(org, f"FIND {{harbour}} {part}") == ["Harbour 2", "Harbour 3"]
