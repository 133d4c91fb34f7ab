"""Which moments a recurring activity falls on: a rule, expanded. Pure.

A rule is expanded in the wall time of its zone, so a meeting at nine stays at nine when clocks change; a time
that the clocks skip is that much later on that day. The start counts as an occurrence only if the rule names
it. A rule with more occurrences than a series may have is refused.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidewire.errors import NumberOutOfRange, ValueMalformed
from tidewire.events import Value

MAX_OCCURRENCES = 1000
"""How many occurrences a series may have."""

MAX_INTERVAL = 999
FIRST_YEAR, LAST_YEAR = 1900, 9000
PATTERN = "Recurrence2PatternText"

_MAX_YEARS = 100  # a rule is not searched further than this after its start
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A recurrence. `by_day` holds (ordinal, weekday) with Monday as 0; ordinal 0 means each such day.

    `until` is inclusive. It and those `excluded` and `added` are moments of the rule's zone unless they are
    aware; a date among them stands for what the rule has, or would have, on that day. `field` is named when
    the rule is refused.
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
    """The time zone of this name; GMT without one. Raises ValueMalformed."""
    try:
        return ZoneInfo(str(name or "GMT"))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # a folder of zones is an OSError
        raise ValueMalformed(f"unknown time zone: {name}", fields=[field]) from error


def expand_moments(rule: Rule, start_ms: int, zone: ZoneInfo) -> list[int]:
    """The occurrences of a rule from this moment on, as epoch milliseconds, earliest first.

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
    """The occurrences in wall time; the rule's own moments must be so too."""
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
    for days in _PERIODS[rule.freq](rule, start, start.year + _MAX_YEARS):
        chosen = days
        if rule.by_set_pos:
            places = {at - 1 if at > 0 else len(days) + at for at in rule.by_set_pos}
            chosen = [day for at, day in enumerate(days) if at in places]
        yield from (day for day in chosen if day >= start)


def _iter_daily(rule: Rule, start: date, last_year: int) -> Iterator[list[date]]:
    day = start
    while day.year <= last_year:
        yield [day] if _fits(rule, day) else []
        day += timedelta(days=rule.interval)


def _iter_weekly(rule: Rule, start: date, last_year: int) -> Iterator[list[date]]:
    weekdays = {weekday for _, weekday in rule.by_day} or {start.weekday()}
    first = start - timedelta(days=(start.weekday() - rule.week_start) % 7)
    while first.year <= last_year:
        week = _span(first, 7)
        yield [day for day in week if day.weekday() in weekdays and _in_month(rule, day)]
        first += timedelta(weeks=rule.interval)


def _iter_monthly(rule: Rule, start: date, last_year: int) -> Iterator[list[date]]:
    month = start.year * 12 + start.month - 1
    while month // 12 <= last_year:
        first = date(month // 12, month % 12 + 1, 1)
        yield _days_of_month(rule, start, first) if _in_month(rule, first) else []
        month += rule.interval


def _iter_yearly(rule: Rule, start: date, last_year: int) -> Iterator[list[date]]:
    for year in range(start.year, last_year + 1, rule.interval):
        if rule.by_day and not rule.by_month:
            # Without a month to count in, the second Monday is that of the year.
            first = date(year, 1, 1)
            days = _span(first, (date(year + 1, 1, 1) - first).days)
            yield [d for d in days if _is_named(rule, d, first, len(days)) and _on_month_day(rule, d)]
            continue
        months = rule.by_month or (range(1, 13) if rule.by_month_day else (start.month,))
        yield [d for m in sorted(months) for d in _days_of_month(rule, start, date(year, m, 1))]


_PERIODS = {"DAILY": _iter_daily, "WEEKLY": _iter_weekly, "MONTHLY": _iter_monthly, "YEARLY": _iter_yearly}
FREQUENCIES = tuple(_PERIODS)


def _days_of_month(rule: Rule, start: date, first: date) -> list[date]:
    length = monthrange(first.year, first.month)[1]
    if not rule.by_day and not rule.by_month_day:
        return [first.replace(day=start.day)] if start.day <= length else []
    days = [day for day in _span(first, length) if _on_month_day(rule, day)]
    return [day for day in days if not rule.by_day or _is_named(rule, day, first, length)]


def _is_named(rule: Rule, day: date, first: date, length: int) -> bool:
    """Whether BYDAY names this day of the month or year that begins with `first`."""
    offset = (day - first).days
    ordinals = (0, offset // 7 + 1, -((length - 1 - offset) // 7 + 1))
    return any(weekday == day.weekday() and ordinal in ordinals for ordinal, weekday in rule.by_day)


def _fits(rule: Rule, day: date) -> bool:
    is_named = not rule.by_day or any(weekday == day.weekday() for _, weekday in rule.by_day)
    return is_named and _in_month(rule, day) and _on_month_day(rule, day)


def _on_month_day(rule: Rule, day: date) -> bool:
    if not rule.by_month_day:
        return True
    from_end = day.day - monthrange(day.year, day.month)[1] - 1
    return day.day in rule.by_month_day or from_end in rule.by_month_day


def _in_month(rule: Rule, day: date) -> bool:
    return not rule.by_month or day.month in rule.by_month


def _span(first: date, length: int) -> list[date]:
    return [first + timedelta(days=n) for n in range(length)]
