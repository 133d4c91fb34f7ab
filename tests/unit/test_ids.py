"""Record ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import IdMalformed
from tidewire.ids import (
    ALPHABET,
    EMPTY_ID,
    case_suffix,
    key_prefix,
    make_id,
    normalise_id,
    short_id,
    try_normalise_id,
)

ids15 = st.text(ALPHABET, min_size=15, max_size=15)


def test_known_suffixes() -> None:
    assert "001000000000000" + case_suffix("001000000000000") == "001000000000000AAA"
    assert normalise_id("001D000000IRFma") == "001D000000IRFmaIAH"
    assert normalise_id(EMPTY_ID) == EMPTY_ID


def test_ids_count_in_base_62() -> None:
    assert make_id("001", 1)[:15] == "001TW0000000001"
    assert make_id("001", 61)[:15] == "001TW000000000z"
    assert make_id("001", 62)[:15] == "001TW0000000010"
    with pytest.raises(OverflowError):
        make_id("001", 62**9)


def test_key_prefixes_count_in_base_62() -> None:
    assert [key_prefix(n, "a") for n in (0, 1, 61, 62)] == ["a00", "a01", "a0z", "a10"]
    with pytest.raises(OverflowError):
        key_prefix(62 * 62, "a")


@given(ids15)
def test_short_and_long_form_mean_the_same(id15: str) -> None:
    long = normalise_id(id15)
    assert (short_id(long), len(long)) == (id15, 18)
    assert normalise_id(long) == long


@given(ids15, st.sampled_from([str.lower, str.upper]))
def test_lost_letter_case_is_repaired_from_the_suffix(id15: str, fold: object) -> None:
    long = normalise_id(id15)
    folded = long.lower() if fold is str.lower else long.upper()
    assert normalise_id(folded) == long


@pytest.mark.parametrize(
    "text", ["", "001", "001D000000IRFm", "001D000000IRFma!", "001D000000IRFmaIA", "ü" * 15]
)
def test_other_text_is_no_id(text: str) -> None:
    assert try_normalise_id(text) is None
    with pytest.raises(IdMalformed):
        normalise_id(text)


def test_suffix_that_calls_a_digit_upper_case_is_refused() -> None:
    assert try_normalise_id("001000000000000BAA") is None
