"""Spans of the log: the positions that a piece of work covers, whether or not they hold an event.

Spans of one batch must join without a hole. A hole means that rows were not read, and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tidewire.errors import LogCorrupt

START = 0
"""The position before every event: reading after it starts with the oldest event that the server keeps."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The positions p with `after` < p <= `through`."""

    after: int
    through: int


def join_spans(spans: Iterable[Span]) -> Span | None:
    """Join adjacent spans; None if there are none. Raises LogCorrupt if they leave a hole."""
    ordered = sorted(spans)
    if not ordered:
        return None
    for left, right in pairwise(ordered):
        if right.after != left.through:
            raise LogCorrupt(
                f"the batch covers positions up to {left.through} and then from {right.after}: rows are missing",
                position=left.through,
            )
    return Span(ordered[0].after, ordered[-1].through)


def check_continues(span: Span, committed: int | None, table: str) -> None:
    """Raise LogCorrupt if a span starts beyond what `table` holds. `committed` is None without commits.

    Overlap is fine, since rows at or below the committed position are dropped; a hole would lose events
    forever.
    """
    if committed is not None and span.after > committed:
        raise LogCorrupt(
            f"{table} ends at position {committed}, but the checkpoint resumes after {span.after}. "
            "They do not belong together: delete the query's checkpoint directory and start again.",
            position=committed,
            table=table,
        )
