"""Record ids."""

from __future__ import annotations

import subprocess
import sys
import uuid

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
    random_uuid,
    short_id,
    try_normalise_id,
)

ids15 = st.text(ALPHABET, min_size=15, max_size=15)

_FORKING = """
import os
from tidewire.ids import random_uuid

random_uuid()  # so that more are kept ready
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.write(writing, random_uuid().encode())
    os._exit(0)
os.waitpid(child, 0)
own = {random_uuid() for _ in range(200)}
forked = os.read(reading, 100).decode()
assert len(forked) == 36 and forked not in own, forked
"""


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


@given(st.integers(0, 62**9 - 1), st.text(ALPHABET, min_size=3, max_size=3))
def test_made_id_ends_with_the_suffix_of_its_letters(number: int, prefix: str) -> None:
    made = make_id(prefix, number)
    assert made == made[:15] + case_suffix(made[:15])
    assert (
        sum(ALPHABET.index(digit) * 62**place for place, digit in enumerate(reversed(made[6:15]))) == number
    )


def test_random_uuids_are_of_version_4_and_never_the_same() -> None:
    made = [random_uuid() for _ in range(200)]
    assert len(set(made)) == len(made)
    assert all(str(uuid.UUID(each)) == each and uuid.UUID(each).version == 4 for each in made)
    assert {uuid.UUID(each).variant for each in made} == {uuid.RFC_4122}


def test_random_uuids_of_a_forked_process_are_its_own() -> None:
    # Forked from a process of its own: threads of libraries that this one has loaded may not come through it.
    subprocess.run([sys.executable, "-c", _FORKING], check=True, timeout=120)


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


def test_suffix_that_calls_a_digit_upper_case_is_rejected() -> None:
    assert try_normalise_id("001000000000000BAA") is None
