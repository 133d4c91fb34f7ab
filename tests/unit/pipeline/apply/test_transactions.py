"""Cutting a run of events between transactions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidewire.pipeline.apply.transactions import PlannedEvent, closed_through, closed_through_lasts


def ours(replay_id: int, last: int) -> PlannedEvent:
    return PlannedEvent(replay_id, last, f"key-{last}")


def foreign(replay_id: int, key: str, *, is_gap: bool = False, is_overflow: bool = False) -> PlannedEvent:
    return PlannedEvent(replay_id, None, key, is_gap or is_overflow, is_overflow)


def test_no_events_are_closed_as_far_as_the_log_is_known() -> None:
    assert closed_through([], 40) == 40


def test_transaction_whose_last_event_is_not_read_stays_open() -> None:
    assert closed_through([ours(10, 12), ours(11, 12)], 11) is None


def test_transaction_is_closed_when_the_log_is_known_up_to_its_last_event() -> None:
    assert closed_through([ours(10, 12), ours(11, 12)], 12) == 12


def test_cut_falls_before_the_first_open_transaction() -> None:
    assert closed_through([ours(10, 10), ours(11, 12), ours(13, 20)], 15) == 12


def test_cut_by_rows_takes_the_last_boundary_within_the_limit() -> None:
    marks = [ours(10, 11), ours(11, 11), ours(12, 12), ours(13, 14), ours(14, 14)]
    assert closed_through(marks, 14, max_rows=2) == 11
    assert closed_through(marks, 14, max_rows=4) == 12
    assert closed_through(marks, 14, max_rows=5) == 14


def test_transaction_larger_than_the_limit_is_taken_whole() -> None:
    marks = [ours(10, 12), ours(11, 12), ours(12, 12), ours(13, 13)]
    assert closed_through(marks, 13, max_rows=1) == 12


def test_events_that_share_a_replay_id_are_not_separated() -> None:
    marks = [ours(10, 10), ours(10, 10), ours(11, 11)]
    assert closed_through(marks, 11, max_rows=1) == 10


def test_foreign_transaction_is_closed_by_the_next_key() -> None:
    assert closed_through([foreign(10, "a"), foreign(11, "a"), foreign(12, "b")], 12) == 11


def test_foreign_transaction_at_the_end_is_closed_when_the_log_moves_on() -> None:
    assert closed_through([foreign(10, "a")], 10) is None
    assert closed_through([foreign(10, "a")], 11) == 11


def test_foreign_gap_event_closes_no_transaction() -> None:
    marks = [foreign(10, "a"), foreign(11, "x", is_gap=True)]
    assert closed_through(marks, 11) is None
    assert closed_through([*marks, foreign(12, "a")], 12) is None
    assert closed_through([*marks, foreign(12, "a"), foreign(13, "b")], 13) == 12
    assert closed_through([*marks, foreign(12, "a")], 13) == 13


def test_foreign_gap_events_alone_need_nothing_to_close_them() -> None:
    assert closed_through([foreign(10, "x", is_gap=True), foreign(11, "y", is_gap=True)], 11) == 11


def test_foreign_overflow_event_closes_the_transaction_before_it() -> None:
    marks = [foreign(10, "a"), foreign(11, "a"), foreign(12, "a", is_overflow=True)]
    assert closed_through(marks, 12) == 12
    assert closed_through([*marks, foreign(13, "a", is_overflow=True), foreign(14, "b")], 14) == 13


def test_foreign_transaction_of_a_quiet_log_is_closed() -> None:
    marks = [foreign(10, "a"), foreign(11, "b"), foreign(12, "b"), foreign(12, "b")]
    assert closed_through(marks, 12) == 10
    assert closed_through(marks, 12, is_quiet=True) == 12
    assert closed_through([ours(10, 12)], 11, is_quiet=True) is None


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[PlannedEvent], int]:
    marks: list[PlannedEvent] = []
    position = draw(st.integers(1, 5))
    for _ in range(draw(st.integers(0, 6))):
        positions = [position + i for i in range(draw(st.integers(1, 4)))]
        last = positions[-1] + draw(st.integers(0, 1))
        marks += [ours(p, last) for p in positions if p == positions[0] or draw(st.booleans())]
        position = last + 1
    return marks, draw(st.integers(0, position))


@given(log=logs(), max_rows=st.one_of(st.none(), st.integers(1, 5)))
def test_cut_never_divides_a_transaction_nor_passes_what_is_known(
    log: tuple[list[PlannedEvent], int], max_rows: int | None
) -> None:
    marks, known = log
    marks = [mark for mark in marks if mark.replay_id <= known]
    cut = closed_through(marks, known, max_rows)
    if cut is None:
        assert marks[0].transaction_last is not None
        assert marks[0].transaction_last > known
        return
    assert cut <= known
    for mark in marks:
        assert mark.transaction_last is not None
        assert (mark.replay_id <= cut) == (mark.transaction_last <= cut)


@given(log=logs(), max_rows=st.one_of(st.none(), st.integers(1, 5)))
def test_cut_by_columns_is_the_same(log: tuple[list[PlannedEvent], int], max_rows: int | None) -> None:
    marks, known = log
    marks = [mark for mark in marks if mark.replay_id <= known]
    positions = np.array([mark.replay_id for mark in marks], np.int64)
    lasts = np.array([mark.transaction_last for mark in marks], np.int64)
    assert closed_through_lasts(positions, lasts, known, max_rows) == closed_through(marks, known, max_rows)
