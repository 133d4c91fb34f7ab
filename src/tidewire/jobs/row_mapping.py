"""Maps the rows of an upload to writes: binds column names to fields and converts cell texts. Pure.

An empty cell leaves its field unchanged; `#N/A` clears it. A column `Account.Number__c` sets a lookup by an external id
of the target; `Lead:Who.Number__c` also names the target's type.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidewire.errors import BodyMalformed, IdMalformed, JobInvalid, PlatformError
from tidewire.gate.requests import Upsert, Write
from tidewire.jobs.csv_rows import CsvRow
from tidewire.jobs.model import NULL_MARK, JobRequest, Operation
from tidewire.jobs.uploads import Values
from tidewire.records.references import try_lookup
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType

_ZONED_DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:Z|[+-][0-9]{2}:[0-9]{2})")
_LOCAL_DATETIME = re.compile(r"[0-9-]{10}T[0-9:.]+")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FLAGS = {"1": "true", "0": "false", "yes": "true", "no": "false"}


@dataclass(frozen=True, slots=True)
class Column:
    """A field; or with `key` a relationship whose target (of type `target`, if given) is found by that field."""

    name: str
    field: Field
    key: str = ""
    target: str = ""

    def put(self, values: Values, text: str) -> None:
        """Add a cell to a record's values."""
        if not text:
            return
        if text == NULL_MARK:
            values[self.name] = None
        elif self.key:
            attributes = {"attributes": {"type": self.target}} if self.target else {}
            values[self.name] = {**attributes, self.key: text}
        else:
            values[self.name] = typed(self.field, text)


def bind_columns(
    header: Sequence[str], obj: ObjectType, catalog: Catalog, readable: Collection[str]
) -> tuple[Column, ...]:
    """Bind a CSV header. Raises JobInvalid for a field that does not exist or that the job's owner cannot read."""
    columns: list[Column] = []
    for raw in header:
        name = raw.strip()
        column = _try_bind(name, obj, catalog, readable)
        if column is None:
            raise JobInvalid(f"Field name not found : {name[:80]}", reason="InvalidBatch")
        if any(known.name == column.name and known.key == column.key for known in columns):
            raise JobInvalid(f"Field name found twice : {name[:80]}", reason="InvalidBatch")
        columns.append(column)
    return tuple(columns)


def check_names(rows: Iterable[Values], obj: ObjectType, readable: Collection[str]) -> None:
    """Raise JobInvalid if a JSON or XML record has a field that the job's owner cannot read."""
    known: set[str] = set()
    for row in rows:
        for name in row.keys() - known:
            field = obj.try_field(name) or try_lookup(obj, name)
            if field is None or field.name not in readable:
                raise JobInvalid(f"Field name not found : {name[:80]}", reason="InvalidBatch")
            known.add(name)


def check_operation(request: JobRequest, names: Sequence[str]) -> None:
    """Raise JobInvalid if the columns do not fit the operation."""
    lowered = [name.lower() for name in names]
    if request.operation.is_delete and lowered != ["id"]:
        raise JobInvalid(f"{request.operation} batch must contain only ids", reason="InvalidBatch")
    if request.operation is Operation.UPSERT and request.external_id.lower() not in lowered:
        raise JobInvalid(f"Field name not found : {request.external_id}", reason="InvalidBatch")


def values_of(columns: Sequence[Column], row: CsvRow) -> Values | PlatformError:
    """Return a CSV row's values by field name, or the error of a row with the wrong number of cells."""
    if len(row) != len(columns):
        return BodyMalformed(f"The row has {len(row)} values for {len(columns)} columns")
    values: Values = {}
    for column, text in zip(columns, row, strict=True):
        column.put(values, text)
    return values


def plan_write(request: JobRequest, values: Mapping[str, object]) -> Write | Upsert | PlatformError:
    """Return the write for one record, or the error of a record without an id."""
    match request.operation:
        case Operation.INSERT:
            return Write(request.entity, None, values)
        case Operation.UPSERT:
            key, rest = _pop(values, request.external_id)
            return Upsert(request.entity, request.external_id, key, rest)
        case _:
            record_id, rest = _pop(values, "Id")
            if not isinstance(record_id, str) or not record_id.strip():
                return IdMalformed(f"Id not specified in {request.operation} call", value="")
            if request.operation is Operation.UPDATE:
                return Write(request.entity, record_id.strip(), rest)
            is_hard = request.operation is Operation.HARD_DELETE
            return Write(request.entity, record_id.strip(), None, is_hard)


def typed(field: Field, text: str) -> str:
    """Normalise a cell's text for its field: checkboxes, dates and datetimes have several accepted spellings."""
    if field.type is FieldType.CHECKBOX:
        lowered = text.strip().lower()
        return _FLAGS.get(lowered, lowered)
    if field.type is FieldType.DATE and (zoned := _ZONED_DATE.fullmatch(text.strip())):
        return zoned[1]
    if field.type is FieldType.DATETIME:
        moment = text.strip()
        if _DAY.fullmatch(moment):
            return moment + "T00:00:00Z"
        return moment + "Z" if _LOCAL_DATETIME.fullmatch(moment) else text
    return text


def typed_values(obj: ObjectType, values: Values) -> Values:
    """Normalise the texts of a JSON or XML record for their fields."""
    out: Values = {}
    for name, raw in values.items():
        field = obj.try_field(name)
        out[name] = typed(field, raw) if field is not None and isinstance(raw, str) else raw
    return out


def _pop(values: Mapping[str, object], name: str) -> tuple[object, Values]:
    lowered = name.lower()
    found = next((value for key, value in values.items() if key.lower() == lowered), None)
    return found, {key: value for key, value in values.items() if key.lower() != lowered}


def _try_bind(name: str, obj: ObjectType, catalog: Catalog, readable: Collection[str]) -> Column | None:
    path, dot, key = name.partition(".")
    if not dot:
        field = obj.try_field(name)
        return Column(field.name, field) if field is not None and field.name in readable else None
    target, _, relationship = path.rpartition(":")
    lookup = try_lookup(obj, relationship)
    if lookup is None or lookup.name not in readable or lookup.relationship_name is None:
        return None
    named = [t for t in lookup.reference_to if not target or t.lower() == target.lower()]
    objects = [o for o in map(catalog.try_object, named) if o is not None]
    if not any(o.try_field(key) is not None for o in objects):
        return None
    return Column(lookup.relationship_name, lookup, key, target)
