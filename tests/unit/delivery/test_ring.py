"""The ring of newest events: what it still holds, it gives back in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewire.delivery.ring import EventRing
from tidewire.events import Event, Family


def event(position: int, topic: str, size: int = 100) -> Event:
    return Event(position, topic, Family.CHANGE, b"x" * size, 0, "", "", position)


def test_one_topic_is_read_after_a_position() -> None:
    ring = EventRing(1 << 20, 0)
    events = tuple(event(p, "A" if p % 2 else "B") for p in range(1, 11))
    assert ring.append(events) == {"A", "B"}
    assert [e.position for e in ring.read_after(frozenset("A"), 3, 10)] == [5, 7, 9]
    assert [e.position for e in ring.read_after(frozenset("A"), 3, 2)] == [5, 7]
    assert ring.read_after(frozenset("A"), 9, 10) == []
    assert ring.read_after(frozenset("C"), 0, 10) == []


def test_what_came_before_the_ring_is_not_covered() -> None:
    ring = EventRing(1 << 20, 50)
    assert not ring.covers(frozenset("A"), 49)
    assert ring.covers(frozenset("A"), 50)


def test_eviction_ends_coverage_of_its_topic_only() -> None:
    ring = EventRing(3 * 300, 0)
    ring.append((event(1, "A"), event(2, "B"), event(3, "B"), event(4, "B")))
    assert not ring.covers(frozenset("A"), 0)
    assert ring.covers(frozenset("A"), 1)
    assert ring.covers(frozenset("B"), 0)


def test_what_is_left_out_is_not_covered_and_stays_so_when_older_events_go() -> None:
    ring = EventRing(3 * 300, 0)
    ring.append((event(1, "A"), event(2, "B")))
    assert ring.mark_omitted((("A", 5),)) == {"A"}
    assert not ring.covers(frozenset("A"), 1)
    assert ring.covers(frozenset("A"), 5)
    assert ring.covers(frozenset("B"), 0)
    ring.append((event(6, "A"), event(7, "B"), event(8, "B"), event(9, "B")))
    assert not ring.covers(frozenset("A"), 4)
    assert not ring.covers(frozenset("AB"), 4)


def test_what_is_left_out_of_a_ring_that_began_later_leaves_its_beginning_in_force() -> None:
    ring = EventRing(1 << 20, 5001)
    assert ring.mark_omitted((("A", 5000),)) == {"A"}
    assert not ring.covers(frozenset("A"), 5000)
    assert ring.covers(frozenset("A"), 5001)


@given(
    topics=st.lists(st.sampled_from("ABC"), max_size=60),
    budget=st.integers(1, 20),
    wanted=st.sets(st.sampled_from("ABC"), min_size=1),
    after=st.integers(0, 60),
    limit=st.integers(1, 10),
    at_once=st.integers(1, 30),
)
def test_covered_reads_equal_the_whole_history(
    topics: list[str], budget: int, wanted: set[str], after: int, limit: int, at_once: int
) -> None:
    ring = EventRing(budget * 300, 0)
    history = [event(p, t) for p, t in enumerate(topics, 1)]
    for start in range(0, len(history), at_once):
        batch = tuple(history[start : start + at_once])
        assert ring.append(batch) == {each.topic for each in batch}
    names = frozenset(wanted)
    if ring.covers(names, after):
        expected = [e for e in history if e.topic in wanted and e.position > after][:limit]
        assert ring.read_after(names, after, limit) == expected
    assert ring.covers(names, len(history))
