"""Which literal fits which type of field, and its stored value."""

from __future__ import annotations

import math

from tidewire.errors import FilterInvalid, NumberOutOfRange, OperatorInvalid, SoqlSyntaxError
from tidewire.events import Value
from tidewire.ids import try_normalise_id
from tidewire.schema.field_types import DATE_TYPES, NUMBER_TYPES, FieldType, ValueKind
from tidewire.schema.model import Field
from tidewire.soql.ast import (
    BooleanLiteral,
    CurrencyLiteral,
    DateLiteral,
    DateTimeLiteral,
    Literal,
    NullLiteral,
    NumberLiteral,
    RelativeDate,
    StringLiteral,
    TimeLiteral,
)
from tidewire.soql.caret import pointing_error
from tidewire.soql.literals import try_date_ms, try_datetime_ms, try_time_ms

_MAX_INTEGER = 2**63 - 1


def is_sortable(field: Field) -> bool:
    """Return whether ORDER BY may look at the field."""
    return field.is_filterable and field.type.row.is_sortable


def is_groupable(field: Field) -> bool:
    """Return whether GROUP BY may look at the field: a datetime only through a date function."""
    return field.is_filterable and field.type.row.is_groupable


def _takes_text(field: Field) -> bool:
    return field.is_text or field.type.kind is ValueKind.CHOICES


def store_literal(
    query: str, position: int, field: Field, literal: Literal
) -> str | int | float | bool | None:
    """The stored value of a literal that a field is compared with; errors point at `position` in `query`.

    The empty text stays what it is, for id fields too: it comes before every id.
    """
    if isinstance(literal, NullLiteral):
        return None
    value = _try_value(query, position, field, literal)
    if value is not None:
        return value
    if isinstance(literal, RelativeDate) and field.type in DATE_TYPES:
        reason = f"date literal {literal.name} is not supported"
        raise pointing_error(SoqlSyntaxError, query, position, reason, field=field.name)
    raise pointing_error(FilterInvalid, query, position, _misfit(field), field=field.name)


def _misfit(field: Field) -> str:
    if _takes_text(field) or field.type.kind is ValueKind.ID:
        wanted = "string" if _takes_text(field) else "ID"
        quotes = "should be enclosed in quotes"
    else:
        wanted = "dateTime" if field.type.kind is ValueKind.DATETIME else field.type.row.word
        quotes = "should not be enclosed in quotes"
    return f"value of filter criterion for field '{field.name}' must be of type {wanted} and {quotes}"


def _try_value(query: str, position: int, field: Field, literal: Literal) -> Value:
    """None if the literal is of another type than the field."""
    match literal:
        case StringLiteral(value):
            if field.type.kind is ValueKind.ID:
                return _id_value(query, position, field, value)
            return value if _takes_text(field) else None
        case NumberLiteral(text):
            if field.type in NUMBER_TYPES:
                return _number_value(query, position, field, text)
            return None
        case CurrencyLiteral(_, text):
            # An org has one currency, so an amount in any is the number itself.
            is_amount = field.type is FieldType.CURRENCY
            return _number_value(query, position, field, text) if is_amount else None
        case BooleanLiteral(truth):
            return truth if field.type.kind is ValueKind.BOOLEAN else None
        case DateLiteral(text):
            return try_date_ms(text) if field.type.kind is ValueKind.DATE else None
        case DateTimeLiteral(text):
            return try_datetime_ms(text) if field.type.kind is ValueKind.DATETIME else None
        case TimeLiteral(text):
            return try_time_ms(text) if field.type.kind is ValueKind.TIME else None
        case NullLiteral() | RelativeDate():
            return None


def _id_value(query: str, position: int, field: Field, text: str) -> str:
    if text == "":
        return text
    record_id = try_normalise_id(text)
    if record_id is None:
        reason = f"invalid ID field: {text[:64]}"
        raise pointing_error(OperatorInvalid, query, position, reason, field=field.name)
    return record_id


def _number_value(query: str, position: int, field: Field, text: str) -> int | float:
    number: int | float = float(text)
    is_whole = field.type.kind is ValueKind.INTEGER and "." not in text
    if math.isfinite(number) and (not is_whole or abs(number) < _MAX_INTEGER):
        return int(text) if is_whole else number
    reason = f"numeric value out of range: {text[:64]}"
    raise pointing_error(NumberOutOfRange, query, position, reason, field=field.name, fields=(field.name,))
