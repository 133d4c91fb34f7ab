"""Map Avro fields to replica columns: names, types, and conversion when a field's type changes.

A replica is flat. A field keeps its name; a component of a compound field becomes `<Field>_<Component>`, as
in `BillingAddress_City` or `Name_LastName`, because an Avro schema says no more about it. Types come from the
Avro type, refined by the field's doc (`Data:DateTime`). Our own columns begin with an underscore, which no
field name does.

Between steps a value stays as Avro encodes it (text, number, boolean; dates and times as milliseconds); only
the replica table holds typed values.

A field whose type changes keeps its column name. If values of the old type cannot all be represented in the
new one, they stay in a separate column, `<name>__old_<first 8 characters of the schema id that had the
type>`.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.schema.field_types import ValueKind, doc_kind

Native = str | int | float | bool | None
"""A field value as Avro encodes it."""

_DAY_MS = 86_400_000
_TRUTH = {"true": True, "false": False}


class Kind(Enum):
    """The type of a replica column; the values are shown in messages."""

    TEXT = "text"
    TRUTH = "boolean"
    WHOLE = "whole number"
    DOUBLE = "double"
    TIMESTAMP = "timestamp"
    DATE = "date"


ARROW: Mapping[Kind, pa.DataType] = {
    Kind.TEXT: pa.string(),
    Kind.TRUTH: pa.bool_(),
    Kind.WHOLE: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.DATE: pa.date32(),
}
_KINDS = {arrow: kind for kind, arrow in ARROW.items()}
_AVRO_KINDS = {
    "string": Kind.TEXT,
    "boolean": Kind.TRUTH,
    "int": Kind.WHOLE,
    "long": Kind.WHOLE,
    "float": Kind.DOUBLE,
    "double": Kind.DOUBLE,
}
_DOC_KINDS: dict[ValueKind | None, Kind] = {ValueKind.DATETIME: Kind.TIMESTAMP, ValueKind.DATE: Kind.DATE}

RECORD_ID = "Id"
REPLAY_ID = "_replay_id"
COMMIT_MS = "_commit_ms"
DELETED = "_deleted"
STALE = "_stale"
BUCKET = "_bucket"
OWN_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    (RECORD_ID, pa.string()),
    (REPLAY_ID, pa.int64()),
    (COMMIT_MS, pa.int64()),
    (DELETED, pa.bool_()),
    (STALE, pa.bool_()),
)
"""The columns that every replica begins with."""
_OWN_NAMES = frozenset(name for name, _ in OWN_COLUMNS) | {BUCKET}
_OLD = "__old_"
_OLD_ID_LENGTH = 8
# From year 1 to the end of year 9999, which every reader of timestamps supports.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_EXACT = frozenset({(Kind.WHOLE, Kind.DOUBLE), (Kind.WHOLE, Kind.TEXT), (Kind.DOUBLE, Kind.TEXT)})
# The server drops the values of a checkbox or date on any conversion, even where they have equivalents.
_PARTIAL = frozenset(
    {
        (Kind.TRUTH, Kind.TEXT),
        (Kind.DATE, Kind.TIMESTAMP),
        (Kind.TEXT, Kind.WHOLE),
        (Kind.TEXT, Kind.DOUBLE),
        (Kind.TEXT, Kind.TRUTH),
        (Kind.DOUBLE, Kind.WHOLE),
    }
)


def component_column(field: str, component: str) -> str:
    """Return the column of a component of a compound field."""
    return f"{field}_{component}"


def parse_columns(schema_json: str) -> dict[str, tuple[str, ...]]:
    """Return the replica columns of each field of a change event schema, without the header."""
    return {field: tuple(columns) for field, columns in _iter_fields(json.loads(schema_json))}


def parse_kinds(schema_json: str) -> dict[str, Kind]:
    """Return the type of each replica column of a change event schema, in field order."""
    kinds: dict[str, Kind] = {}
    for _, columns in _iter_fields(json.loads(schema_json)):
        kinds.update(columns)
    return kinds


def _iter_fields(schema: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Kind]]]:
    named: dict[str, Mapping[str, Any]] = {}
    for field in schema["fields"]:
        if field["name"] == "ChangeEventHeader":
            continue
        name = field["name"]
        kind = doc_kind(field.get("doc", ""))
        columns: dict[str, Kind] = {}
        for branch in _branches(field["type"], named):
            if isinstance(branch, str):
                columns[name] = _DOC_KINDS.get(kind, _AVRO_KINDS[branch])
            else:
                for part in branch["fields"]:
                    for inner in _branches(part["type"], named):
                        if isinstance(inner, str):
                            columns[component_column(name, part["name"])] = _AVRO_KINDS[inner]
        yield name, columns


def _branches(avro_type: Any, named: dict[str, Mapping[str, Any]]) -> list[str | Mapping[str, Any]]:
    """Return the non-null alternatives of a type; records are remembered by name."""
    found: list[str | Mapping[str, Any]] = []
    for branch in avro_type if isinstance(avro_type, list) else [avro_type]:
        if isinstance(branch, Mapping) and branch["type"] == "record":
            named[branch["name"]] = branch
            found.append(branch)
        elif isinstance(branch, Mapping):
            found.append(branch["type"] if branch["type"] in _AVRO_KINDS else "string")
        elif branch in _AVRO_KINDS:
            found.append(branch)
        elif branch != "null":
            found.append(named[branch.rpartition(".")[2]])
    return found


def replica_schema(kinds: Mapping[str, Kind]) -> pa.Schema:
    """Return the Arrow schema of a replica with these field columns."""
    return pa.schema([*OWN_COLUMNS, *((name, ARROW[kind]) for name, kind in kinds.items())])


def kinds_of(schema: pa.Schema) -> dict[str, Kind]:
    """Return the field columns of a replica's Arrow schema."""
    return {field.name: _KINDS[field.type] for field in schema if field.name not in _OWN_NAMES}


def bucket_of(record_id: str, buckets: int) -> int:
    """Return the partition of a replica that holds a record.

    Must never change; any engine with CRC-32 can compute it.
    """
    return zlib.crc32(record_id.encode()) % buckets


def merge_kinds(schemas: Iterable[tuple[str, Mapping[str, Kind]]]) -> dict[str, Kind]:
    """Merge the columns of schemas (id and columns), which are in the order of their last use.

    Later types win; an earlier type whose values they cannot hold gets an old column.
    """
    kinds: dict[str, Kind] = {}
    sources: dict[str, str] = {}
    for schema_id, columns in schemas:
        for name, kind in columns.items():
            present = kinds.get(name)
            if present is not None and loses_values(present, kind):
                kinds[old_column(name, sources[name])] = present
            kinds[name] = kind
            sources[name] = schema_id
    return kinds


def loses_values(old: Kind, new: Kind) -> bool:
    """Return whether a change of a field's type may lose values."""
    return old is not new and (old, new) not in _EXACT


def old_column(name: str, schema_id: str) -> str:
    """Return the column that keeps the values of a column from before its type changed."""
    return f"{name}{_OLD}{schema_id[:_OLD_ID_LENGTH]}"


def old_columns(kinds: Mapping[str, Kind]) -> dict[str, list[tuple[str, Kind]]]:
    """Return the old columns and their types, by column."""
    found: dict[str, list[tuple[str, Kind]]] = {}
    for name, kind in kinds.items():
        current, mark, _ = name.rpartition(_OLD)
        if mark and current in kinds:
            found.setdefault(current, []).append((name, kind))
    return found


def fits(value: Native, kind: Kind) -> bool:
    """Return whether a non-null value can be stored in a column of this type unchanged."""
    match kind:
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.TRUTH:
            return isinstance(value, bool)
        case Kind.WHOLE:
            return type(value) is int
        case Kind.DOUBLE:
            return type(value) is float or type(value) is int
        case Kind.TIMESTAMP | Kind.DATE:
            return type(value) is int and _FIRST_MS <= value <= _LAST_MS


def convert(value: Native, old: Kind, new: Kind) -> Native:
    """Convert a value to another column type; None if it has no equivalent there. None stays None.

    Dates and times have no equivalent in other types: what a text means as a day is up to its author.
    """
    if old is new:
        return value if value is None or fits(value, new) else None
    if (old, new) not in _EXACT and (old, new) not in _PARTIAL:
        return None
    return try_convert(value, new)


def kind_of(value: Native) -> Kind:
    """Return the type of a non-null value."""
    match value:
        case str():
            return Kind.TEXT
        case bool():
            return Kind.TRUTH
        case int():
            return Kind.WHOLE
        case _:
            return Kind.DOUBLE


def try_convert(value: Native, kind: Kind) -> Native:
    """Convert a value to a column type by its own type; None if it has no equivalent. None stays None."""
    match kind:
        case Kind.TEXT:
            return _to_text(value)
        case Kind.TRUTH:
            return _TRUTH.get(str(value).lower())  # numbers and None have no entry
        case Kind.DOUBLE:
            number = _to_number(value)
            return float(number) if number is not None else None
        case Kind.WHOLE | Kind.TIMESTAMP | Kind.DATE:
            number = _to_number(value)
            return int(number) if number is not None and float(number).is_integer() else None


def _to_text(value: Native) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    # Without an exponent, as the server stores a number that becomes text.
    return str(int(value)) if float(value).is_integer() else format(Decimal(repr(value)), "f")


def _to_number(value: Native) -> int | float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return None
        return number if math.isfinite(number) else None
    return value


def render_column(values: Sequence[Native], kind: Kind) -> pa.Array:
    """Return native values, already of the right type, as a typed column."""
    match kind:
        case Kind.TIMESTAMP:
            milliseconds = pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
            return milliseconds.cast(ARROW[kind])
        case Kind.DATE:
            days = [None if v is None else int(v) // _DAY_MS for v in values]
            return pa.array(days, pa.int32()).cast(pa.date32())
        case _:
            return pa.array(values, ARROW[kind])


def parse_column(column: pa.ChunkedArray, kind: Kind) -> list[Native]:
    """Return a typed column as native values."""
    if kind is Kind.TIMESTAMP:
        column = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    elif kind is Kind.DATE:
        column = pc.multiply(column.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
    values: list[Native] = column.to_pylist()
    return values
