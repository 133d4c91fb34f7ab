"""How much the log keeps of each family, counted a bounded piece at a time.

Events are never changed, so what was counted of a partition stays counted: each read goes on where the last
one stopped, and looks at so many rows at most. Until it has caught up, the figures are lower bounds and say so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidewire.events import Family
from tidewire.storage.store import Reader

_ROWS_AT_ONCE = 200_000  # some hundred milliseconds of one reader thread


@dataclass(frozen=True, slots=True)
class FamilySize:
    """What is kept of one family. `oldest_ms` is when its oldest event was made, None if it keeps none."""

    family: Family
    events: int
    payload_bytes: int
    oldest_ms: int | None
    is_counted: bool


@dataclass(frozen=True, slots=True)
class _Counted:
    """One partition, as far as it has been looked at."""

    through: int = -1
    events: int = 0
    payload_bytes: int = 0
    oldest_ms: int | None = None
    is_whole: bool = False


class LogSize:
    """One org's. Remembers what it counted; one read at a time."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], _Counted] = {}
        self._newest: dict[int, int] = {}

    def read(self, reader: Reader) -> tuple[FamilySize, ...]:
        """Every family, also those that keep nothing."""
        kept = sorted((int(f), int(h)) for f, h in reader.execute("SELECT family, hour FROM partitions"))
        known = self._counted
        self._counted = {}
        # Of each family, the last of its hours at the last read: only there and later can more have come.
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


def _count_on(reader: Reader, key: tuple[int, int], counted: _Counted, rows_left: int) -> _Counted:
    """What is known of a partition after looking at so many more of its rows."""
    table = f"e{key[0]}_{key[1]}"
    rows = reader.execute(
        f"SELECT position, created_ms FROM {table} WHERE position > ? ORDER BY position LIMIT 1",  # noqa: S608
        (counted.through,),
    )
    if not rows:
        return replace(counted, is_whole=True)
    if rows_left <= 0:
        return replace(counted, is_whole=False)
    first, made_ms = int(rows[0][0]), int(rows[0][1])
    # No two rows share a position, so a stretch of positions is a bound on the rows in it.
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
