"""Refused queries as a person reads them."""

from __future__ import annotations

import pytest

from tidewire.cli.query import explain
from tidewire.client.login import Login
from tidewire.client.rest import RestClient
from tidewire.errors import RequestRefused

NOWHERE = RestClient(Login("t", "http://127.0.0.1:1", "00D"))


def refused(code: str, message: str) -> RequestRefused:
    return RequestRefused(f"{code}: {message}", status=400, error_code=code)


def test_place_is_marked_in_the_line_at_fault() -> None:
    error = refused(
        "INVALID_FIELD", "\nWHERE Foo = 1\n ^\nERROR at Row:2:Column:7\nNo such column 'Foo' on entity 'A'."
    )
    shown = explain(error, "SELECT Id FROM A\nWHERE Foo = 1", NOWHERE)
    assert shown.splitlines()[0] == "line 2, column 7"
    assert "  WHERE Foo = 1\n        " in shown
    assert "No such column 'Foo' on entity 'A'. [INVALID_FIELD]" in shown


@pytest.mark.parametrize("place", ["Row:9:Column:1", "Row:0:Column:0", "Row:1:Column:999999999"])
def test_place_outside_the_query_breaks_nothing(place: str) -> None:
    shown = explain(refused("MALFORMED_QUERY", f"ERROR at {place}\nunexpected"), "SELECT", NOWHERE)
    assert shown.endswith("unexpected [MALFORMED_QUERY]")
    assert len(shown) < 200


def test_error_without_a_place_keeps_its_words_and_moves_no_cursor() -> None:
    shown = explain(refused("X", "one\x1b[2J\ntwo"), "SELECT", NOWHERE)
    assert shown == "one?[2J\ntwo [X]"
