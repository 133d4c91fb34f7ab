"""Expands recurrence rules with python-dateutil, and the guide's differences on top. Pure.

A rule is expanded in the wall time of its zone, so a meeting at nine stays at nine when clocks change; a time
that the clocks skip is that much later on that day. The start counts as an occurrence only if the rule names
it. A rule with more occurrences than a series may have is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil import rrule

from tidewire.errors import NumberOutOfRange, ValueMalformed
from tidewire.events import Value

MAX_OCCURRENCES = 1000
"""The maximum number of occurrences of a series."""

MAX_INTERVAL = 999
FIRST_YEAR, LAST_YEAR = 1900, 9000
PATTERN = "Recurrence2PatternText"
FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
"""In the order of the library's numbers."""

_MAX_YEARS = 100  # a rule is not searched further than this after its start
_LAST_START = 9890  # the last year in which the library may start, so that _MAX_YEARS fit before year 9999
_CYCLE_YEARS = 400  # after which the calendar repeats, weekdays included
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A recurrence. `by_day` holds (ordinal, weekday) with Monday as 0; ordinal 0 means each such day.

    `until` is inclusive. It and those `excluded` and `added` are moments of the rule's zone unless they are
    aware; a date among them stands for the occurrence that the rule has, or would have, on that day. `field`
    is named if the rule is rejected.
    """

    freq: str
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    by_day: tuple[tuple[int, int], ...] = ()
    by_month_day: tuple[int, ...] = ()
    by_month: tuple[int, ...] = ()
    by_set_pos: tuple[int, ...] = ()
    week_start: int = 0
    excluded: tuple[date, ...] = ()
    added: tuple[date, ...] = ()
    field: str = PATTERN


def find_zone(name: Value, field: str) -> ZoneInfo:
    """Return the time zone of this name, or GMT without one. Raises ValueMalformed."""
    try:
        return ZoneInfo(str(name or "GMT"))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # a folder of zones is an OSError
        raise ValueMalformed(f"unknown time zone: {name}", fields=[field]) from error


def expand_moments(rule: Rule, start_ms: int, zone: ZoneInfo) -> list[int]:
    """Return the occurrences of a rule from this moment on, as epoch milliseconds, earliest first.

    Raises ValueMalformed if there are none, NumberOutOfRange if there are too many.
    """
    start = (_EPOCH + start_ms * _MILLISECOND).astimezone(zone).replace(tzinfo=None)
    until = rule.until if rule.until is None else _wall_time(rule.until, zone)
    local = replace(
        rule,
        until=until,
        excluded=tuple(_local(moment, zone) for moment in rule.excluded),
        added=tuple(_local(moment, zone) for moment in rule.added),
    )
    return [(moment.replace(tzinfo=zone) - _EPOCH) // _MILLISECOND for moment in expand(local, start)]


def expand(rule: Rule, start: datetime) -> list[datetime]:
    """Return the occurrences in wall time; the rule's own moments must be wall times too."""
    if not FIRST_YEAR <= start.year <= LAST_YEAR:
        raise ValueMalformed("a series cannot start in this year", fields=[rule.field])
    found: set[datetime] = set()
    for day in _iter_days(rule, start.date()):
        moment = datetime.combine(day, start.time())
        if (rule.until is not None and moment > rule.until) or len(found) == rule.count:
            break
        if len(found) == MAX_OCCURRENCES:
            raise _too_many(rule)
        found.add(moment)
    for one in rule.added:
        found.add(one if isinstance(one, datetime) else datetime.combine(one, start.time()))
    left = sorted(m for m in found if m not in rule.excluded and m.date() not in rule.excluded)
    if not left:
        raise ValueMalformed("the recurrence has no occurrence", fields=[rule.field])
    if len(left) > MAX_OCCURRENCES:
        raise _too_many(rule)
    return left


def _too_many(rule: Rule) -> NumberOutOfRange:
    return NumberOutOfRange(f"the series has more than {MAX_OCCURRENCES} occurrences", fields=[rule.field])


def _local(moment: date, zone: ZoneInfo) -> date:
    return _wall_time(moment, zone) if isinstance(moment, datetime) else moment


def _wall_time(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment if moment.tzinfo is None else moment.astimezone(zone).replace(tzinfo=None)


def _iter_days(rule: Rule, start: date) -> Iterator[date]:
    """Yield the days that a rule names from its start on, for at most a hundred years."""
    # A rule that never matches, such as February 30, makes the library search to the end of year 9999. Moved there by
    # whole calendar cycles, the search takes at most 509 years instead of 8,000.
    shift = (_LAST_START - start.year) // _CYCLE_YEARS * _CYCLE_YEARS
    first = start.replace(year=start.year + shift)
    for moment in _library_rule(rule, first):
        day = moment.date()
        if day.year > first.year + _MAX_YEARS:
            return
        # A daily rule with filters is searched by months; see below.
        if day >= first and (rule.freq != "DAILY" or (day - first).days % rule.interval == 0):
            yield day.replace(year=day.year - shift)


def _library_rule(rule: Rule, start: date) -> Iterable[datetime]:
    freq, interval, by_month_day = rule.freq, rule.interval, rule.by_month_day
    if freq == "DAILY" and (rule.by_day or rule.by_month or by_month_day):
        # Day by day the library would take a second for a rule without a match. Which days the filters let through
        # does not depend on the interval, so the months are searched for them.
        freq, interval, by_month_day = "MONTHLY", 1, by_month_day or tuple(range(1, 32))
    by_day = rule.by_day
    if freq == "WEEKLY":
        # The library counts BYSETPOS from its first day, so that has to be the first day of a week.
        by_day = by_day or ((0, start.weekday()),)
        start -= timedelta(days=(start.weekday() - rule.week_start) % 7)
    # What lies beyond the days of a week, or the one day of a day, is never found: no reason to search for it.
    most = {"DAILY": 1, "WEEKLY": len(set(by_day))}.get(rule.freq, 366)
    by_set_pos = tuple(place for place in rule.by_set_pos if abs(place) <= most)
    weekdays = _library_weekdays(by_day, 53 if freq == "YEARLY" and not rule.by_month else 5)
    if (by_day and not weekdays) or (rule.by_set_pos and not by_set_pos):
        return ()
    return rrule.rrule(  # type: ignore[no-any-return]
        FREQUENCIES.index(freq),
        dtstart=datetime.combine(start, time()),
        interval=interval,
        wkst=rule.week_start,
        bymonth=rule.by_month or None,
        bymonthday=by_month_day or None,
        byweekday=weekdays or None,
        bysetpos=None if rule.freq == "DAILY" else by_set_pos or None,
    )


def _library_weekdays(by_day: tuple[tuple[int, int], ...], most: int) -> list[rrule.weekday]:
    """Return the weekdays for the library; `most` is how often one can occur in the counted month or year."""
    if not any(ordinal for ordinal, _ in by_day):
        return [rrule.weekday(day) for _, day in by_day]
    # The library wants a day to match both the days with and those without an ordinal; RFC 5545 asks for either. A
    # larger ordinal than `most` never matches, and would make the library fail.
    return [
        rrule.weekday(day, n)
        for ordinal, day in by_day
        for n in ([ordinal] if ordinal else range(1, most + 1))
        if abs(n) <= most
    ]
