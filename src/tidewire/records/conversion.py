"""Conversions of fields that hold data: which exist, and how the data is converted.

A column is never retyped. A conversion gives the field a new column, fills it from the old one in chunks, and
the catalog that names the new column becomes current with the same commit. The old column stays unread; its
number is never used again.

Subscribers are notified as the Change Data Capture guide says: a conversion that loses data is one change
event for all records of the object (`001*`), a Picklist that becomes a Checkbox or a MultiselectPicklist is a
gap event for the affected records, and one that keeps or cuts the values is no event at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from tidewire.events import Value
from tidewire.records.table import update_row
from tidewire.schema.field_types import DOUBLE_TYPES, ConversionClass, FieldType
from tidewire.schema.layout import FIRST_ADDED_COLUMN
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import parse_value
from tidewire.storage.store import Transaction

CHUNK_ROWS = 1000
_TO_TEXT = frozenset(
    {
        ConversionClass.TEXT,
        ConversionClass.TEXT_AREA,
        ConversionClass.LONG_TEXT,
        ConversionClass.FORMATTED_TEXT,
    }
)
# From each class, the classes under which values stay what they are, cut to the new length at most.
_KEEPING: dict[ConversionClass, frozenset[ConversionClass]] = {
    **dict.fromkeys(_TO_TEXT | {ConversionClass.PICKLIST}, _TO_TEXT),
    ConversionClass.TEXT: _TO_TEXT | {ConversionClass.PICKLIST, ConversionClass.AUTO_NUMBER},
    ConversionClass.AUTO_NUMBER: frozenset({ConversionClass.TEXT}),
    ConversionClass.NUMBER: (_TO_TEXT - {ConversionClass.FORMATTED_TEXT}) | {ConversionClass.NUMBER},
}
_TRUE_WORDS = frozenset({"true", "yes", "on", "1"})


class ConversionEffect(Enum):
    """What a conversion means to subscribers of change events. The values stand in plan lines."""

    NONE = "no event"
    GAP = "gap event"
    WILDCARD = "data loss, one change event for all records"


@dataclass(frozen=True, slots=True)
class ConversionNote:
    """One field's conversion. `record_ids` are the living records that had a value, for a gap event only."""

    entity: str
    field: str
    from_type: FieldType
    to_type: FieldType
    effect: ConversionEffect
    record_ids: tuple[str, ...] = ()


def try_effect(from_type: FieldType, to_type: FieldType) -> ConversionEffect | None:
    """What converting does, or None where there is no such conversion."""
    old, new = from_type.row.conversion_class, to_type.row.conversion_class
    if ConversionClass.FIXED in (old, new):
        return None
    if from_type is FieldType.PICKLIST and to_type in (FieldType.CHECKBOX, FieldType.MULTI_PICKLIST):
        return ConversionEffect.GAP
    if from_type is to_type or new in _KEEPING.get(old, frozenset()):
        return ConversionEffect.NONE
    return ConversionEffect.WILDCARD


def convert_value(old: Field, new: Field, value: Value) -> Value:
    """Return a stored value of the old field as a stored value of the new one. Pure.

    Raises NumberOutOfRange for a number with more digits than the new field has.
    """
    effect = try_effect(old.type, new.type)
    if value is None or effect is None or effect is ConversionEffect.WILDCARD:
        return False if new.type is FieldType.CHECKBOX else None
    if new.type is FieldType.CHECKBOX:
        return str(value).casefold() in _TRUE_WORDS
    if new.type in DOUBLE_TYPES:
        return parse_value(new, value)
    text = _plain_number(value) if isinstance(value, float) else str(value)
    return text[: new.length].rstrip() if new.length else text


def _plain_number(value: float) -> str:
    """Digits as a person writes them: no exponent, no zeros to fill."""
    return str(int(value)) if value.is_integer() else format(Decimal(repr(value)), "f")


def iter_values(
    tx: Transaction, obj: ObjectType, field: Field, *, include_deleted: bool = True
) -> Iterator[tuple[str, Value]]:
    """Record id and stored value of every record that has one, by id; read in chunks."""
    deleted = None if include_deleted else obj.try_field("IsDeleted")
    alive = f" AND {deleted.column} = 0" if deleted else ""
    sql = (
        f"SELECT id, {field.column} FROM {obj.table}"  # noqa: S608  # names come from the catalog only
        f" WHERE id > ? AND {field.column} IS NOT NULL{alive} ORDER BY id LIMIT {CHUNK_ROWS}"
    )
    after_id = ""
    while rows := tx.execute(sql, (after_id,)):
        yield from rows
        after_id = rows[-1][0]


def convert_column(tx: Transaction, obj: ObjectType, old: Field, new: Field) -> None:
    """Fill the new field's column, which must exist, from the old one's. Audit fields are left alone."""
    if new.type is FieldType.CHECKBOX:
        fill_column(tx, obj, new, False)
    for record_id, value in iter_values(tx, obj, old):
        converted = convert_value(old, new, value)
        if converted is not None and converted != "":
            update_row(tx, obj, record_id, {new.name: converted})


def fill_column(tx: Transaction, obj: ObjectType, field: Field, value: Value) -> None:
    """Give every record the same value of a field that is not text, or take its value away."""
    if value is None:
        columns = (field.column, field.key_column) if field.is_text else (field.column,)
        cleared = ", ".join(f"{column} = NULL" for column in columns)
        tx.execute(f"UPDATE {obj.table} SET {cleared}")  # noqa: S608  # names come from the catalog only
        return
    stored = int(value) if isinstance(value, bool) else value
    tx.execute(f"UPDATE {obj.table} SET {field.column} = ?", (stored,))  # noqa: S608


def has_duplicates(tx: Transaction, obj: ObjectType, field: Field) -> bool:
    """Return whether two living records hold the same value, as the field compares values."""
    column = field.key_column if field.is_text else field.column
    deleted = obj.try_field("IsDeleted")
    alive = f" AND {deleted.column} = 0" if deleted else ""
    return bool(
        tx.execute(
            f"SELECT 1 FROM {obj.table} WHERE {column} IS NOT NULL{alive}"  # noqa: S608
            f" GROUP BY {column} HAVING COUNT(*) > 1 LIMIT 1"
        )
    )


def ensure_index(tx: Transaction, obj: ObjectType, field: Field) -> None:
    """Index a field that has become a key."""
    column = field.key_column if field.is_text else field.column
    tx.execute(f"CREATE INDEX IF NOT EXISTS {obj.table}_{column} ON {obj.table} ({column})")


def count_records(tx: Transaction, obj: ObjectType) -> int:
    """Return how many records an object has, those in the recycle bin included."""
    ((count,),) = tx.execute(f"SELECT COUNT(*) FROM {obj.table}")  # noqa: S608  # names from the catalog
    return int(count)


def next_column(tx: Transaction, obj: ObjectType) -> int:
    """Return the number of the first column that no field of this object, present or past, has used."""
    rows = tx.execute("SELECT definition FROM types WHERE kind = 'layout' AND name = ?", (obj.table,))
    used = set(rows[0][0].split(",")) if rows else set()
    used |= {f.column for f in obj.stored_fields}
    floor = 1 if obj.custom else FIRST_ADDED_COLUMN
    return max([floor, *(int(column[1:]) + 1 for column in used if column != "id")])
