"""The org's calendar: time zone and fiscal year, by which push topics evaluate relative dates.

A push topic belongs to no user, so no user's time zone applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidewire.events import Change, Value
from tidewire.records.touched import changes_of
from tidewire.soql.dates import UTC_CALENDAR, Calendar
from tidewire.soql.zones import load_zone

ORGANIZATION = "Organization"


def calendar_of(row: Mapping[str, Value]) -> Calendar:
    """Return the calendar of an Organization record."""
    month = row.get("FiscalYearStartMonth")
    return Calendar(
        load_zone(str(row.get("TimeZoneSidKey") or "GMT")),
        month if isinstance(month, int) and 1 <= month <= 12 else 1,
        bool(row.get("UsesStartDateAsFiscalYearName")),
    )


def calendar_after(calendar: Calendar, changes: Sequence[Change]) -> Calendar:
    """Return the calendar after these changes."""
    for change in changes_of(changes, ORGANIZATION):
        if change.after is not None:
            calendar = calendar_of(change.after)
    return calendar


def first_calendar(rows: Sequence[Mapping[str, Value]]) -> Calendar:
    """Return the calendar of the Organization record in `rows`, or UTC for an org that is being created."""
    return calendar_of(rows[0]) if rows else UTC_CALENDAR
