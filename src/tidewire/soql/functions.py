"""Binds functions of fields: dates, distances, labels."""

from __future__ import annotations

from dataclasses import replace

from tidewire.errors import FieldUnknown
from tidewire.schema.field_types import DATE_TYPES, FieldType
from tidewire.schema.model import Field
from tidewire.soql.ast import FieldPath, FunctionCall, NumberLiteral, StringLiteral, Subject
from tidewire.soql.bound import Column, DatePart, Distance, Operand
from tidewire.soql.dates import CLOCK_FUNCTIONS, DATE_FUNCTIONS
from tidewire.soql.scope import Scope
from tidewire.soql.zones import UTC

AGGREGATES = frozenset({"COUNT", "COUNT_DISTINCT", "SUM", "AVG", "MIN", "MAX"})
PRESENTATIONS = frozenset({"TOLABEL", "FORMAT", "CONVERTCURRENCY"})
"""Functions that change how a selected field is shown."""
_MAX_LATITUDE, _MAX_LONGITUDE = 90.0, 180.0


def result_field(name: str, kind: FieldType) -> Field:
    """Return a description of what a function gives, for the rules of comparing and showing it."""
    return Field(name=name, label=name, type=kind)


def function_name(subject: object) -> str:
    """Return a function's name in the form in which names compare; empty for anything but a function."""
    return subject.name.upper() if isinstance(subject, FunctionCall) else ""


def bind_operand(scope: Scope, subject: Subject) -> Operand:
    """Bind a field or function in WHERE, ORDER BY or GROUP BY."""
    if isinstance(subject, FieldPath):
        return scope.column(subject)
    name = function_name(subject)
    if name in DATE_FUNCTIONS:
        return _date_part(scope, subject, name)
    if name == "DISTANCE":
        return bind_distance(scope, subject)
    raise unknown_function(scope, subject)


def unknown_function(scope: Scope, call: FunctionCall) -> Exception:
    """Return the error for a function that cannot stand here."""
    return scope.syntax_error(call.position, f"function '{call.name}' is not supported")


def only_argument(scope: Scope, call: FunctionCall) -> FieldPath:
    """Return the one field that a function is about. Raises SoqlSyntaxError."""
    if len(call.arguments) != 1 or not isinstance(call.arguments[0], FieldPath):
        raise scope.syntax_error(call.position, f"function '{call.name}' takes one field")
    return call.arguments[0]


def _date_part(scope: Scope, call: FunctionCall, name: str) -> DatePart:
    inner = call.arguments[0]
    is_converted = function_name(inner) == "CONVERTTIMEZONE" and len(call.arguments) == 1
    path = only_argument(scope, inner if is_converted and isinstance(inner, FunctionCall) else call)
    column = scope.column(path)
    wants_clock = name in CLOCK_FUNCTIONS or is_converted
    if column.field.type not in ({FieldType.DATETIME} if wants_clock else DATE_TYPES):
        reason = f"function '{call.name}' can not be applied to field '{column.field.name}'"
        raise scope.syntax_error(call.position, reason)
    kind = FieldType.DATE if name == "DAY_ONLY" else FieldType.INTEGER
    calendar = scope.caller.calendar
    if not is_converted:
        calendar = replace(calendar, zone=UTC)
    described = result_field(f"{name}({converted_name(column.field.name, is_converted)})", kind)
    return DatePart(name, column, described, calendar, is_converted)


def converted_name(name: str, is_converted: bool) -> str:
    """Return how a time is written inside a date function."""
    return f"convertTimezone({name})" if is_converted else name


def bind_distance(scope: Scope, call: FunctionCall) -> Distance:
    """DISTANCE(place, GEOLOCATION(latitude, longitude), 'mi' or 'km')."""
    if len(call.arguments) != 3:
        raise scope.syntax_error(call.position, "DISTANCE takes a location, a GEOLOCATION and a unit")
    place, point, unit = call.arguments
    if not isinstance(place, FieldPath) or not isinstance(point, FunctionCall):
        raise scope.syntax_error(call.position, "DISTANCE takes a location, a GEOLOCATION and a unit")
    if not isinstance(unit, StringLiteral) or unit.value.lower() not in ("mi", "km"):
        raise scope.syntax_error(call.position, "the unit of DISTANCE must be 'mi' or 'km'")
    column = scope.column(place)
    if column.steps:
        raise scope.syntax_error(place.position, "DISTANCE takes a field of the queried object")
    if not column.field.type.row.is_place:
        reason = f"field '{column.field.name}' is not a location: it has no distance"
        raise scope.syntax_error(place.position, reason)
    parts = {part.component: part for part in scope.entity.components(column.field.name)}
    latitude, longitude = parts.get("Latitude"), parts.get("Longitude")
    if latitude is None or longitude is None:
        raise scope.syntax_error(place.position, f"field '{column.field.name}' has no coordinates")
    for part in (latitude, longitude):
        if not scope.is_readable(part):
            raise scope.error(
                FieldUnknown,
                place.position,
                f"field '{column.field.name}' has no coordinates",
                field=part.name,
            )
    return Distance(
        Column(latitude),
        Column(longitude),
        _point(scope, point),
        unit.value.lower() == "mi",
        result_field(f"DISTANCE({column.field.name})", FieldType.NUMBER),
    )


def _point(scope: Scope, call: FunctionCall) -> tuple[float, float]:
    degrees = [float(each.text) for each in call.arguments if isinstance(each, NumberLiteral)]
    if function_name(call) != "GEOLOCATION" or len(degrees) != 2 or len(call.arguments) != 2:
        raise scope.syntax_error(call.position, "DISTANCE measures from GEOLOCATION(latitude, longitude)")
    latitude, longitude = degrees
    if abs(latitude) > _MAX_LATITUDE or abs(longitude) > _MAX_LONGITUDE:
        raise scope.syntax_error(call.position, "GEOLOCATION is outside of the globe")
    return latitude, longitude
