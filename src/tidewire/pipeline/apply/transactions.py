"""Find where a run of events can be cut without dividing a transaction.

A transaction is closed once everything up to its last event has been read. Our server names that last event
in each event (`transaction_last`). With other servers a transaction is closed when a change event with
another key follows it, when an overflow event does, which ends its transaction's events, or when the server
reports a position past the newest event. Gap events neither join nor close a transaction, because their key
may be invented. On a quiet log none of this happens; then the caller decides that it has been quiet for long
enough. Transactions of one org do not interleave, and this module does not rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """What the planner needs of one archived event: its position and its transaction."""

    replay_id: int
    transaction_last: int | None
    transaction_key: str | None
    is_gap: bool = False
    is_overflow: bool = False


def closed_through(
    events: Sequence[PlannedEvent], known: int, max_rows: int | None = None, *, is_quiet: bool = False
) -> int | None:
    """Return the last position up to which whole transactions can be taken; None if none is closed.

    `events` are all events after a closed position, in log order; `known` is how far the log has been read;
    `is_quiet` means that the newest transaction is complete. With `max_rows`, the cut is the last one within
    that many events, or the first one if a transaction is larger.
    """
    if not events:
        return known
    limit = len(events) if max_rows is None else max_rows
    best: int | None = None
    reach = 0
    for i, (event, end) in enumerate(zip(events, _transaction_ends(events, known, is_quiet), strict=True)):
        if 0 < reach < event.replay_id:
            if best is not None and i > limit:
                return best
            best = reach
        if end is None:
            return best
        reach = max(reach, end)
    return best if best is not None and len(events) > limit else known


def closed_through_lasts(
    positions: np.ndarray, lasts: np.ndarray, known: int, max_rows: int | None = None
) -> int | None:
    """Return `closed_through` for events that all name their transaction's last one, as columns."""
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


def _transaction_ends(events: Sequence[PlannedEvent], known: int, is_quiet: bool) -> list[int | None]:
    """Return the end of each event's transaction; None if it is not known to have been read."""
    last_of_key: dict[str, int] = {}
    newest_key: str | None = None
    overflow = -1
    for event in events:
        if event.is_overflow:
            overflow = max(overflow, event.replay_id)
        if not event.is_gap and event.transaction_key is not None:
            last_of_key[event.transaction_key] = event.replay_id
            newest_key = event.transaction_key
    # For the newest event, only a later position reported by the server shows that nothing follows.
    has_moved_on = is_quiet or known > events[-1].replay_id
    ends: list[int | None] = []
    for event in events:
        if event.transaction_last is not None:
            ends.append(event.transaction_last if event.transaction_last <= known else None)
        elif event.is_gap or event.transaction_key is None:
            ends.append(event.replay_id)
        else:
            last = last_of_key[event.transaction_key]
            is_followed = newest_key != event.transaction_key or overflow > last
            ends.append(last if is_followed or has_moved_on else None)
    return ends
