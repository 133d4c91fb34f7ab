"""Parses and renders field values: JSON from callers to stored values, and back.

Stored dates and datetimes are epoch milliseconds, times are milliseconds since midnight, numbers are doubles
already rounded to their scale; see `tidewire.events.Value`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import NoReturn

from tidewire.errors import (
    EmailInvalid,
    IdMalformed,
    NumberOutOfRange,
    PicklistValueInvalid,
    TextTooLong,
    ValueMalformed,
)
from tidewire.events import Value
from tidewire.ids import try_normalise_id
from tidewire.schema.field_types import FieldType, ValueKind
from tidewire.schema.model import Field, ObjectType

DAY_MS = 86_400_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FIRST_DAY = date.min.toordinal() - _EPOCH_ORDINAL
_LAST_DAY = date.max.toordinal() - _EPOCH_ORDINAL
_FIRST_YEAR, _LAST_YEAR = 1700, 4000
_BLANKS = " \t\r\n\v\f"
_INT_LIMIT = 1 << 31
_SHOWN_LENGTH = 255
_MAX_NUMBER_LENGTH = 64
_MAX_CHOICES = 500
# Wide enough for every field's digits before and after the point, and for a double's shortest form.
_ARITHMETIC = Context(prec=80, rounding=ROUND_HALF_UP)

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
_DATETIME = re.compile(rf"([0-9-]{{10}})[Tt ]{_CLOCK}(?:[Zz]|([+-])([0-9]{{2}}):?([0-9]{{2}})?)")
_TIME = re.compile(rf"{_CLOCK}[Zz]?")
_EMAIL = re.compile(r"[^\s@<>()\[\],;:\\\"]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")

_COMPONENT_LIMITS = {"Latitude": 90, "Longitude": 180}


def parse_value(field: Field, raw: object) -> Value:
    """The stored form of a value from a JSON body. Null and empty text become None, or False for a checkbox.

    Raises the RequestError that fits, with the field in its details.
    """
    if raw is None or raw == "":
        return False if field.type is FieldType.CHECKBOX else None
    return _PARSERS[field.type.kind](field, raw)


def render_value(field: Field, value: Value, datetime_suffix: str) -> Value:
    """Render a stored value as JSON; a datetime ends in `datetime_suffix`, `+0000` or `Z`."""
    if value is None:
        return False if field.type is FieldType.CHECKBOX else None
    if isinstance(value, str):
        return value
    match field.type.kind:
        case ValueKind.DATETIME:
            return render_datetime(int(value), datetime_suffix)
        case ValueKind.DATE:
            return render_date(int(value))
        case ValueKind.TIME:
            return render_time(int(value))
        case ValueKind.BOOLEAN:
            return bool(value)
        case ValueKind.INTEGER:
            return int(value)
        case ValueKind.DOUBLE:
            return float(value)
        case _:
            return value


def render_compound(
    obj: ObjectType, compound_field: Field, row: Mapping[str, Value], datetime_suffix: str
) -> dict[str, Value] | str | None:
    """The JSON form of a compound field, from a row with its components; None when all of them are null."""
    parts = {
        part.component: render_value(part, row.get(part.name), datetime_suffix)
        for part in obj.components(compound_field.name)
    }
    if compound_field.type is FieldType.PERSON_NAME:
        return join_person_name(row)
    if all(value is None for value in parts.values()):
        return None
    return {key[0].lower() + key[1:]: parts[key] for key in sorted(parts)}


def join_person_name(row: Mapping[str, Value]) -> str | None:
    """A person's `First Last` from a row with both, as the Name column keeps it; None when both are null."""
    return " ".join(str(row[key]) for key in ("FirstName", "LastName") if row.get(key)) or None


def render_datetime(epoch_ms: int, suffix: str) -> str:
    """`YYYY-MM-DDThh:mm:ss.SSS` and the suffix. Moments beyond the calendar show as its first or last day."""
    day, rest_ms = divmod(epoch_ms, DAY_MS)
    return f"{_render_day(min(max(day, _FIRST_DAY), _LAST_DAY))}T{_render_clock(rest_ms)}{suffix}"


def render_date(epoch_ms: int) -> str:
    """`YYYY-MM-DD`."""
    return _render_day(min(max(epoch_ms // DAY_MS, _FIRST_DAY), _LAST_DAY))


def render_time(day_ms: int) -> str:
    """`hh:mm:ss.SSSZ`."""
    return _render_clock(day_ms % DAY_MS) + "Z"


# Records and events of one run are mostly of a few days.
@lru_cache(maxsize=4096)
def _render_day(day: int) -> str:
    return date.fromordinal(day + _EPOCH_ORDINAL).isoformat()


def _render_clock(day_ms: int) -> str:
    seconds, ms = divmod(day_ms, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{ms:03}"


def _shown(raw: object) -> str:
    """Return a value as an error message shows it: short, and never a whole structure."""
    if isinstance(raw, dict):
        return "{"
    if isinstance(raw, (list, tuple)):
        return "["
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, int) and raw.bit_length() > 256:
        return "of more than 256 bits"
    text = str(raw).replace("\0", "").encode("utf-8", "replace").decode()
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."


def _refuse(field: Field, raw: object) -> NoReturn:
    if isinstance(raw, bool):
        found = "VALUE_TRUE" if raw else "VALUE_FALSE"
    elif isinstance(raw, int):
        found = "VALUE_NUMBER_INT"
    elif isinstance(raw, float):
        found = "VALUE_NUMBER_FLOAT"
    elif isinstance(raw, dict):
        found = "START_OBJECT"
    elif isinstance(raw, (list, tuple)):
        found = "START_ARRAY"
    else:
        found = "VALUE_STRING"
    raise ValueMalformed(
        f"Cannot deserialize instance of {field.type.row.word} from {found} value {_shown(raw)} "
        "or request may be missing a required field",
        fields=[field.name],
    )


def _parse_text(field: Field, raw: object) -> str | None:
    if not isinstance(raw, str):
        _refuse(field, raw)
    try:
        if not raw.isascii():
            raw.encode()
    except UnicodeEncodeError:
        raise ValueMalformed(
            f"{field.label}: text with half of a surrogate pair", fields=[field.name]
        ) from None
    if "\0" in raw:
        raise ValueMalformed(f"{field.label}: text with a null character", fields=[field.name])
    text = raw.strip(_BLANKS)
    if not text:
        return None
    if field.length and len(text) > field.length:
        raise TextTooLong(
            f"{field.label}: data value too large: {_shown(text)} (max length={field.length})",
            fields=[field.name],
            max_length=field.length,
        )
    if field.type is FieldType.EMAIL and _EMAIL.fullmatch(text) is None:
        raise EmailInvalid(f"{field.label}: invalid email address: {_shown(text)}", fields=[field.name])
    if field.type is FieldType.PICKLIST:
        _check_choice(field, text)
    return text


def _check_choice(field: Field, text: str) -> None:
    if field.restricted and not any(c.value == text and c.is_active for c in field.picklist):
        raise PicklistValueInvalid(
            f"{field.name}: bad value for restricted picklist field: {_shown(text)}", fields=[field.name]
        )


def _parse_choices(field: Field, raw: object) -> str | None:
    """Several choices, each once: the defined ones in the order of definition, then others as they came."""
    text = _parse_text(field, raw)
    if text is None:
        return None
    chosen = dict.fromkeys(part.strip(_BLANKS) for part in text.split(";"))
    chosen.pop("", None)
    if len(chosen) > _MAX_CHOICES:
        raise PicklistValueInvalid(
            f"{field.name}: more than {_MAX_CHOICES} values: {len(chosen)}", fields=[field.name]
        )
    for part in chosen:
        _check_choice(field, part)
    defined = [choice.value for choice in field.picklist]
    known = [value for value in defined if value in chosen]
    others = [value for value in chosen if value not in set(defined)]
    return ";".join(known + others) or None


def _parse_id(field: Field, raw: object) -> str:
    if not isinstance(raw, str):
        _refuse(field, raw)
    found = try_normalise_id(raw)
    if found is None:
        shown = _shown(raw)
        raise IdMalformed(
            f"{field.label}: id value of incorrect type: {shown}", value=shown, fields=[field.name]
        )
    return found


def _parse_number(field: Field, raw: object) -> Decimal:
    if isinstance(raw, str):
        text = raw.strip(_BLANKS)
        if len(text) > _MAX_NUMBER_LENGTH or _NUMBER.fullmatch(text) is None:
            _refuse(field, raw)
        return Decimal(text)
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        _refuse(field, raw)
    # A double's shortest text is what its sender wrote; its exact binary value would round wrongly at halves.
    number = Decimal(repr(raw)) if isinstance(raw, float) else Decimal(raw)
    if not number.is_finite():
        _refuse(field, raw)
    return number


def _out_of_range(field: Field, raw: object) -> NumberOutOfRange:
    return NumberOutOfRange(
        f"{field.label}: value outside of valid range on numeric field: {_shown(raw)}", fields=[field.name]
    )


def _parse_integer(field: Field, raw: object) -> int:
    number = _parse_number(field, raw)
    limit = min(_INT_LIMIT, 10**field.precision) if field.precision else _INT_LIMIT
    if abs(number) >= limit:
        raise _out_of_range(field, raw)
    if number != number.to_integral_value():
        _refuse(field, raw)
    return int(number)


def _parse_double(field: Field, raw: object) -> float:
    number = _parse_number(field, raw)
    whole_digits = field.precision - field.scale if field.precision else 18
    # Before rounding as well as after: quantize itself fails on numbers of absurd size.
    if abs(number) >= 10**whole_digits:
        raise _out_of_range(field, raw)
    number = number.quantize(Decimal(1).scaleb(-field.scale), context=_ARITHMETIC)
    if abs(number) >= 10**whole_digits or abs(number) > _COMPONENT_LIMITS.get(field.component, abs(number)):
        raise _out_of_range(field, raw)
    return float(number) + 0.0  # no negative zero


def _parse_checkbox(field: Field, raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    _refuse(field, raw)


def _try_day(text: str) -> int | None:
    """Days since 1970, or None if the text is not a day within the years the platform knows."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = (int(part) for part in match.groups())
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        return None
    try:
        return date(year, month, day).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        return None


def _try_clock_ms(hour: str, minute: str, second: str | None, fraction: str | None) -> int | None:
    """Milliseconds since midnight; digits past the third of the fraction are cut."""
    h, m, s = int(hour), int(minute), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        return None
    return ((h * 60 + m) * 60 + s) * 1000 + int(f"{fraction or '0':0<3}"[:3])


def _parse_date(field: Field, raw: object) -> int:
    day = _try_day(raw.strip(_BLANKS)) if isinstance(raw, str) else None
    if day is None:
        _refuse(field, raw)
    return day * DAY_MS


def _parse_datetime(field: Field, raw: object) -> int:
    match = _DATETIME.fullmatch(raw.strip(_BLANKS)) if isinstance(raw, str) else None
    if match is None:
        _refuse(field, raw)
    day = _try_day(match[1])
    clock_ms = _try_clock_ms(match[2], match[3], match[4], match[5])
    offset_hours, offset_minutes = int(match[7] or 0), int(match[8] or 0)
    if day is None or clock_ms is None or offset_hours > 23 or offset_minutes > 59:
        _refuse(field, raw)
    offset_ms = (offset_hours * 60 + offset_minutes) * 60_000
    return day * DAY_MS + clock_ms + (offset_ms if match[6] == "-" else -offset_ms)


def _parse_time(field: Field, raw: object) -> int:
    match = _TIME.fullmatch(raw.strip(_BLANKS)) if isinstance(raw, str) else None
    clock_ms = None if match is None else _try_clock_ms(match[1], match[2], match[3], match[4])
    if clock_ms is None:
        _refuse(field, raw)
    return clock_ms


_PARSERS: dict[ValueKind, Callable[[Field, object], Value]] = {
    ValueKind.TEXT: _parse_text,
    ValueKind.CHOICES: _parse_choices,
    ValueKind.ID: _parse_id,
    ValueKind.INTEGER: _parse_integer,
    ValueKind.DOUBLE: _parse_double,
    ValueKind.BOOLEAN: _parse_checkbox,
    ValueKind.DATE: _parse_date,
    ValueKind.DATETIME: _parse_datetime,
    ValueKind.TIME: _parse_time,
    ValueKind.COMPOUND: _refuse,
}
