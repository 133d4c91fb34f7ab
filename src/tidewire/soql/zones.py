"""Time zones as tables: from which moment on a zone's clocks are how far from UTC.

A table, unlike a zone of the system's library, is a plain value that SQL can be given too, so a query and a predicate
read the same clock. It holds the changes from 1970 on, where the tz database begins to be complete, through 2099;
before and after, the first and last offset stay as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC as UTC_TIME
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC_TIME)
_END_S = int((datetime(2100, 1, 1, tzinfo=UTC_TIME) - _EPOCH).total_seconds())
_STEP_S = 7 * 86_400  # no zone changes its clocks there and back within a week
_CASES = 16


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone: `offsets_ms[n]` is its offset from `changes_ms[n - 1]` until `changes_ms[n]`."""

    changes_ms: tuple[int, ...]
    offsets_ms: tuple[int, ...]

    def offset_at(self, epoch_ms: int) -> int:
        """How far clocks are ahead of UTC at a moment."""
        return self.offsets_ms[bisect_right(self.changes_ms, epoch_ms)]

    def local_ms(self, epoch_ms: int) -> int:
        """What clocks show at a moment, as if it were UTC."""
        return epoch_ms + self.offset_at(epoch_ms)

    def day_start(self, day: int) -> int:
        """Return when a day, counted from 1970, begins; where clocks skip midnight, the time of the skip."""
        midnight = day * DAY_MS
        place = bisect_right(self.changes_ms, midnight - DAY_MS)
        start = midnight - self.offsets_ms[place]
        for change_ms in self.changes_ms[place : place + 1]:
            if change_ms <= start:
                return max(change_ms, midnight - self.offsets_ms[place + 1])
        return start

    def render_local(self, column: str) -> str:
        """SQL for what clocks show at a column's moment; names the column often, so it should be short."""
        changes = self.changes_ms
        outer = []
        first = 0
        # Two levels of cases: far fewer comparisons than one, and hardly deeper.
        while first + _CASES < len(changes):
            last = first + _CASES
            outer.append(f"WHEN {column} < {changes[last]} THEN {self._cases(column, first, last)}")
            first = last + 1
        offset = self._cases(column, first, len(changes))
        if outer:
            offset = f"CASE {' '.join(outer)} ELSE {offset} END"
        return f"({column} + {offset})"

    def _cases(self, column: str, first: int, last: int) -> str:
        if first == last:
            return f"({self.offsets_ms[last]})"
        cases = " ".join(
            f"WHEN {column} < {self.changes_ms[place]} THEN {self.offsets_ms[place]}"
            for place in range(first, last)
        )
        return f"CASE {cases} ELSE {self.offsets_ms[last]} END"


UTC = Zone((), (0,))


@lru_cache(maxsize=256)
def load_zone(name: str) -> Zone:
    """Return the zone of this name; UTC for an unknown name. Reads the tz database, so do not call it on the loop."""
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is an OSError
        return UTC

    def offset_s(moment_s: int) -> int:
        offset = (_EPOCH + timedelta(seconds=moment_s)).astimezone(zone).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())

    changes: list[int] = []
    offsets = [offset_s(0)]
    for start in range(0, _END_S, _STEP_S):
        end = min(start + _STEP_S, _END_S - 1)
        found = offset_s(end)
        if found == offsets[-1]:
            continue
        before = start
        while end - before > 1:
            middle = (before + end) // 2
            before, end = (middle, end) if offset_s(middle) == offsets[-1] else (before, middle)
        changes.append(end * 1000)
        offsets.append(found)
    return Zone(tuple(changes), tuple(each * 1000 for each in offsets))
