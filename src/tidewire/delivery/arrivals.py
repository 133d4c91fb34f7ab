"""When the commits of the last moments reached this edge, and how long each took from here to its clients."""

from __future__ import annotations

from tidewire.events import CommittedBatch
from tidewire.telemetry import TIMINGS, timer_s
from tidewire.tracing import PRODUCER, add_span

_KEPT = 256  # a client that is further behind reads the log, and its time says nothing about ours


class Arrivals:
    """One per hub."""

    def __init__(self) -> None:
        self._by_head: dict[int, tuple[float, tuple[tuple[int, str], ...]]] = {}

    def note(self, batch: CommittedBatch) -> None:
        """A commit has come."""
        if not batch.events:
            return
        self._by_head[batch.head] = (timer_s(), batch.traces)
        if len(self._by_head) > _KEPT:
            del self._by_head[next(iter(self._by_head))]

    def note_delivered(self, front_end: str, through: int, clients: int = 1) -> None:
        """So many clients of a front end have been written everything through a position."""
        found = self._by_head.get(through)
        if found is None:
            return
        arrived_s, traces = found
        TIMINGS[front_end + ".commit_delivered"].observe(timer_s() - arrived_s, clients)
        for _, parent in traces:
            add_span(parent, f"deliver {front_end}", PRODUCER, arrived_s, {"tidewire.clients": clients})
