"""Planning of the bus source: offsets, options, and spans divided into partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import ConfigInvalid, LogCorrupt, ReplayIdExpired
from tidewire.pipeline.run import parse_failure
from tidewire.pipeline.source import divide_span, parse_offset, parse_read_settings, render_offset
from tidewire.pipeline.spans import Span, check_continues, join_spans


@given(st.integers(0, 2**53))
def test_offset_round_trips(position: int) -> None:
    assert parse_offset(render_offset(position)) == position


def test_offset_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="offset of version 2"):
        parse_offset({"v": 2, "replay": "1"})


@given(st.lists(st.integers(11, 200)), st.integers(1, 20))
def test_partitions_make_up_the_span_and_keep_equal_positions_together(
    positions: list[int], rows: int
) -> None:
    positions.sort()
    span = Span(10, 205)
    parts = divide_span(span, positions, rows, None)
    assert join_spans(part.span for part in parts) == span
    for part in parts:
        inside = [p for p in positions if part.span.after < p <= part.span.through]
        assert part.last_row == (inside[-1] if inside else None)
        assert len(set(inside)) <= rows


def test_spans_with_a_hole_are_refused() -> None:
    with pytest.raises(LogCorrupt, match="up to 5 and then from 6"):
        join_spans([Span(6, 9), Span(1, 5)])


def test_no_spans_join_to_nothing() -> None:
    assert join_spans([]) is None


def test_span_that_overlaps_the_table_continues_it() -> None:
    check_continues(Span(3, 9), 5, "bronze")
    check_continues(Span(3, 9), None, "bronze")
    with pytest.raises(LogCorrupt, match="bronze ends at position 2"):
        check_continues(Span(3, 9), 2, "bronze")


@pytest.mark.parametrize("options", [{"starting": "yesterday"}, {"max_rows": "-1"}, {"settle_s": "inf"}])
def test_read_option_that_makes_no_sense_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid):
        parse_read_settings(options)


def test_failure_of_a_query_is_our_own_error_if_the_stack_ends_in_one() -> None:
    text = "[PYTHON_ERROR]\nTraceback\ntidewire.errors.ReplayIdExpired: gone since noon\n SQLSTATE: 38000"
    error = parse_failure("archive", text)
    assert isinstance(error, ReplayIdExpired)
    assert error.message == "the query archive failed: gone since noon"
    assert parse_failure("archive", "\nboom").code == "internal"
