"""Date ranges relative to today, and the parts of a moment: its year, its week, its hour.

A day begins at midnight of the calendar's time zone, a week on Sunday, and a fiscal year with the calendar's month.
Parts are computed from the Julian day number by integer arithmetic alone, which SQL can do alike: `part_of` and
`render_part` are the same formulas, once over numbers and once as SQL text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from tidewire.soql.zones import DAY_MS, UTC, Zone

_HOUR_MS = 3_600_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH_JULIAN = 2_440_588
_SHIFT_MS = _EPOCH_JULIAN * DAY_MS  # makes every moment positive, where both kinds of division agree
_FIRST_MONTH, _LAST_MONTH = 12, 9_999 * 12 + 11
_MONTHS_OF = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "FISCAL_QUARTER": 3, "FISCAL_YEAR": 12}
# From which day up to, exclusively, which one; 0 is today.
_NAMED_DAYS = {
    "YESTERDAY": (-1, 0),
    "TODAY": (0, 1),
    "TOMORROW": (1, 2),
    "LAST_90_DAYS": (-90, 1),
    "NEXT_90_DAYS": (1, 91),
}
_PERIODS = ("WEEK", *_MONTHS_OF)
_COUNTED_PERIODS = ("DAY", *_PERIODS)
RELATIVE_DATES = frozenset(_NAMED_DAYS) | {
    f"{which}_{period}" for which in ("LAST", "THIS", "NEXT") for period in _PERIODS
}
"""Date ranges named by one word."""
COUNTED_DATES = frozenset(
    [f"{which}_N_{period}S" for which in ("LAST", "NEXT") for period in _COUNTED_PERIODS]
    + [f"N_{period}S_AGO" for period in _COUNTED_PERIODS]
)
"""Date ranges named by a word, a colon and a count."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """How days and years are counted: in which zone, and with which first month of the fiscal year.

    A fiscal year bears the number of the year it ends in, or, with `is_named_by_start`, of the one it begins in.
    """

    zone: Zone = UTC
    fiscal_month: int = 1
    is_named_by_start: bool = False


UTC_CALENDAR = Calendar()


def relative_range(
    name: str, count: int | None, now_ms: int, calendar: Calendar = UTC_CALENDAR, *, of_days: bool = False
) -> tuple[int, int]:
    """Return the start and the exclusive end of a range such as `LAST_N_DAYS:5`, in epoch ms.

    LAST_N_DAYS reaches to the end of today; all other ranges are whole periods before, around or after it.
    Months before year 1 or after year 9999 count as the first or last there is. With `of_days`, the range is of
    dates as they are stored, at midnight UTC, and the zone only says which day is today.
    """
    today = calendar.zone.local_ms(now_ms) // DAY_MS
    first, end = _relative_days(name, count, today, calendar.fiscal_month)
    if of_days:
        return first * DAY_MS, end * DAY_MS
    return calendar.zone.day_start(first), calendar.zone.day_start(end)


def _relative_days(name: str, count: int | None, today: int, fiscal_month: int) -> tuple[int, int]:
    if name in _NAMED_DAYS:
        first, end = _NAMED_DAYS[name]
        return today + first, today + end
    period, first, end = _periods(name, count or 0)
    if period == "DAY":
        # Only here does the range reach up to now instead of ending before the current period.
        end = 1 if name.startswith("LAST_N_") else end
        return today + first, today + end
    if period == "WEEK":
        sunday = today - (today + 4) % 7
        return sunday + 7 * first, sunday + 7 * end
    months = _MONTHS_OF[period]
    shift = fiscal_month - 1 if period.startswith("FISCAL_") else 0
    day = date.fromordinal(today + _EPOCH_DAY)
    index = (day.year * 12 + day.month - 1 - shift) // months
    return _month_day((index + first) * months + shift), _month_day((index + end) * months + shift)


def _periods(name: str, count: int) -> tuple[str, int, int]:
    """The period that a name counts in, and from which to before which one, where 0 is the current one."""
    if name.startswith("LAST_N_"):
        return name.removeprefix("LAST_N_")[:-1], -count, 0
    if name.startswith("NEXT_N_"):
        return name.removeprefix("NEXT_N_")[:-1], 1, count + 1
    if name.startswith("N_"):
        return name.removeprefix("N_").removesuffix("_AGO")[:-1], -count, -count + 1
    which, _, period = name.partition("_")
    first = {"LAST": -1, "THIS": 0, "NEXT": 1}[which]
    return period, first, first + 1


def _month_day(index: int) -> int:
    year, month = divmod(min(max(index, _FIRST_MONTH), _LAST_MONTH), 12)
    return date(year, month + 1, 1).toordinal() - _EPOCH_DAY


# Richards' algorithm: `e` carries the year, `h` the day inside a year that begins in March.
def _e(julian: int) -> int:
    return 4 * (julian + 1401 + (4 * julian + 274277) // 146097 * 3 // 4 - 38) + 3


def _h(julian: int) -> int:
    return 5 * (_e(julian) % 1461 // 4) + 2


def _month(julian: int) -> int:
    return (_h(julian) // 153 + 2) % 12 + 1


def _year(julian: int) -> int:
    return _e(julian) // 1461 - 4716 + (14 - _month(julian)) // 12


def _day(julian: int) -> int:
    return _h(julian) % 153 // 5 + 1


def _day_in_year(julian: int) -> int:
    past = _year(julian) - 1
    return julian - (365 * past + past // 4 - past // 100 + past // 400 + 1721426) + 1


_PARTS: dict[str, Callable[[int], int]] = {
    "CALENDAR_YEAR": _year,
    "CALENDAR_QUARTER": lambda julian: (_month(julian) + 2) // 3,
    "CALENDAR_MONTH": _month,
    "DAY_IN_YEAR": _day_in_year,
    "DAY_IN_MONTH": _day,
    "DAY_IN_WEEK": lambda julian: (julian + 1) % 7 + 1,
    "WEEK_IN_YEAR": lambda julian: (_day_in_year(julian) - 1) // 7 + 1,
    "WEEK_IN_MONTH": lambda julian: (_day(julian) - 1) // 7 + 1,
    "DAY_ONLY": lambda julian: (julian - _EPOCH_JULIAN) * DAY_MS,
}
CLOCK_FUNCTIONS = frozenset({"HOUR_IN_DAY", "DAY_ONLY"})
"""Functions that only a datetime has an answer to."""
_FISCAL_FUNCTIONS = frozenset({"FISCAL_YEAR", "FISCAL_QUARTER", "FISCAL_MONTH"})
DATE_FUNCTIONS = frozenset(_PARTS) | CLOCK_FUNCTIONS | _FISCAL_FUNCTIONS
"""Functions from a date or datetime to a whole number, or to a date for DAY_ONLY."""


def part_of(function: str, epoch_ms: int, calendar: Calendar = UTC_CALENDAR) -> int:
    """Return the value of a date function at a time."""
    local_ms = calendar.zone.local_ms(epoch_ms)
    if function == "HOUR_IN_DAY":
        return local_ms % DAY_MS // _HOUR_MS
    julian = local_ms // DAY_MS + _EPOCH_JULIAN
    if function in _FISCAL_FUNCTIONS:
        return _fiscal_part(function, julian, calendar)
    return _PARTS[function](julian)


def _fiscal_part(function: str, julian: int, calendar: Calendar) -> int:
    first = calendar.fiscal_month
    month = (_month(julian) - first + 12) % 12 + 1
    if function == "FISCAL_MONTH":
        return month
    if function == "FISCAL_QUARTER":
        return (month + 2) // 3
    return _year(julian) + (_month(julian) + 12 - first) // 12 - _years_back(calendar)


def _years_back(calendar: Calendar) -> int:
    """Return by how much a fiscal year's number exceeds that of the year it is named after."""
    return 1 if calendar.is_named_by_start or calendar.fiscal_month == 1 else 0


def _modulo(text: str, divisor: int) -> str:
    # Drivers whose placeholders begin with a percent sign would stumble over the operator.
    return f"({text} - {text} / {divisor} * {divisor})"


def render_part(function: str, column: str, calendar: Calendar = UTC_CALENDAR) -> str:
    """SQL for a date function of a column; null for null."""
    if calendar.zone == UTC:
        return _render_part(function, column, calendar)
    # What clocks show is worked out once, in a row of its own, because the formulas name it many times.
    local = calendar.zone.render_local("instant.at_ms")
    part = _render_part(function, "clock.local_ms", calendar)
    instant = f"(SELECT {column} AS at_ms) AS instant"
    return " ".join(["(SELECT", part, "FROM (SELECT", local, "AS local_ms FROM", instant, ") AS clock)"])


def _render_part(function: str, column: str, calendar: Calendar) -> str:
    shifted = f"({column} + {_SHIFT_MS})"
    if function == "HOUR_IN_DAY":
        return f"({_modulo(shifted, DAY_MS)} / {_HOUR_MS})"
    julian = f"({shifted} / {DAY_MS})"
    e = f"(4 * ({julian} + 1363 + (4 * {julian} + 274277) / 146097 * 3 / 4) + 3)"
    h = f"(5 * ({_modulo(e, 1461)} / 4) + 2)"
    march = f"({h} / 153)"  # months since March
    month = f"({march} + 3 - {march} / 10 * 12)"
    day = f"({_modulo(h, 153)} / 5 + 1)"
    year = f"({e} / 1461 - 4716 + {march} / 10)"
    since = f"({month} + {12 - calendar.fiscal_month})"  # months since the fiscal year before began
    fiscal_month = f"({_modulo(since, 12)} + 1)"
    match function:
        case "CALENDAR_YEAR":
            return year
        case "CALENDAR_QUARTER":
            return f"(({month} + 2) / 3)"
        case "CALENDAR_MONTH":
            return month
        case "FISCAL_YEAR":
            return f"({year} + {since} / 12 - {_years_back(calendar)})"
        case "FISCAL_QUARTER":
            return f"(({fiscal_month} + 2) / 3)"
        case "FISCAL_MONTH":
            return fiscal_month
        case "DAY_IN_MONTH":
            return day
        case "DAY_IN_WEEK":
            return f"({_modulo(f'({julian} + 1)', 7)} + 1)"
        case "WEEK_IN_MONTH":
            return f"(({day} - 1) / 7 + 1)"
        case "DAY_ONLY":
            return f"(({julian} - {_EPOCH_JULIAN}) * {DAY_MS})"
        case _:
            return _render_day_in_year(function, julian, year)


def _render_day_in_year(function: str, julian: str, year: str) -> str:
    past = f"({year} - 1)"
    first = f"(365 * {past} + {past} / 4 - {past} / 100 + {past} / 400 + 1721426)"
    if function == "DAY_IN_YEAR":
        return f"({julian} - {first} + 1)"
    return f"(({julian} - {first}) / 7 + 1)"
