"""The functions whose arguments are all computed before the call.

Each has the kinds of its parameters and of its result. A null among the arguments of a function that is not
of text makes its result null; a null text counts as empty. Counts and places in a text are whole numbers; a
fraction is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, ROUND_UP, Decimal
from typing import Any

from tidewire.schema.field_types import FormulaKind
from tidewire.schema.formula.kinds import ARITHMETIC, MAX_TEXT_CHARS, FormulaValue
from tidewire.schema.values import DAY_MS, render_date, render_datetime, render_time

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FIRST_DAY = date(1700, 1, 1).toordinal() - _EPOCH_ORDINAL
_LAST_DAY = date(4000, 12, 31).toordinal() - _EPOCH_ORDINAL
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})", re.ASCII)
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2}))?Z?)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function's kinds and what it does.

    Each parameter lists the kinds it takes. The last `optional` parameters may be left out; with `repeats`
    the last one may come again.
    """

    parameters: tuple[tuple[FormulaKind, ...], ...]
    result: FormulaKind
    apply: Callable[..., FormulaValue]
    optional: int = 0
    repeats: bool = False


def checked_day(day: int) -> int:
    """Return the stored form of a day since 1970; undefined outside of the years the platform knows."""
    if not _FIRST_DAY <= day <= _LAST_DAY:
        raise ArithmeticError("a day beyond the calendar")
    return day * DAY_MS


def checked_moment(epoch_ms: int) -> int:
    """Return the time; undefined outside of the years the platform knows."""
    checked_day(epoch_ms // DAY_MS)
    return epoch_ms


def checked_text(text: str) -> str:
    """Return the text; undefined past the length that any field could hold."""
    if len(text) > MAX_TEXT_CHARS:
        raise ArithmeticError("a text beyond all bounds")
    return text


def power(base: Decimal, exponent: Decimal) -> Decimal:
    """Return the base raised to the exponent."""
    return _finite(ARITHMETIC.power(base, exponent))


def whole(number: Decimal) -> int:
    """Return the number without its fraction; undefined where no count could be."""
    if abs(number) > 10**15:
        raise ArithmeticError("a count beyond all bounds")
    return int(number)


def render_number(number: Decimal) -> str:
    """Digits without an exponent, and without zeros at the end of a fraction."""
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def render_text(value: FormulaValue, kind: FormulaKind) -> str:
    """What TEXT gives for a value of this kind."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return render_number(value)
    if isinstance(value, str):
        return value
    match kind:
        case FormulaKind.DATE:
            return render_date(value)
        case FormulaKind.DATETIME:
            return render_datetime(value - value % 1000, "")[:19].replace("T", " ") + "Z"
        case _:
            return render_time(value)[:-1]


def _finite(number: Decimal) -> Decimal:
    # Poles are exact infinities to decimal arithmetic: LN(0) and 0 ^ -1 trip no trap.
    if not number.is_finite():
        raise ArithmeticError("a number without bound")
    return number


def _round(number: Decimal, places: Decimal) -> Decimal:
    digits = whole(places)
    if not -300 <= digits <= 300:
        raise ArithmeticError("no such place")
    if digits >= -number.as_tuple().exponent:  # type: ignore[operator]  # finite: the context traps the rest
        return number  # already as short; quantize would run out of digits
    # Shifted by hand: quantize refuses a place that the number's own digits do not reach.
    shifted = number.scaleb(digits, ARITHMETIC).to_integral_value(ROUND_HALF_UP)
    return shifted.scaleb(-digits, ARITHMETIC)


def _to_whole(rounding: str) -> Callable[[Decimal], Decimal]:
    return lambda number: number.to_integral_value(rounding)


def _mid(text: str, start: Decimal, count: Decimal) -> str:
    first = max(whole(start), 1) - 1
    return text[first : first + max(whole(count), 0)]


def _right(text: str, count: Decimal) -> str:
    wanted = max(whole(count), 0)
    return text[-wanted:] if wanted else ""


def _find(sought: str, text: str, start: Decimal = Decimal(1)) -> Decimal:
    first = whole(start)
    if not sought or first < 1:
        return Decimal(0)
    return Decimal(text.find(sought, first - 1) + 1)


def _substitute(text: str, old: str, new: str) -> str:
    if not old:
        return text
    # The size is known before the text is made, so that nested calls cannot grow without bound.
    if len(text) + text.count(old) * (len(new) - len(old)) > MAX_TEXT_CHARS:
        raise ArithmeticError("a text beyond all bounds")
    return text.replace(old, new)


def _value(text: str) -> Decimal | None:
    text = text.strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text) is None:
        raise ArithmeticError("not a number")
    return ARITHMETIC.create_decimal(text)


def _date(year: Decimal, month: Decimal, day: Decimal) -> int:
    return _day_of(whole(year), whole(month), whole(day))


def _day_of(year: int, month: int, day: int) -> int:
    try:
        ordinal = date(year, month, day).toordinal()
    except ValueError as error:
        raise ArithmeticError("no such day") from error
    return checked_day(ordinal - _EPOCH_ORDINAL)


def _date_value(value: str | int) -> int | None:
    if isinstance(value, int):
        return checked_day(value // DAY_MS)
    text = value.strip()
    if not text:
        return None
    match = _DATE.fullmatch(text)
    if match is None:
        raise ArithmeticError("not a date")
    return _day_of(int(match[1]), int(match[2]), int(match[3]))


def _datetime_value(value: str | int) -> int | None:
    if isinstance(value, int):
        return checked_moment(value)
    text = value.strip()
    if not text:
        return None
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ArithmeticError("not a datetime")
    hour, minute, second = (int(part or 0) for part in match.groups()[1:])
    if hour > 23 or minute > 59 or second > 59:
        raise ArithmeticError("no such time of day")
    return (_date_value(match[1]) or 0) + ((hour * 60 + minute) * 60 + second) * 1000


def _calendar(pick: Callable[[date], int]) -> Callable[[int], Decimal]:
    def apply(day_ms: int) -> Decimal:
        day = checked_day(day_ms // DAY_MS) // DAY_MS
        return Decimal(pick(date.fromordinal(day + _EPOCH_ORDINAL)))

    return apply


def _lowest(*numbers: Decimal) -> Decimal:
    return min(numbers)


def _highest(*numbers: Decimal) -> Decimal:
    return max(numbers)


_N, _T, _D = (FormulaKind.NUMBER,), (FormulaKind.TEXT,), (FormulaKind.DATE,)
_ANY_DATE: tuple[FormulaKind, ...] = (FormulaKind.TEXT, FormulaKind.DATE, FormulaKind.DATETIME)


def _of_number(apply: Callable[[Any], FormulaValue]) -> Function:
    return Function((_N,), FormulaKind.NUMBER, apply)


def _of_text(apply: Callable[[Any], FormulaValue], result: FormulaKind = FormulaKind.TEXT) -> Function:
    return Function((_T,), result, apply)


FUNCTIONS: dict[str, Function] = {
    "ABS": _of_number(ARITHMETIC.abs),
    # The platform's FLOOR goes toward zero below zero and CEILING away from it; MFLOOR and MCEILING do not.
    "FLOOR": _of_number(_to_whole(ROUND_DOWN)),
    "CEILING": _of_number(_to_whole(ROUND_UP)),
    "MFLOOR": _of_number(_to_whole(ROUND_FLOOR)),
    "MCEILING": _of_number(_to_whole(ROUND_CEILING)),
    "ROUND": Function((_N, _N), FormulaKind.NUMBER, _round),
    "SQRT": _of_number(ARITHMETIC.sqrt),
    "EXP": _of_number(ARITHMETIC.exp),
    "LN": _of_number(lambda number: _finite(ARITHMETIC.ln(number))),
    "LOG": _of_number(lambda number: _finite(ARITHMETIC.log10(number))),
    "MOD": Function((_N, _N), FormulaKind.NUMBER, ARITHMETIC.remainder),
    "MIN": Function((_N,), FormulaKind.NUMBER, _lowest, repeats=True),
    "MAX": Function((_N,), FormulaKind.NUMBER, _highest, repeats=True),
    "LEN": _of_text(lambda text: Decimal(len(text)), FormulaKind.NUMBER),
    "LEFT": Function((_T, _N), FormulaKind.TEXT, lambda text, count: text[: max(whole(count), 0)]),
    "RIGHT": Function((_T, _N), FormulaKind.TEXT, _right),
    "MID": Function((_T, _N, _N), FormulaKind.TEXT, _mid),
    "UPPER": _of_text(lambda text: checked_text(text.upper())),
    "LOWER": _of_text(lambda text: checked_text(text.lower())),
    "TRIM": _of_text(lambda text: text.strip(" \t\r\n")),
    "CONTAINS": Function((_T, _T), FormulaKind.TRUTH, lambda text, part: part in text),
    "BEGINS": Function((_T, _T), FormulaKind.TRUTH, lambda text, part: text.startswith(part)),
    "SUBSTITUTE": Function((_T, _T, _T), FormulaKind.TEXT, _substitute),
    "FIND": Function((_T, _T, _N), FormulaKind.NUMBER, _find, optional=1),
    "VALUE": _of_text(_value, FormulaKind.NUMBER),
    "DATE": Function((_N, _N, _N), FormulaKind.DATE, _date),
    "DATEVALUE": Function((_ANY_DATE,), FormulaKind.DATE, _date_value),
    "DATETIMEVALUE": Function((_ANY_DATE,), FormulaKind.DATETIME, _datetime_value),
    "YEAR": Function((_D,), FormulaKind.NUMBER, _calendar(lambda day: day.year)),
    "MONTH": Function((_D,), FormulaKind.NUMBER, _calendar(lambda day: day.month)),
    "DAY": Function((_D,), FormulaKind.NUMBER, _calendar(lambda day: day.day)),
}
