"""Parses recurrences: RRULE texts with EXDATE and RDATE lines, and the classic fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from tidewire.crm.recurrence import (
    FIRST_YEAR,
    FREQUENCIES,
    LAST_YEAR,
    MAX_INTERVAL,
    PATTERN,
    Rule,
    find_zone,
)
from tidewire.errors import NumberOutOfRange, RequiredFieldMissing, ValueMalformed
from tidewire.events import Value

_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BY_DAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_WHOLE = re.compile(r"[+-]?\d{1,4}")
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
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
"""The frequency of each RecurrenceType, and the fields that it requires."""

_INSTANCES = {"First": 1, "Second": 2, "Third": 3, "Fourth": 4, "Last": -1}
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def parse_rule(text: str) -> Rule:
    """Parse a pattern: one RRULE, with EXDATE and RDATE on lines of their own. Raises ValueMalformed."""
    rules: list[str] = []
    dates: dict[str, list[date]] = {"EXDATE": [], "RDATE": []}
    for line in text.strip().splitlines():
        name = re.split("[:;=]", line.strip(), maxsplit=1)[0].upper()
        if name in dates:
            dates[name] += _parse_dates(line.strip()[len(name) :])
        else:
            rules.append(line.strip().upper())
    if len(rules) != 1:
        raise _malformed("it must have one RRULE")
    return _parse_rrule(rules[0], tuple(dates["EXDATE"]), tuple(dates["RDATE"]))


def classic_rule(row: Mapping[str, Value]) -> Rule:
    """Parse a record's classic fields, RecurrenceType and those beside it.

    Raises RequiredFieldMissing for fields that the type requires, or NumberOutOfRange.
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
        interval=_within(row, "RecurrenceInterval", 1, MAX_INTERVAL, 1),
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


def _parse_rrule(text: str, excluded: tuple[date, ...], added: tuple[date, ...]) -> Rule:
    parts: dict[str, str] = {}
    for part in text.removeprefix("RRULE:").rstrip("; ").split(";"):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in _PARTS or name in parts:
            raise _malformed(f"unknown, repeated or empty part '{part.strip()}'")
        parts[name] = value
    if parts.get("FREQ") not in FREQUENCIES:
        raise _malformed("FREQ must be DAILY, WEEKLY, MONTHLY or YEARLY")
    if ("COUNT" in parts) == ("UNTIL" in parts):
        raise _malformed("a series ends by either COUNT or UNTIL")
    rule = Rule(
        freq=parts["FREQ"],
        interval=_number("INTERVAL", parts.get("INTERVAL", "1"), 1, MAX_INTERVAL),
        count=_number("COUNT", parts["COUNT"], 1, 9999) if "COUNT" in parts else None,
        until=_parse_until(parts["UNTIL"]) if "UNTIL" in parts else None,
        by_day=_parse_by_day(parts["BYDAY"]) if "BYDAY" in parts else (),
        by_month_day=_numbers("BYMONTHDAY", parts, 31, signed=True),
        by_month=_numbers("BYMONTH", parts, 12, signed=False),
        by_set_pos=_numbers("BYSETPOS", parts, 366, signed=True),
        week_start=_parse_week_start(parts.get("WKST", "MO")),
        excluded=excluded,
        added=added,
    )
    if rule.freq in ("DAILY", "WEEKLY") and any(ordinal for ordinal, _ in rule.by_day):
        raise _malformed("BYDAY has a number only in a monthly or yearly rule")
    if rule.freq == "WEEKLY" and rule.by_month_day:
        raise _malformed("BYMONTHDAY has no meaning in a weekly rule")
    if rule.by_set_pos and not (rule.by_day or rule.by_month_day or rule.by_month):
        raise _malformed("BYSETPOS needs days to choose from")
    return rule


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
    moment = _parse_stamp("UNTIL", text)
    if isinstance(moment, datetime):
        return moment
    return datetime(moment.year, moment.month, moment.day, 23, 59, 59)  # noqa: DTZ001  # wall time


def _parse_dates(text: str) -> list[date]:
    """Parse an EXDATE or RDATE line without its name."""
    parameters, colon, values = text.partition(":")
    zone = None
    for parameter in parameters.split(";")[1:]:
        name, _, value = parameter.strip().partition("=")
        if name.upper() == "TZID":
            zone = find_zone(value, PATTERN)
        elif name.upper() != "VALUE" or value.upper() not in ("DATE", "DATE-TIME"):
            raise _malformed(f"unknown parameter '{parameter.strip()}'")
    if not colon or parameters.split(";")[0].strip():
        raise _malformed("EXDATE and RDATE have a colon before their dates")
    found = [_parse_stamp("a date", item.strip().upper()) for item in values.split(",")]
    return [
        moment.replace(tzinfo=zone) if isinstance(moment, datetime) and moment.tzinfo is None else moment
        for moment in found
    ]


def _parse_stamp(name: str, text: str) -> date:
    """Parse a day or a time; a time is aware if it ends with Z."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise _malformed(f"{name} must be a day or a moment such as 20300131T120000Z")
    try:
        year, month, day = (int(part) for part in match.group(1, 2, 3))
        moment: date = date(year, month, day)
        if match[4]:
            hour, minute, second = (int(part) for part in match.group(4, 5, 6))
            moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC if match[7] else None)
    except ValueError as error:
        raise _malformed(f"{name} is no day of the calendar") from error
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise _malformed(f"{name} is no year that a series can reach")
    return moment


def _malformed(reason: str) -> ValueMalformed:
    return ValueMalformed(f"the recurrence pattern is invalid: {reason}", fields=[PATTERN])
