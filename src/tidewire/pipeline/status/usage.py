"""Usage: events published and delivered, by hour and by day, kept as long as the lake.

Our server reports each full hour of the last thirty days; other servers only the days of
PlatformEventUsageMetric. Both are stored under the metric's names. A known value is not written again, so a
rollup may run at any time, any number of times; of a changed value the newest row counts. No usage means no
row.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, append_counted, try_open_table
from tidewire.pipeline.source.records_reader import parse_datetime

if TYPE_CHECKING:
    from tidewire.clock import Clock

HOURLY_TABLE = "usage/hourly"
DAILY_TABLE = "usage/daily"
WRITER = "usage"
_STATUS = "/services/tidewire/v1/status"
_METRICS = "SELECT Name, StartDate, EndDate, Value FROM PlatformEventUsageMetric"
_QUERY = f"/services/data/v67.0/query?q={quote(_METRICS)}"
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

Values = dict[tuple[int, str], int]
"""Values by the start of the hour or day, and the metric's name."""


class Server(Protocol):
    """The server to ask; RecordsReader implements it."""

    def try_ask(self, path: str) -> Any: ...


def roll_up(lake: Lake, epoch: int, server: Server, clock: Clock) -> int:
    """Store the server's usage of full hours and days; return how many values are new or changed.

    Raises WriteConflict.
    """
    now_ms = clock.now_ms()
    hours = _parse_hours(server.try_ask(_STATUS), now_ms)
    days = _parse_days(server.try_ask(_QUERY)) or _sum_days({**read_hourly(lake), **hours}, now_ms)
    written = _append(lake, epoch, now_ms, HOURLY_TABLE, "hour_ms", hours)
    return written + _append(lake, epoch, now_ms, DAILY_TABLE, "day_ms", days)


def read_hourly(lake: Lake) -> Values:
    """Return the value of each hour."""
    return _read(lake, HOURLY_TABLE, "hour_ms")


def read_daily(lake: Lake) -> Values:
    """Return the value of each day."""
    return _read(lake, DAILY_TABLE, "day_ms")


def _read(lake: Lake, name: str, key: str) -> Values:
    table = try_open_table(lake, name)
    if table is None:
        return {}
    rows = read_rows(table).sort_by([("at_ms", "ascending"), ("value", "ascending")]).to_pylist()
    return {(row[key], row["name"]): row["value"] for row in rows}


def _append(lake: Lake, epoch: int, at_ms: int, name: str, key: str, reported: Values) -> int:
    known = _read(lake, name, key)
    fresh = sorted(each for each in reported.items() if known.get(each[0], 0) != each[1])
    rows = [
        {key: start_ms, "name": metric, "value": value, "at_ms": at_ms} for (start_ms, metric), value in fresh
    ]
    with manifest.lock:
        append_counted(lake, name, rows, epoch, WRITER)
    return len(rows)


def _parse_hours(answer: Any, now_ms: int) -> Values:
    """Return the full hours of our server's status."""
    hours: Values = {}
    reported = answer.get("usage", ()) if isinstance(answer, dict) else ()
    for each in reported if isinstance(reported, list) else ():
        try:
            start_ms, name, value = int(each["hour_ms"]), str(each["name"]), int(each["value"])
        except (KeyError, TypeError, ValueError):
            continue
        if start_ms % _HOUR_MS == 0 and start_ms + _HOUR_MS <= now_ms:
            hours[start_ms, name] = value
    return hours


def _parse_days(answer: Any) -> Values:
    """Return the full days of PlatformEventUsageMetric, without its window of the last 24 hours."""
    days: Values = {}
    for record in answer.get("records", ()) if isinstance(answer, dict) else ():
        try:
            start_ms, end_ms = parse_datetime(record["StartDate"]), parse_datetime(record["EndDate"])
            name, value = str(record["Name"]), int(record["Value"])
        except (KeyError, TypeError, ValueError):
            continue
        if start_ms % _DAY_MS == 0 and end_ms - start_ms == _DAY_MS:
            days[start_ms, name] = value
    return days


def _sum_days(hours: Values, now_ms: int) -> Values:
    """Sum full days from their hours. The first known day may be incomplete and is skipped."""
    days: Counter[tuple[int, str]] = Counter()
    first_ms = min((start_ms for start_ms, _ in hours), default=0)
    for (start_ms, name), value in hours.items():
        day_ms = start_ms - start_ms % _DAY_MS
        if first_ms <= day_ms and day_ms + _DAY_MS <= now_ms:
            days[day_ms, name] += value
    return dict(days)
