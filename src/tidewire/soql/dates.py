"""Date ranges relative to today, and the parts of a moment: its year, its week, its hour.

All in UTC. A day begins at midnight UTC and a week on Sunday; the fiscal year is the calendar year. Parts are
computed from the Julian day number by integer arithmetic alone, which SQL can do alike: `part_of` and
`render_part` are the same formulas, once over numbers and once as SQL text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH_JULIAN = 2_440_588
_SHIFT_MS = _EPOCH_JULIAN * DAY_MS  # makes every moment positive, where both kinds of division agree
_FIRST_MONTH, _LAST_MONTH = 12, 9_999 * 12 + 11
_MONTHS_OF = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "FISCAL_QUARTER": 3, "FISCAL_YEAR": 12}
_NAMED_DAYS = {
    "YESTERDAY": (-1, 0),
    "TODAY": (0, 1),
    "TOMORROW": (1, 2),
    "LAST_90_DAYS": (-90, 1),
    "NEXT_90_DAYS": (1, 91),
}


def relative_range(name: str, count: int | None, now_ms: int) -> tuple[int, int]:
    """The first moment of a range such as `LAST_N_DAYS:5`, and the first after it, in epoch ms.

    LAST_N_DAYS goes on to the end of today; all other ranges are whole periods before, around or after it.
    Months before year 1 or after year 9999 count as the first or last there is.
    """
    today = now_ms // DAY_MS
    if name in _NAMED_DAYS:
        first, end = _NAMED_DAYS[name]
        return (today + first) * DAY_MS, (today + end) * DAY_MS
    period, first, end = _periods(name, count or 0)
    if period == "DAY":
        # Only here does the range reach up to now instead of ending before the current period.
        end = 1 if name.startswith("LAST_N_") else end
        return (today + first) * DAY_MS, (today + end) * DAY_MS
    if period == "WEEK":
        sunday = today - (today + 4) % 7
        return (sunday + 7 * first) * DAY_MS, (sunday + 7 * end) * DAY_MS
    months = _MONTHS_OF[period]
    day = date.fromordinal(today + _EPOCH_DAY)
    index = (day.year * 12 + day.month - 1) // months
    return _month_ms((index + first) * months), _month_ms((index + end) * months)


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


def _month_ms(index: int) -> int:
    year, month = divmod(min(max(index, _FIRST_MONTH), _LAST_MONTH), 12)
    return (date(year, month + 1, 1).toordinal() - _EPOCH_DAY) * DAY_MS


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
    "FISCAL_YEAR": _year,
    "FISCAL_QUARTER": lambda julian: (_month(julian) + 2) // 3,
    "FISCAL_MONTH": _month,
    "DAY_IN_YEAR": _day_in_year,
    "DAY_IN_MONTH": _day,
    "DAY_IN_WEEK": lambda julian: (julian + 1) % 7 + 1,
    "WEEK_IN_YEAR": lambda julian: (_day_in_year(julian) - 1) // 7 + 1,
    "WEEK_IN_MONTH": lambda julian: (_day(julian) - 1) // 7 + 1,
    "DAY_ONLY": lambda julian: (julian - _EPOCH_JULIAN) * DAY_MS,
}
CLOCK_FUNCTIONS = frozenset({"HOUR_IN_DAY", "DAY_ONLY"})
"""Functions that only a datetime has an answer to."""
DATE_FUNCTIONS = frozenset(_PARTS) | CLOCK_FUNCTIONS
"""Functions from a date or datetime to a whole number, or to a date for DAY_ONLY."""


def part_of(function: str, epoch_ms: int) -> int:
    """What a date function says of a moment."""
    if function == "HOUR_IN_DAY":
        return epoch_ms % DAY_MS // _HOUR_MS
    return _PARTS[function](epoch_ms // DAY_MS + _EPOCH_JULIAN)


def _modulo(text: str, divisor: int) -> str:
    # Drivers whose placeholders begin with a percent sign would stumble over the operator.
    return f"({text} - {text} / {divisor} * {divisor})"


def render_part(function: str, column: str) -> str:
    """SQL for a date function of a column; null for null."""
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
    match function:
        case "CALENDAR_YEAR" | "FISCAL_YEAR":
            return year
        case "CALENDAR_QUARTER" | "FISCAL_QUARTER":
            return f"(({month} + 2) / 3)"
        case "CALENDAR_MONTH" | "FISCAL_MONTH":
            return month
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
