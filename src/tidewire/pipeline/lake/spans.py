"""Spans of the log: which positions a piece of work covers, whether or not they hold an event.

A micro-batch hands its function rows but not its offsets, and rows alone cannot say how far the log was
read: positions that belong to other channels have no row. So each partition of our sources ends with a
mark, a row that carries the partition's span. Marks of one batch must join without a hole; a hole means
rows were not read, and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tidewire.errors import LogCorrupt

START = 0
"""The position before every event: reading after it starts with the oldest event the server keeps."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The positions p with `after` < p <= `through`."""

    after: int
    through: int


def join_spans(spans: Iterable[Span]) -> Span | None:
    """The one span that the given ones make up, or None if there is none. Raises LogCorrupt if they leave a
    hole.
    """
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
    """Refuse a span that starts beyond what `table` already holds. `committed` is None for a table without
    commits.

    Overlap is fine, since rows at or below the committed position are dropped; a hole would lose events for
    good.
    """
    if committed is not None and span.after > committed:
        raise LogCorrupt(
            f"{table} ends at position {committed}, but the checkpoint resumes after {span.after}. "
            "They do not belong together: delete the query's checkpoint directory and start again.",
            position=committed,
            table=table,
        )
