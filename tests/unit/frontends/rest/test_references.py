"""References between subrequests."""

from __future__ import annotations

from typing import Any

import pytest

from tidewire.errors import BodyTooLarge
from tidewire.frontends.rest.composite.references import (
    Scalar,
    count_expressions,
    fill,
    fill_url,
    resolve,
)
from tidewire.frontends.rest.wire import MAX_JSON_DEPTH

ANSWERS: dict[str, object] = {
    "acc": {"id": "001", "n": 5, "x": 1.5, "yes": True, "none": None, "address": {"city": "Rome"}},
    "list": [{"id": "a"}, {"id": "b/c&d"}],
}


def resolved(value: object, *, allows_null: bool = True) -> dict[str, Scalar]:
    values = resolve(count_expressions(value), ANSWERS, allows_null=allows_null)
    assert isinstance(values, dict), values
    return values


@pytest.mark.parametrize(
    "text, expected",
    [
        ("@{acc.id}", "001"),
        ("@{acc.n}", 5),
        ("@{acc.x}", 1.5),
        ("@{acc.yes}", True),
        ("@{acc.none}", None),
        ("@{acc.address.city}", "Rome"),
        ("@{list[1].id}", "b/c&d"),
        ("<@{acc.n}-@{acc.id}-@{acc.yes}-@{acc.none}>", "<5-001-true->"),
        ("no { reference @ here }", "no { reference @ here }"),
    ],
)
def test_reference_alone_keeps_its_type_and_inside_text_becomes_text(text: str, expected: object) -> None:
    assert fill(text, resolved(text)) == expected


def test_references_are_filled_at_any_place_of_a_body() -> None:
    body = {"a": ["@{acc.id}", {"b": "@{acc.n}"}], "c": None, "@{acc.id}": 1}
    assert fill(body, resolved(body)) == {"a": ["001", {"b": 5}], "c": None, "@{acc.id}": 1}


def test_value_stays_inside_its_place_in_a_url() -> None:
    url = "/x/@{list[1].id}?q='@{list[1].id}'"
    assert fill_url(url, resolved(url)) == "/x/b%2Fc%26d?q='b%2Fc%26d'"
    assert fill_url("@{list[1].id}/z", resolved("@{list[1].id}")) == "b/c&d/z"


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "nope.id",
            "acc.Id",
            "acc",
            "acc.address",
            "list[2].id",
            "list[0]",
            "list.id",
            "acc[0]",
            "acc.id.x",
        ),
        *("", "acc..id", "acc.id ", "list[99999999999].id", "list[-1].id", "[0]", "acc.__class__.x"),
    ],
)
def test_reference_without_a_value_is_reported(expression: str) -> None:
    told = resolve(count_expressions("@{" + expression + "}"), ANSWERS, allows_null=True)
    assert isinstance(told, str)
    assert told.startswith(f"Invalid reference specified. No value for {expression} found in ")


def test_null_is_no_value_before_version_52() -> None:
    assert isinstance(resolve(count_expressions("@{acc.none}"), ANSWERS, allows_null=False), str)


def test_references_cannot_grow_a_body_beyond_its_limit() -> None:
    answers = {"a": {"b": "x" * 100_000}}
    with pytest.raises(BodyTooLarge):
        resolve(count_expressions(["@{a.b}"] * 200), answers, allows_null=True)


def test_fill_replaces_references_at_the_greatest_depth_of_a_body() -> None:
    value: Any = "@{acc.id}"
    for _ in range(MAX_JSON_DEPTH):
        value = [value]
    assert "001" in str(fill(value, resolved(value)))
