"""Another life of a log: what a restored copy must do before it gives out a position.

The log that was copied may have gone on after the copy was taken, and its clients know positions that the copy
never heard of. The copy therefore closes its own incarnation at its head and begins a new one above everything
that the other life can have given out, so that such a position lies between two incarnations and is refused.

The bound: a log gives out fewer than 2^21 positions a second on average, which is the distance that two
incarnations keep for every second between them.
"""

from __future__ import annotations

from tidewire.eventlog.log import first_position_at

_PER_SECOND_BITS = 21


def first_position_after(head: int, taken_ms: int, now_ms: int) -> int:
    """Where a copy with this head, taken at `taken_ms`, begins anew: above both its lives, by the clock and by
    the head. The head decides if the log began ahead of the clock, or the clock was set back.
    """
    elapsed_s = max(0, now_ms // 1000 - taken_ms // 1000)
    # One second more than counted: each of the two times may lie anywhere in its second.
    by_head = ((head >> _PER_SECOND_BITS) + elapsed_s + 2) << _PER_SECOND_BITS
    by_clock = first_position_at(now_ms + 1000)
    return max(by_head, by_clock)


def incarnation_statements(head: int, first_position: int) -> tuple[str, ...]:
    """SQL that ends the open incarnation at `head` and begins the next one, for one transaction.

    Complete text without parameters, because a restore hands it to a program of the database.
    """
    return (
        f"UPDATE incarnations SET last_position = {head:d} WHERE last_position IS NULL",  # noqa: S608  # numbers
        f"INSERT INTO incarnations (first_position, last_position) VALUES ({first_position:d}, NULL)",  # noqa: S608
        f"UPDATE progress SET next_position = {first_position:d}, group_number = group_number + 1",  # noqa: S608
    )
