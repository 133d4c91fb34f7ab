"""Recurrence rules expanded day by day, without a library: what the expansion is compared with."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import date, datetime, timedelta

from tidewire.crm.recurrence import Rule

MAX_YEARS = 100


def expand_plainly(rule: Rule, start: datetime) -> list[datetime]:
    """The first occurrences of a rule in wall time, without those added or excluded by date."""
    found: list[datetime] = []
    for day in _iter_days(rule, start.date()):
        moment = datetime.combine(day, start.time())
        if (rule.until is not None and moment > rule.until) or len(found) == rule.count:
            break
        found.append(moment)
    return found


def _iter_days(rule: Rule, start: date) -> Iterator[date]:
    for days in _PERIODS[rule.freq](rule, start, start.year + MAX_YEARS):
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
