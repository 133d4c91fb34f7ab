"""Counts the events and bytes that the log holds of each family, a bounded number of rows at a time.

Events never change, so the count of a partition's rows stays valid: each read continues where the last one stopped.
Until it has caught up, the numbers are lower bounds and marked as such.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidewire.eventlog.log import FamilySize
from tidewire.events import Family
from tidewire.storage.store import Reader

_ROWS_AT_ONCE = 200_000  # about a hundred milliseconds of one reader thread


@dataclass(frozen=True, slots=True)
class _Counted:
    """What is known of one partition, up to the position `through`."""

    through: int = -1
    events: int = 0
    payload_bytes: int = 0
    oldest_ms: int | None = None
    is_whole: bool = False


class SizeCounter:
    """Remembers what it counted. Not safe for two reads at a time."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], _Counted] = {}
        self._newest: dict[int, int] = {}

    def read(self, reader: Reader) -> tuple[FamilySize, ...]:
        """Return the size of every family, including empty ones."""
        kept = sorted((int(f), int(h)) for f, h in reader.execute("SELECT family, hour FROM partitions"))
        known = self._counted
        self._counted = {}
        # By family, the newest hour at the previous read: only that one and later ones can have grown.
        newest, self._newest = self._newest, dict(kept)
        rows_left = _ROWS_AT_ONCE
        for key in kept:
            counted = known.get(key, _Counted())
            if not counted.is_whole or key[1] >= newest.get(key[0], key[1]):
                before = counted.events
                counted = _count_on(reader, key, counted, rows_left)
                rows_left -= counted.events - before
            self._counted[key] = counted
        return tuple(self._family(family) for family in Family)

    def _family(self, family: Family) -> FamilySize:
        own = [counted for key, counted in self._counted.items() if key[0] == family]
        return FamilySize(
            family,
            sum(counted.events for counted in own),
            sum(counted.payload_bytes for counted in own),
            next((counted.oldest_ms for counted in own if counted.oldest_ms is not None), None),
            all(counted.is_whole for counted in own),
        )


def table_name(family: int, hour: int) -> str:
    """Return the name of a partition's table."""
    return f"e{family:d}_{hour}"


def _count_on(reader: Reader, key: tuple[int, int], counted: _Counted, rows_left: int) -> _Counted:
    """Count up to `rows_left` more rows of a partition."""
    table = table_name(*key)
    rows = reader.execute(
        f"SELECT position, created_ms FROM {table} WHERE position > ? ORDER BY position LIMIT 1",  # noqa: S608
        (counted.through,),
    )
    if not rows:
        return replace(counted, is_whole=True)
    if rows_left <= 0:
        return replace(counted, is_whole=False)
    first, made_ms = int(rows[0][0]), int(rows[0][1])
    # Positions are unique, so a range of positions bounds the number of rows in it.
    ((events, payload_bytes, through),) = reader.execute(
        f"SELECT COUNT(*), SUM(LENGTH(payload)), MAX(position) FROM {table}"  # noqa: S608
        " WHERE position > ? AND position < ?",
        (counted.through, first + rows_left),
    )
    ((newest,),) = reader.execute(f"SELECT MAX(position) FROM {table}")  # noqa: S608
    return _Counted(
        int(through),
        counted.events + int(events),
        counted.payload_bytes + int(payload_bytes),
        made_ms if counted.oldest_ms is None else counted.oldest_ms,
        int(newest) == int(through),
    )
