"""toLabel() and FORMAT(): the labels of picklist values, and numbers and dates in the locale en_US."""

from __future__ import annotations

from datetime import UTC as UTC_TIME
from datetime import datetime, timedelta

from tidewire.events import Value
from tidewire.schema.field_types import ValueKind
from tidewire.schema.model import Field
from tidewire.schema.text_keys import fold_key
from tidewire.soql.zones import UTC, Zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC_TIME)


def format_value(function: str, field: Field, value: Value, zone: Zone = UTC) -> Value:
    """Format a stored value for TOLABEL or FORMAT, times in `zone`; null stays null."""
    if value is None:
        return None
    return _label(field, str(value)) if function == "TOLABEL" else _formatted(field, value, zone)


def _label(field: Field, value: str) -> str:
    labels = {fold_key(choice.value): choice.label for choice in field.picklist}
    if field.type.kind is ValueKind.CHOICES:
        return ";".join(labels.get(fold_key(each), each) for each in value.split(";"))
    return labels.get(fold_key(value), value)


def _formatted(field: Field, value: Value, zone: Zone) -> Value:
    if isinstance(value, str | None):
        return value
    if field.type.kind is ValueKind.DOUBLE:
        digits = f"{abs(value):,.{field.scale}f}"
        sign = "-" if value < 0 else ""
        return f"{sign}{field.type.row.currency_sign}{digits}{field.type.row.number_suffix}"
    match field.type.kind:
        case ValueKind.INTEGER:
            return f"{int(value):,}"
        case ValueKind.DATE:
            return _day(int(value))
        case ValueKind.DATETIME:
            local_ms = zone.local_ms(int(value))
            return f"{_day(local_ms)}, {_clock(local_ms)}"
        case ValueKind.TIME:
            return _clock(int(value))
        case _:
            return value


def _day(epoch_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    return f"{moment.month}/{moment.day}/{moment.year}"


def _clock(epoch_ms: int) -> str:
    minutes = epoch_ms % 86_400_000 // 60_000
    hour, minute = divmod(minutes, 60)
    return f"{(hour + 11) % 12 + 1}:{minute:02} {'AM' if hour < 12 else 'PM'}"
