"""A logical table's physical side: the statements that make it, fill it and read it.

Every text field has two columns: the value, and the folded key under which it is compared. Column and table
names come from the catalog only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from tidewire.errors import RecordDeleted, RecordNotFound
from tidewire.events import Value
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.text_keys import fold_key
from tidewire.storage.store import Reader, Row, Transaction


def create_table(tx: Transaction, obj: ObjectType) -> None:
    """Make the table, or add the columns it lacks."""
    wanted = dict(column for f in obj.stored_fields for column in _columns(f))
    present = _read_columns(tx, obj.table)
    if not present:
        others = "".join(f", {name} {kind}" for name, kind in wanted.items() if name != "id")
        tx.execute(f"CREATE TABLE {obj.table} (id TEXT PRIMARY KEY{others})")
    for name, kind in wanted.items():
        if present and name not in present:
            tx.execute(f"ALTER TABLE {obj.table} ADD COLUMN {name} {kind}")
    if present >= wanted.keys():
        return
    for field in obj.stored_fields:
        if is_indexed(field):
            key = field.key_column if field.is_text else field.column
            # Most lookups are empty in most records: an entry for each would cost more than it finds.
            filled = "" if field.name == "Name" else f" WHERE {key} IS NOT NULL"
            tx.execute(f"CREATE INDEX IF NOT EXISTS {obj.table}_{key} ON {obj.table} ({key}){filled}")
    write_definition(tx, "layout", obj.table, ",".join(sorted(present | wanted.keys())))


def insert_row(tx: Transaction, obj: ObjectType, row: Mapping[str, Value]) -> None:
    """Store a new record. Fields without a value are left out of the statement: most records set few."""
    names = tuple([name for name, value in row.items() if value is not None])
    sql, plain, texts = _insert_sql(obj, names)
    params: list[Value] = [row[name] for name in plain]
    for name, is_case_sensitive in texts:
        value = row[name]
        params += (value, fold_key(str(value), case_sensitive=is_case_sensitive))
    tx.buffer_insert(sql, params)


def update_row(tx: Transaction, obj: ObjectType, record_id: str, values: Mapping[str, Value]) -> None:
    """Store new values of some fields."""
    fields = [f for f in obj.stored_fields if f.name in values]
    assignments = ", ".join(f"{column} = ?" for f in fields for column, _ in _columns(f))
    params = [p for f in fields for p in _params(f, values[f.name])]
    tx.execute(f"UPDATE {obj.table} SET {assignments} WHERE id = ?", [*params, record_id])  # noqa: S608


def update_rows(tx: Transaction, obj: ObjectType, ids: list[str], values: Mapping[str, Value]) -> None:
    """Store the same new values of some fields in several records."""
    fields = [f for f in obj.stored_fields if f.name in values]
    assignments = ", ".join(f"{column} = ?" for f in fields for column, _ in _columns(f))
    params = [p for f in fields for p in _params(f, values[f.name])]
    marks = ", ".join("?" * len(ids))
    tx.execute(f"UPDATE {obj.table} SET {assignments} WHERE id IN ({marks})", [*params, *ids])  # noqa: S608


def delete_row(tx: Transaction, obj: ObjectType, record_id: str) -> None:
    """Remove a record for good."""
    tx.execute(f"DELETE FROM {obj.table} WHERE id = ?", (record_id,))  # noqa: S608  # name from the catalog


def try_read_row(reader: Reader | Transaction, obj: ObjectType, record_id: str) -> dict[str, Value] | None:
    """Return the record with this id, deleted or not, or None."""
    rows = reader.execute(_select_sql(obj), (record_id,))
    if not rows:
        return None
    return _decode(*_stored_names(obj), rows[0])


def read_living(reader: Reader | Transaction, obj: ObjectType, record_id: str) -> dict[str, Value]:
    """Return the record with this id. Raises RecordNotFound, or RecordDeleted if it is in the recycle bin."""
    row = try_read_row(reader, obj, record_id)
    if row is None:
        raise RecordNotFound("The requested resource does not exist", record_id=record_id)
    if row.get("IsDeleted"):
        raise RecordDeleted("entity is deleted", record_id=record_id)
    return row


def read_rows(
    reader: Reader | Transaction,
    obj: ObjectType,
    field_name: str,
    values: Iterable[Value],
    *,
    with_deleted: bool = False,
) -> list[dict[str, Value]]:
    """Return the records whose id or lookup field holds one of these values, oldest first.

    Deleted records are left out unless `with_deleted`.
    """
    wanted = list(values)
    if not wanted:
        return []
    field = obj.by_name[field_name.lower()]
    columns = ", ".join(f.column for f in obj.stored_fields)
    marks = ", ".join("?" * len(wanted))
    deleted = None if with_deleted else obj.try_field("IsDeleted")
    alive = f" AND {deleted.column} = 0" if deleted else ""
    sql = f"SELECT {columns} FROM {obj.table} WHERE {field.column} IN ({marks}){alive} ORDER BY id"  # noqa: S608
    return decode_rows(obj.stored_fields, reader.execute(sql, wanted))


def read_columns(
    reader: Reader | Transaction,
    obj: ObjectType,
    names: tuple[str, ...],
    field: Field,
    ids: list[str],
    most: int | None = None,
    *,
    with_deleted: bool = False,
) -> list[tuple[Value, ...]]:
    """Return some fields of the records whose id or lookup is one of these ids, oldest first, at most `most`.

    Deleted records are left out unless `with_deleted`.
    """
    fields = [obj.by_name[name.lower()] for name in names]
    columns = ", ".join(f.column for f in fields)
    deleted = None if with_deleted else obj.try_field("IsDeleted")
    alive = f" AND {deleted.column} = 0" if deleted else ""
    marks = ", ".join("?" * len(ids))
    limit = "" if most is None else " LIMIT ?"
    # Names come from the catalog.
    sql = f"SELECT {columns} FROM {obj.table} WHERE {field.column} IN ({marks}){alive} ORDER BY id{limit}"  # noqa: S608
    flags = [place for place, f in enumerate(fields) if f.type is FieldType.CHECKBOX]
    rows: list[tuple[Value, ...]] = []
    for row in reader.execute(sql, ids if most is None else [*ids, most]):
        values = list(row)
        for place in flags:
            values[place] = bool(values[place])
        rows.append(tuple(values))
    return rows


def read_all_rows(reader: Reader | Transaction, obj: ObjectType) -> list[dict[str, Value]]:
    """Return every record of an object, deleted ones included: for small setup objects only."""
    columns = ", ".join(f.column for f in obj.stored_fields)
    rows = reader.execute(f"SELECT {columns} FROM {obj.table} ORDER BY id")  # noqa: S608  # names from the catalog
    return decode_rows(obj.stored_fields, rows)


def decode_rows(fields: Iterable[Field], rows: Iterable[Row]) -> list[dict[str, Value]]:
    """Database rows as stored values by field name."""
    names, flags = _names_and_flags(fields)
    return [_decode(names, flags, row) for row in rows]


def _decode(names: tuple[str, ...], flags: tuple[str, ...], row: Row) -> dict[str, Value]:
    values = dict(zip(names, row, strict=True))
    for name in flags:
        values[name] = bool(values[name])
    return values


def _names_and_flags(fields: Iterable[Field]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the fields, and of those among them that are stored as 0 and 1."""
    kinds = [(f.name, f.type is FieldType.CHECKBOX) for f in fields]
    return tuple(name for name, _ in kinds), tuple(name for name, is_flag in kinds if is_flag)


def try_find_by_value(tx: Reader | Transaction, obj: ObjectType, field: Field, value: Value) -> str | None:
    """Return the id of a living record that holds `value` in a field that must be unique."""
    return next(iter(find_by_value(tx, obj, field, value, 1)), None)


def find_by_value(
    tx: Reader | Transaction, obj: ObjectType, field: Field, value: Value, limit: int
) -> list[str]:
    """Return the ids of the first living records that hold `value` in this field."""
    deleted = obj.try_field("IsDeleted")
    alive = f" AND {deleted.column} = 0" if deleted else ""
    if field.is_text and isinstance(value, str):
        column, needle = field.key_column, fold_key(value, case_sensitive=field.case_sensitive)
    else:
        column, needle = field.column, value  # type: ignore[assignment]  # a number or an id, compared as it is
    sql = f"SELECT id FROM {obj.table} WHERE {column} = ?{alive} ORDER BY id LIMIT ?"  # noqa: S608
    return [str(record_id) for (record_id,) in tx.execute(sql, (needle, limit))]


def _columns(field: Field) -> list[tuple[str, str]]:
    columns = [(field.column, field.type.row.sql_type)]
    return [*columns, (field.key_column, "TEXT")] if field.is_text else columns


def _params(field: Field, value: Value) -> list[Value]:
    if field.is_text:
        key = None if value is None else fold_key(str(value), case_sensitive=field.case_sensitive)
        return [value, key]
    if field.type is FieldType.CHECKBOX:
        return [int(bool(value))]
    return [value]


def is_indexed(field: Field) -> bool:
    """Return whether the field has an index."""
    # Who made and last changed a record is in every row and nearly always the same few: not worth an index.
    is_lookup = field.type is FieldType.REFERENCE and not field.is_system
    # People are upserted by their addresses.
    is_address = field.type is FieldType.EMAIL and field.name == "Email"
    is_key = field.unique or field.external_id or is_lookup or is_address or field.name == "Name"
    return bool(field.column) and field.type is not FieldType.ID and is_key


@lru_cache(maxsize=1024)
def _insert_sql(
    obj: ObjectType, names: tuple[str, ...]
) -> tuple[str, tuple[str, ...], tuple[tuple[str, bool], ...]]:
    """Return the statement, the names of plain fields, and those of text fields with their case sensitivity."""
    wanted = set(names)
    fields = [f for f in obj.stored_fields if f.name in wanted]
    plain = [f for f in fields if not f.is_text]
    texts = [f for f in fields if f.is_text]
    columns = [f.column for f in plain] + [c for f in texts for c in (f.column, f.key_column)]
    marks = ", ".join("?" * len(columns))
    # Names come from the catalog only.
    sql = f"INSERT INTO {obj.table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
    return sql, tuple(f.name for f in plain), tuple((f.name, f.case_sensitive) for f in texts)


@lru_cache(maxsize=1024)
def _stored_names(obj: ObjectType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return _names_and_flags(obj.stored_fields)


@lru_cache(maxsize=1024)
def _select_sql(obj: ObjectType) -> str:
    return f"SELECT {', '.join(f.column for f in obj.stored_fields)} FROM {obj.table} WHERE id = ?"  # noqa: S608


def _read_columns(tx: Transaction, table: str) -> set[str]:
    rows = tx.execute("SELECT definition FROM types WHERE kind = 'layout' AND name = ?", (table,))
    return set(rows[0][0].split(",")) if rows else set()


def write_definition(tx: Transaction, kind: str, name: str, definition: str) -> None:
    """Store or replace one row of the table `types`."""
    tx.execute(
        "INSERT INTO types (kind, name, definition) VALUES (?, ?, ?)"
        " ON CONFLICT (kind, name) DO UPDATE SET definition = excluded.definition",
        (kind, name, definition),
    )
