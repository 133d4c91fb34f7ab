"""Query cursors: whose they are, how long they live, and how many there may be."""

from __future__ import annotations

from tidewire.clock import ManualClock
from tidewire.gate.query_cursors import CursorLimits, QueryCursors


def make(clock: ManualClock | None = None, **limits: int) -> QueryCursors[str]:
    return QueryCursors(clock or ManualClock(), CursorLimits(**limits))


def test_locator_finds_the_answer_and_the_offset_again_and_again() -> None:
    cursors = make()
    cursor_id = cursors.open("s1", "rows", 5000)
    assert cursor_id.startswith("01g")
    assert len(cursor_id) == 18
    for _ in range(2):
        assert cursors.try_find("s1", f"{cursor_id}-2000") == (cursor_id, "rows", 2000)
    assert cursors.try_find("s1", f"{cursor_id[:15]}-4999") == (cursor_id, "rows", 4999)


def test_locator_of_another_session_is_unknown() -> None:
    cursors = make()
    cursor_id = cursors.open("s1", "rows", 5000)
    assert cursors.try_find("s2", f"{cursor_id}-2000") is None


def test_locator_that_was_never_given_out_is_unknown() -> None:
    cursors = make()
    cursor_id = cursors.open("s1", "rows", 5000)
    for text in (
        cursor_id,
        f"{cursor_id}-",
        f"{cursor_id}-5000",
        f"{cursor_id}--1",
        f"{cursor_id}-2000x",
        "",
        "x",
    ):
        assert cursors.try_find("s1", text) is None


def test_cursor_expires_when_idle_and_lives_while_used() -> None:
    clock = ManualClock()
    cursors = make(clock)
    used, idle = cursors.open("s1", "used", 10), cursors.open("s1", "idle", 10)
    clock.advance(600)
    assert cursors.try_find("s1", f"{used}-1") is not None
    clock.advance(600)
    assert cursors.try_find("s1", f"{used}-1") is not None
    assert cursors.try_find("s1", f"{idle}-1") is None
    assert len(cursors) == 1


def test_wall_clock_step_expires_nothing() -> None:
    clock = ManualClock()
    cursors = make(clock)
    cursor_id = cursors.open("s1", "rows", 10)
    clock.step(1_000_000)
    assert cursors.try_find("s1", f"{cursor_id}-1") is not None


def test_session_over_its_bound_loses_its_oldest_cursor_only() -> None:
    cursors = make(per_session=2)
    other = cursors.open("s2", "other", 10)
    first, second, third = (cursors.open("s1", name, 10) for name in ("a", "b", "c"))
    assert cursors.try_find("s1", f"{first}-1") is None
    assert cursors.try_find("s1", f"{second}-1") is not None
    assert cursors.try_find("s1", f"{third}-1") is not None
    assert cursors.try_find("s2", f"{other}-1") is not None


def test_rows_over_the_bound_push_out_the_cursor_unused_for_longest() -> None:
    cursors = make(rows_in_all=100)
    first, second = cursors.open("s1", "a", 50), cursors.open("s2", "b", 50)
    assert cursors.try_find("s1", f"{first}-1") is not None  # now the second is the idle one
    third = cursors.open("s3", "c", 50)
    assert cursors.try_find("s2", f"{second}-1") is None
    assert cursors.try_find("s1", f"{first}-1") is not None
    assert cursors.try_find("s3", f"{third}-1") is not None


def test_answer_larger_than_the_bound_is_still_kept_alone() -> None:
    cursors = make(rows_in_all=100)
    cursors.open("s1", "a", 50)
    large = cursors.open("s2", "b", 1000)
    assert len(cursors) == 1
    assert cursors.try_find("s2", f"{large}-999") is not None


def test_cursors_in_all_are_bounded() -> None:
    cursors = make(in_all=3)
    for number in range(10):
        cursors.open(f"s{number}", "rows", 1)
    assert len(cursors) == 3


def test_ended_session_leaves_no_cursor() -> None:
    cursors = make()
    cursors.open("s1", "a", 10)
    cursors.open("s2", "b", 10)
    cursors.drop_session("s1")
    assert len(cursors) == 1


def test_rows_inside_rows_count_towards_the_bound() -> None:
    cursors = make(rows_in_all=100)
    first = cursors.open("s1", "rows", 10, 60)
    second = cursors.open("s1", "rows", 10, 60)
    assert cursors.try_find("s1", f"{first}-1") is None
    assert cursors.try_find("s1", f"{second}-9") is not None


def test_cursors_of_one_query_count_as_one_of_the_session() -> None:
    cursors = make(per_session=2)
    first, second = cursors.open("s1", "a", 10), cursors.open("s1", "b", 10)
    inner = [cursors.open("s1", "child", 10, beside=first) for _ in range(5)]
    assert all(cursors.try_find("s1", f"{each}-1") for each in (second, first, *inner))
    third = cursors.open("s1", "c", 10)  # the second query was used least lately
    assert cursors.try_find("s1", f"{second}-1") is None
    assert all(cursors.try_find("s1", f"{each}-1") for each in (third, first, *inner))


def test_dropping_a_query_drops_all_its_cursors() -> None:
    cursors = make(per_session=1)
    first = cursors.open("s1", "a", 10)
    cursors.open("s1", "child", 10, beside=first)
    cursors.open("s1", "b", 10)
    assert len(cursors) == 1


def test_query_over_its_bound_loses_the_cursor_unused_for_longest() -> None:
    cursors = make(per_query=3)
    root = cursors.open("s1", "a", 10)
    inner = []
    for _ in range(5):
        inner.append(cursors.open("s1", "child", 10, beside=root))
        assert cursors.try_find("s1", f"{root}-1") is not None
    assert [cursors.try_find("s1", f"{each}-1") is not None for each in inner] == [False] * 3 + [True] * 2
