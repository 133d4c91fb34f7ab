"""The org's own calendar, which the relative dates of push topics go by: a topic is nobody's in particular,
so no user's time zone would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidewire.events import Change, Value
from tidewire.records.touched import changes_of
from tidewire.soql.dates import UTC_CALENDAR, Calendar
from tidewire.soql.zones import load_zone

ORGANIZATION = "Organization"


def calendar_of(row: Mapping[str, Value]) -> Calendar:
    """Where the org's days begin, and its fiscal year."""
    month = row.get("FiscalYearStartMonth")
    return Calendar(
        load_zone(str(row.get("TimeZoneSidKey") or "GMT")),
        month if isinstance(month, int) and 1 <= month <= 12 else 1,
        bool(row.get("UsesStartDateAsFiscalYearName")),
    )


def calendar_after(calendar: Calendar, changes: Sequence[Change]) -> Calendar:
    """The calendar as these changes leave it."""
    for change in changes_of(changes, ORGANIZATION):
        if change.after is not None:
            calendar = calendar_of(change.after)
    return calendar


def first_calendar(rows: Sequence[Mapping[str, Value]]) -> Calendar:
    """The calendar of the org whose record is among `rows`; of one that is just being made, that of UTC."""
    return calendar_of(rows[0]) if rows else UTC_CALENDAR
