"""Which days a recurring activity falls on: RRULE texts and the classic recurrence fields, expanded. Pure.

A rule is expanded in the wall time of its zone, so a meeting at nine stays at nine when clocks change. The
start counts as an occurrence only if the rule names it. A rule without end is refused, and so is one with
more occurrences than a series may have.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidewire.errors import NumberOutOfRange, RequiredFieldMissing, ValueMalformed
from tidewire.events import Value

MAX_OCCURRENCES = 1000
"""How many occurrences a series may have."""

PATTERN = "Recurrence2PatternText"

_MAX_YEARS = 100  # a rule is not searched further than this after its start
_MAX_INTERVAL = 999
_FIRST_YEAR, _LAST_YEAR = 1900, 9000
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BY_DAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_WHOLE = re.compile(r"[+-]?\d{1,4}")
_UNTIL = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_INSTANCES = {"First": 1, "Second": 2, "Third": 3, "Fourth": 4, "Last": -1}
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A recurrence. `by_day` holds (ordinal, weekday) with Monday as 0; ordinal 0 means each such day.

    `until` is inclusive, and a moment of the rule's zone unless it is aware. `field` is named when the rule is
    refused.
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
    field: str = PATTERN


def parse_rule(text: str) -> Rule:
    """The rule of an RRULE text. Raises ValueMalformed."""
    parts: dict[str, str] = {}
    for part in text.strip().removeprefix("RRULE:").rstrip("; ").split(";"):
        name, equals, value = part.strip().upper().partition("=")
        if not equals or name not in _PARTS or name in parts:
            raise _malformed(f"unknown, repeated or empty part '{part.strip()}'")
        parts[name] = value
    if parts.get("FREQ") not in _PERIODS:
        raise _malformed("FREQ must be DAILY, WEEKLY, MONTHLY or YEARLY")
    if ("COUNT" in parts) == ("UNTIL" in parts):
        raise _malformed("a series ends by either COUNT or UNTIL")
    rule = Rule(
        freq=parts["FREQ"],
        interval=_number("INTERVAL", parts.get("INTERVAL", "1"), 1, _MAX_INTERVAL),
        count=_number("COUNT", parts["COUNT"], 1, 9999) if "COUNT" in parts else None,
        until=_parse_until(parts["UNTIL"]) if "UNTIL" in parts else None,
        by_day=_parse_by_day(parts["BYDAY"]) if "BYDAY" in parts else (),
        by_month_day=_numbers("BYMONTHDAY", parts, 31, signed=True),
        by_month=_numbers("BYMONTH", parts, 12, signed=False),
        by_set_pos=_numbers("BYSETPOS", parts, 366, signed=True),
        week_start=_parse_week_start(parts.get("WKST", "MO")),
    )
    if rule.freq in ("DAILY", "WEEKLY") and any(ordinal for ordinal, _ in rule.by_day):
        raise _malformed("BYDAY has a number only in a monthly or yearly rule")
    if rule.freq == "WEEKLY" and rule.by_month_day:
        raise _malformed("BYMONTHDAY has no meaning in a weekly rule")
    if rule.by_set_pos and not (rule.by_day or rule.by_month_day or rule.by_month):
        raise _malformed("BYSETPOS needs days to choose from")
    return rule


def classic_rule(row: Mapping[str, Value]) -> Rule:
    """The rule in a record's classic fields, RecurrenceType and those beside it.

    Raises RequiredFieldMissing for those the type needs, or ValueMalformed.
    """
    kind = row.get("RecurrenceType")
    freq, needed = _CLASSIC.get(str(kind), ("", ("RecurrenceType",)))
    missing = [n for n in (*needed, "RecurrenceEndDateOnly") if row.get(n) is None]
    if missing:
        raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(missing)}]", fields=missing)
    end_day = (_EPOCH + int(str(row["RecurrenceEndDateOnly"])) * _MILLISECOND).replace(tzinfo=None)
    weekdays = 62 if kind == "RecursEveryWeekday" else _within(row, "RecurrenceDayOfWeekMask", 1, 127, 127)
    month = row.get("RecurrenceMonthOfYear")
    has_days = "RecurrenceDayOfWeekMask" in needed or kind == "RecursEveryWeekday"
    has_instance = "RecurrenceInstance" in needed
    return Rule(
        freq=freq,
        interval=_within(row, "RecurrenceInterval", 1, _MAX_INTERVAL, 1),
        until=end_day + timedelta(days=1) - _MILLISECOND,
        # The mask counts from Sunday, as its lowest bit; weekdays here count from Monday.
        by_day=tuple((0, day) for day in range(7) if weekdays >> (day + 1) % 7 & 1) if has_days else (),
        by_month_day=(_within(row, "RecurrenceDayOfMonth", 1, 31, 1),)
        if "RecurrenceDayOfMonth" in needed
        else (),
        by_month=(_MONTHS.index(str(month)) + 1,) if "RecurrenceMonthOfYear" in needed else (),
        by_set_pos=(_INSTANCES[str(row["RecurrenceInstance"])],) if has_instance else (),
        field="RecurrenceType",
    )


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
    until = rule.until
    if until is not None and until.tzinfo is not None:
        until = until.astimezone(zone).replace(tzinfo=None)
    found = expand(rule, start, until)
    return [(moment.replace(tzinfo=zone) - _EPOCH) // _MILLISECOND for moment in found]


def expand(rule: Rule, start: datetime, until: datetime | None) -> list[datetime]:
    """The occurrences in wall time, each at the start's time of day."""
    if not _FIRST_YEAR <= start.year <= _LAST_YEAR:
        raise ValueMalformed("a series cannot start in this year", fields=[rule.field])
    found: list[datetime] = []
    for day in _iter_days(rule, start.date()):
        moment = datetime.combine(day, start.time())
        if (until is not None and moment > until) or len(found) == rule.count:
            break
        if len(found) == MAX_OCCURRENCES:
            raise NumberOutOfRange(
                f"the series has more than {MAX_OCCURRENCES} occurrences", fields=[rule.field]
            )
        found.append(moment)
    if not found:
        raise ValueMalformed("the recurrence has no occurrence", fields=[rule.field])
    return found


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
        week = (first + timedelta(days=n) for n in range(7))
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
        first = date(year, 1, 1)
        if rule.by_day and not rule.by_month and not rule.by_month_day:
            length = (date(year + 1, 1, 1) - first).days
            yield [day for day in _span(first, length) if _is_named(rule, day, first, length)]
            continue
        months = rule.by_month or (range(1, 13) if rule.by_month_day else (start.month,))
        yield [d for m in sorted(months) for d in _days_of_month(rule, start, date(year, m, 1))]


_PERIODS = {"DAILY": _iter_daily, "WEEKLY": _iter_weekly, "MONTHLY": _iter_monthly, "YEARLY": _iter_yearly}
_PARTS = frozenset(
    {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "BYSETPOS", "WKST"}
)
_CLASSIC = {
    "RecursDaily": ("DAILY", ("RecurrenceInterval",)),
    "RecursEveryWeekday": ("WEEKLY", ()),
    "RecursWeekly": ("WEEKLY", ("RecurrenceInterval", "RecurrenceDayOfWeekMask")),
    "RecursMonthly": ("MONTHLY", ("RecurrenceInterval", "RecurrenceDayOfMonth")),
    "RecursMonthlyNth": (
        "MONTHLY",
        ("RecurrenceInterval", "RecurrenceInstance", "RecurrenceDayOfWeekMask"),
    ),
    "RecursYearly": ("YEARLY", ("RecurrenceDayOfMonth", "RecurrenceMonthOfYear")),
    "RecursYearlyNth": (
        "YEARLY",
        ("RecurrenceInstance", "RecurrenceDayOfWeekMask", "RecurrenceMonthOfYear"),
    ),
}
"""What each RecurrenceType is as a rule, and the fields it needs."""


def _days_of_month(rule: Rule, start: date, first: date) -> list[date]:
    length = monthrange(first.year, first.month)[1]
    if not rule.by_day and not rule.by_month_day:
        return [first.replace(day=start.day)] if start.day <= length else []
    days = _span(first, length)
    if rule.by_month_day:
        days = [day for day in days if _on_month_day(rule, day)]
    return [day for day in days if not rule.by_day or _is_named(rule, day, first, length)]


def _is_named(rule: Rule, day: date, first: date, length: int) -> bool:
    """Whether BYDAY names this day of the month or year that begins with `first`."""
    offset = (day - first).days
    ordinals = (0, offset // 7 + 1, -((length - 1 - offset) // 7 + 1))
    return any(weekday == day.weekday() and ordinal in ordinals for ordinal, weekday in rule.by_day)


def _fits(rule: Rule, day: date) -> bool:
    is_named = not rule.by_day or any(weekday == day.weekday() for _, weekday in rule.by_day)
    return is_named and _in_month(rule, day) and (not rule.by_month_day or _on_month_day(rule, day))


def _on_month_day(rule: Rule, day: date) -> bool:
    from_end = day.day - monthrange(day.year, day.month)[1] - 1
    return day.day in rule.by_month_day or from_end in rule.by_month_day


def _in_month(rule: Rule, day: date) -> bool:
    return not rule.by_month or day.month in rule.by_month


def _span(first: date, length: int) -> list[date]:
    return [first + timedelta(days=n) for n in range(length)]


def _within(row: Mapping[str, Value], name: str, low: int, high: int, default: int) -> int:
    value = row.get(name)
    number = default if value is None else int(str(value))
    if not low <= number <= high:
        raise NumberOutOfRange(f"{name} must be from {low} to {high}", fields=[name])
    return number


def _number(name: str, text: str, low: int, high: int) -> int:
    if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
        raise _malformed(f"{name} must be a number from {low} to {high}")
    return int(text)


def _numbers(name: str, parts: Mapping[str, str], high: int, *, signed: bool) -> tuple[int, ...]:
    if name not in parts:
        return ()
    numbers = {_number(name, text.strip(), -high if signed else 1, high) for text in parts[name].split(",")}
    if 0 in numbers:
        raise _malformed(f"{name} cannot be 0")
    return tuple(sorted(numbers))


def _parse_by_day(text: str) -> tuple[tuple[int, int], ...]:
    days: list[tuple[int, int]] = []
    for item in text.split(","):
        match = _BY_DAY.fullmatch(item.strip())
        if match is None or (match[1] and not 1 <= abs(int(match[1])) <= 53):
            raise _malformed(f"'{item.strip()}' is not a day")
        days.append((int(match[1] or 0), _WEEKDAYS.index(match[2])))
    return tuple(days)


def _parse_week_start(text: str) -> int:
    if text not in _WEEKDAYS:
        raise _malformed(f"'{text}' is not a day")
    return _WEEKDAYS.index(text)


def _parse_until(text: str) -> datetime:
    match = _UNTIL.fullmatch(text)
    if match is None:
        raise _malformed("UNTIL must be a day or a moment such as 20300131T120000Z")
    clock = (int(match[4]), int(match[5]), int(match[6])) if match[4] else (23, 59, 59)
    try:
        year, month, day = (int(part) for part in match.group(1, 2, 3))
        moment = datetime(year, month, day, *clock, tzinfo=UTC)
    except ValueError as error:
        raise _malformed("UNTIL is no day of the calendar") from error
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise _malformed("UNTIL is no year that a series can reach")
    return moment if match[7] else moment.replace(tzinfo=None)


def _malformed(reason: str) -> ValueMalformed:
    return ValueMalformed(f"the recurrence pattern is invalid: {reason}", fields=[PATTERN])
