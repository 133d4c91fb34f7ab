"""Positions of two incarnations of a log never meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.eventlog.log import first_position_after, first_position_at

STRIDE = 1 << 21
NOW_MS = 1_800_000_000_000


@given(
    started_ms=st.integers(NOW_MS, NOW_MS + 10_000),
    until_taken_ms=st.integers(0, 10_000),
    until_restored_ms=st.integers(0, 100_000),
    per_ms=st.integers(0, STRIDE // 1000 - 1),
)
def test_first_position_after_a_restore_is_above_both_incarnations(
    started_ms: int, until_taken_ms: int, until_restored_ms: int, per_ms: int
) -> None:
    taken_ms = started_ms + until_taken_ms
    now_ms = taken_ms + until_restored_ms
    head = first_position_at(started_ms) + until_taken_ms * per_ms
    last_of_the_other_life = head + until_restored_ms * per_ms
    assert first_position_after(head, taken_ms, now_ms) > last_of_the_other_life


def test_first_position_after_a_restore_in_the_same_second_leaves_a_gap() -> None:
    head = first_position_at(NOW_MS) + 10
    assert first_position_after(head, NOW_MS, NOW_MS) >= head + STRIDE


@pytest.mark.parametrize("head", [1, first_position_at(NOW_MS), 1 << 51])
def test_first_position_is_above_the_head_wherever_the_log_began(head: int) -> None:
    first = first_position_after(head, NOW_MS, NOW_MS + 5_000)
    assert first >= head + 5 * STRIDE
    assert first >= first_position_at(NOW_MS + 5_000)


def test_first_position_rises_although_the_clock_was_set_back() -> None:
    head = first_position_at(NOW_MS) + 10
    assert first_position_after(head, NOW_MS, NOW_MS - 3_600_000) >= head + STRIDE
