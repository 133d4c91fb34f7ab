"""Chunks of an object: the gaps between them, and records that they should have returned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.clock import ManualClock
from tidewire.pipeline.upkeep.backoff import Backoff
from tidewire.pipeline.upkeep.chunks import Chunk, Gap, find_gap, find_unreturned

IDS = "ABCDEFG"
BOUNDS = st.sampled_from(["", *IDS])


@st.composite
def chunk(draw: st.DrawFn) -> Chunk:
    lo, hi = draw(BOUNDS), draw(BOUNDS)
    if hi and hi <= lo:
        lo, hi = hi, lo
    return Chunk("" if lo == hi else lo, hi, draw(st.integers(1, 9)))


def covers(each: Chunk, record_id: str) -> bool:
    return each.lo < record_id and (not each.hi or record_id <= each.hi)


@pytest.mark.parametrize(
    "chunks, gap",
    [
        ([], Gap("", "")),
        ([Chunk("", "", 1)], None),
        ([Chunk("", "C", 1)], Gap("C", "")),
        ([Chunk("C", "", 1), Chunk("", "B", 1)], Gap("B", "C")),
        ([Chunk("", "C", 1), Chunk("B", "E", 1), Chunk("E", "", 1)], None),
        ([Chunk("", "E", 1), Chunk("", "B", 1)], Gap("E", "")),
    ],
)
def test_gap_is_the_lowest_range_that_no_chunk_covers(chunks: list[Chunk], gap: Gap | None) -> None:
    assert find_gap(chunks) == gap


@given(st.lists(chunk(), max_size=6))
def test_reading_gap_after_gap_covers_every_id(chunks: list[Chunk]) -> None:
    for _ in range(12):
        gap = find_gap(chunks)
        if gap is None:
            break
        middle = next((i for i in IDS if gap.lo < i and (not gap.hi or i < gap.hi)), gap.hi)
        chunks = [*chunks, Chunk(gap.lo, middle, 1)]
    assert find_gap(chunks) is None
    assert all(any(covers(each, record_id) for each in chunks) for record_id in (*IDS, "H"))


@given(st.lists(chunk(), max_size=6), st.dictionaries(st.sampled_from([*IDS, "BB", "H"]), st.integers(0, 9)))
def test_unreturned_are_known_only_from_before_the_newest_chunk_that_covers_them(
    chunks: list[Chunk], known: dict[str, int]
) -> None:
    expected = [
        record_id
        for record_id, position in known.items()
        if position < max((each.fence for each in chunks if covers(each, record_id)), default=-1)
    ]
    assert find_unreturned(chunks, known.items()) == expected


def test_attempts_after_failures_come_less_and_less_often_up_to_a_limit() -> None:
    clock = ManualClock()
    backoff = Backoff(clock, first_s=1, longest_s=4)
    waited = []
    for _ in range(4):
        backoff.failed("x")
        delay = 0
        while not backoff.is_due("x"):
            clock.advance(1)
            delay += 1
        waited.append(delay)
    assert waited == [1, 2, 4, 4]
    backoff.failed("x")
    assert backoff.is_due("y")
    backoff.succeeded("x")
    assert backoff.is_due("x")
