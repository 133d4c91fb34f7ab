from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.soql.ast import StringLiteral
from tidewire.soql.like import (
    LikePart,
    Wildcard,
    compile_matcher,
    parse_pattern,
    render_sql_pattern,
    successor,
    try_exact,
    try_prefix,
)

ANY, ONE = Wildcard.ANY, Wildcard.ONE
PARTS = st.lists(st.text("ab\n%.é", min_size=1, max_size=2) | st.sampled_from(Wildcard), max_size=7).map(
    tuple
)


@pytest.mark.parametrize(
    "value, escaped, parts",
    [
        ("", (), ()),
        ("AbC", (), ("abc",)),
        ("a%", (), ("a", ANY)),
        ("%%a%%", (), (ANY, "a", ANY)),
        ("__", (), (ONE, ONE)),
        ("%_%", (), (ANY, ONE, ANY)),
        ("10%_x", (2, 3), ("10%_x",)),
        ("Straße%", (), ("strasse", ANY)),
        ("E\u0301%", (), ("é", ANY)),
    ],
)
def test_pattern_is_folded_between_its_wildcards(
    value: str, escaped: tuple[int, ...], parts: tuple[LikePart, ...]
) -> None:
    assert parse_pattern(StringLiteral(value, escaped), case_sensitive=False) == parts


def test_pattern_of_a_case_sensitive_field_keeps_case() -> None:
    assert parse_pattern(StringLiteral("AbC%"), case_sensitive=True) == ("AbC", ANY)


@pytest.mark.parametrize(
    "parts, exact, prefix",
    [
        ((), "", None),
        (("a",), "a", None),
        ((ANY,), None, ""),
        (("a", ANY), None, "a"),
        (("a", ONE), None, None),
        ((ANY, "a"), None, None),
        (("a", ANY, "b"), None, None),
    ],
)
def test_pattern_shapes_are_recognised(
    parts: tuple[LikePart, ...], exact: str | None, prefix: str | None
) -> None:
    assert (try_exact(parts), try_prefix(parts)) == (exact, prefix)


@pytest.mark.parametrize(
    "prefix, following",
    [
        ("a", "b"),
        ("az", "a{"),
        ("a\ud7ff", "a\ue000"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff\U0010ffff", None),
        ("", None),
    ],
)
def test_successor_steps_over_surrogates_and_the_last_code_point(prefix: str, following: str | None) -> None:
    assert successor(prefix) == following


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_key_is_in_the_range_of_a_prefix_exactly_if_it_begins_with_it(prefix: str, key: str) -> None:
    end = successor(prefix)
    for candidate in (key, prefix + key, prefix[:-1] + key):
        is_inside = candidate >= prefix and (end is None or candidate < end)
        assert is_inside == candidate.startswith(prefix)


@settings(deadline=None)
@given(PARTS, st.text("ab\n%.é", max_size=9))
def test_matcher_agrees_with_a_regular_expression(parts: tuple[LikePart, ...], key: str) -> None:
    symbols = {ANY: ".*", ONE: "."}
    source = "".join(symbols[part] if isinstance(part, Wildcard) else re.escape(part) for part in parts)
    assert compile_matcher(parts)(key) == (re.fullmatch(source, key, re.DOTALL) is not None)


def test_matcher_of_a_hostile_pattern_stays_quick() -> None:
    parts: tuple[LikePart, ...] = (ANY, *(part for _ in range(1_000) for part in ("a", ONE, ANY)), "b")
    assert not compile_matcher(parts)("a" * 4_000)


def test_sql_pattern_escapes_what_stands_for_itself() -> None:
    assert render_sql_pattern(("1%_\\", ANY, "a", ONE)) == "1\\%\\_\\\\%a_"
