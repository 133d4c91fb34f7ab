"""Where a run of events may be cut so that no transaction is divided.

A transaction is closed once everything up to its last event has been read. Our server names that last event
in each event (`transaction_last`). Other servers do not: there a transaction is closed when a change event
with another key follows it, or when the server says that the log has moved past it. Gap events neither join
nor close a transaction, because their key may be made up. Transactions of one org do not interleave, and
this module does not rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """What the planner needs of one archived event: its position and which transaction it belongs to."""

    replay_id: int
    transaction_last: int | None
    transaction_key: str | None
    is_gap: bool = False


def closed_through(marks: Sequence[TransactionMark], known: int, max_rows: int | None = None) -> int | None:
    """The last position up to which whole transactions can be taken, or None if not even one is closed.

    `marks` are all events after a closed position, in log order; `known` is how far the log has been read.
    With `max_rows`, the cut is the last one within that many events, or the first one if a transaction is
    larger.
    """
    if not marks:
        return known
    best: int | None = None
    reach = 0
    for i, (mark, end) in enumerate(zip(marks, _transaction_ends(marks, known), strict=True)):
        if 0 < reach < mark.replay_id:
            if best is not None and _is_over(i, max_rows):
                return best
            best = reach
        if end is None:
            return best
        reach = max(reach, end)
    return best if best is not None and _is_over(len(marks), max_rows) else known


def closed_through_lasts(
    positions: np.ndarray, lasts: np.ndarray, known: int, max_rows: int | None = None
) -> int | None:
    """What `closed_through` says of events that all name their transaction's last one, in columns."""
    if not len(positions):
        return known
    is_open = lasts > known
    first_open = int(is_open.argmax()) if is_open.any() else len(positions)
    reach = np.maximum.accumulate(lasts[:first_open])
    upcoming = positions[1 : first_open + 1]
    cuts = np.flatnonzero(reach[: len(upcoming)] < upcoming)  # a cut after so many rows and one more
    is_all_closed = first_open == len(positions)
    if not len(cuts):
        return known if is_all_closed else None
    if max_rows is None:
        return known if is_all_closed else int(reach[cuts[-1]])
    place = max(0, int(np.count_nonzero(cuts < max_rows)) - 1)
    if place == len(cuts) - 1 and is_all_closed and len(positions) <= max_rows:
        return known
    return int(reach[cuts[place]])


def _is_over(rows: int, max_rows: int | None) -> bool:
    return max_rows is not None and rows > max_rows


def _transaction_ends(marks: Sequence[TransactionMark], known: int) -> list[int | None]:
    """For each event the position its transaction ends at, or None if that is not known to have been read."""
    last_of_key: dict[str, int] = {}
    last_change: TransactionMark | None = None
    for mark in marks:
        if mark.is_gap or mark.transaction_key is None:
            continue
        last_of_key[mark.transaction_key] = mark.replay_id
        last_change = mark
    ends: list[int | None] = []
    for mark in marks:
        if mark.transaction_last is not None:
            ends.append(mark.transaction_last if mark.transaction_last <= known else None)
        elif mark.is_gap or mark.transaction_key is None:
            ends.append(mark.replay_id)
        else:
            last = last_of_key[mark.transaction_key]
            is_followed = last_change is not None and last_change.transaction_key != mark.transaction_key
            ends.append(last if is_followed or known > last else None)
    return ends
