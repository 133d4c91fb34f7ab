"""The newest committed events in memory, by topic, for live subscriptions.

A topic's events are found by bisecting on position, so a subscriber pays for its own topics only. The last
evicted position is kept per topic: a reader at or past it can be served from memory, one before it must read
the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter

from tidewire.events import Event

_EVENT_OVERHEAD_BYTES = 200  # estimated size of the objects around a payload


_position = attrgetter("position")
_topic = attrgetter("topic")
_payload = attrgetter("payload")


class EventRing:
    """Committed events of one org, limited by their total size."""

    def __init__(self, budget_bytes: int, start_head: int) -> None:
        self._budget_bytes = budget_bytes
        self._size_bytes = 0
        self._start_head = start_head
        self._order: deque[Event] = deque()
        self._by_topic: dict[str, list[Event]] = {}
        self._skipped: dict[str, int] = {}  # topic -> leading entries already evicted, removed in bulk
        self._evicted_through: dict[str, int] = {}
        self._last_evicted = start_head  # of any topic: a reader past it is covered for all topics

    def append(self, events: tuple[Event, ...]) -> set[str]:
        """Add a committed batch; returns the topics it touched."""
        touched: set[str] = set()
        for topic, run in groupby(events, _topic):
            self._by_topic.setdefault(topic, []).extend(run)
            touched.add(topic)
        self._order.extend(events)
        self._size_bytes += sum(map(len, map(_payload, events))) + _EVENT_OVERHEAD_BYTES * len(events)
        if self._size_bytes > self._budget_bytes:
            self._evict()
        return touched

    def mark_omitted(self, topics: tuple[tuple[str, int], ...]) -> set[str]:
        """Mark events of these topics, up to these positions, as present in the log only; returns the topics."""
        for topic, last in topics:
            self._evicted_through[topic] = max(last, self._evicted_through.get(topic, self._start_head))
            self._last_evicted = max(last, self._last_evicted)
        return {topic for topic, _ in topics}

    def covers(self, topics: frozenset[str], after: int) -> bool:
        """Whether everything after `after` on these topics is still in memory."""
        if after >= self._last_evicted:
            return True
        start = self._start_head
        evicted = self._evicted_through
        return all(evicted.get(topic, start) <= after for topic in topics)

    def read_after(self, topics: frozenset[str], after: int, max_events: int) -> list[Event]:
        """Return up to `max_events` events of these topics, oldest first. Only valid while `covers` holds."""
        if len(topics) == 1:
            (topic,) = topics
            return self._topic_after(topic, after, max_events)
        runs = [run for topic in topics if (run := self._topic_after(topic, after, max_events))]
        if len(runs) == 1:
            return runs[0]
        return list(islice(merge(*runs, key=_position), max_events))

    def _topic_after(self, topic: str, after: int, max_events: int) -> list[Event]:
        events = self._by_topic.get(topic)
        if not events or events[-1].position <= after:
            return []
        start = bisect_right(events, after, lo=self._skipped.get(topic, 0), key=_position)
        return events[start : start + max_events]

    def _evict(self) -> None:
        """Drop the oldest events until the rest fits or one is left."""
        gone: list[Event] = []
        left_bytes = self._size_bytes
        while left_bytes > self._budget_bytes and len(self._order) > 1:
            event = self._order.popleft()
            left_bytes -= len(event.payload) + _EVENT_OVERHEAD_BYTES
            gone.append(event)
        self._size_bytes = left_bytes
        for topic, run in groupby(gone, _topic):
            self._drop(topic, list(run))

    def _drop(self, topic: str, gone: list[Event]) -> None:
        """Drop these events, the oldest of their topic."""
        last = gone[-1].position
        self._evicted_through[topic] = max(last, self._evicted_through.get(topic, 0))
        self._last_evicted = max(last, self._last_evicted)
        skipped = self._skipped.get(topic, 0) + len(gone)
        events = self._by_topic[topic]
        if skipped == len(events):
            del self._by_topic[topic]
            self._skipped.pop(topic, None)
            return
        if skipped * 2 > len(events):  # shift the list rarely, not on every eviction
            del events[:skipped]
            skipped = 0
        self._skipped[topic] = skipped
