"""A unit of work: all DML of one request, in one transaction, and the changes it adds up to.

Per record, the first operation and the final data count as one change. Rows are written as the statements
come, so that later statements of the same
request see them; the changes are told at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tidewire.errors import (
    DuplicateValue,
    FieldNotWriteable,
    FieldUnknown,
    RecordDeleted,
    RecordNotFound,
    ReferenceMissing,
    ReferenceWrongType,
    RequiredFieldMissing,
)
from tidewire.events import Change, ChangeType, Value
from tidewire.records.numbers import render_auto_number, take_number, take_record_id
from tidewire.records.table import insert_row, try_find_by_value, try_read_row, update_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, FieldType, ObjectType
from tidewire.schema.values import parse_value
from tidewire.storage.store import Transaction


@dataclass(slots=True)
class _Touched:
    obj: ObjectType
    type: ChangeType
    before: dict[str, Value] | None
    after: dict[str, Value] | None


class UnitOfWork:
    """One request's DML. `now_ms` is cut to whole seconds for the audit fields."""

    def __init__(self, tx: Transaction, catalog: Catalog, user_id: str, now_ms: int) -> None:
        self.tx = tx
        self.catalog = catalog
        self.user_id = user_id
        self.now_ms = now_ms
        self._second_ms = now_ms - now_ms % 1000
        self._touched: dict[str, _Touched] = {}

    def create(self, obj: ObjectType, values: Mapping[str, object]) -> str:
        """Store a new record from JSON-decoded values; returns its id."""
        if any(name.lower() == "id" for name in values):
            raise FieldUnknown(
                "The Id field should not be specified in the sobject data.", field="Id", entity=obj.name
            )
        given = self._parse(obj, values, is_create=True)
        row = _defaults(obj) | given
        row["Id"] = take_record_id(self.tx, obj.key_prefix)
        self._set_audit(obj, row, is_create=True)
        for field in _auto_numbers(obj):
            number = take_number(self.tx, f"auto:{obj.name}.{field.name}")
            row[field.name] = render_auto_number(field.display_format or "{0}", number)
        missing = [name for name in _required(obj) if row.get(name) is None]
        if missing:
            raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(missing)}]", fields=missing)
        self._check_keys(obj, given, row)
        insert_row(self.tx, obj, row)
        record_id = str(row["Id"])
        self._touched[record_id] = _Touched(obj, ChangeType.CREATE, None, row)
        return record_id

    def update(self, obj: ObjectType, record_id: str, values: Mapping[str, object]) -> None:
        """Store new values of some fields of a living record."""
        before = self.read(obj, record_id)
        fresh = self._parse(obj, values, is_create=False)
        nulled = [n for n, v in fresh.items() if v is None and obj.by_name[n.lower()].required]
        if nulled:
            raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(nulled)}]", fields=nulled)
        changed = {n: v for n, v in fresh.items() if v != before.get(n)}
        self._check_keys(obj, changed, before | changed)
        self._set_audit(obj, changed, is_create=False)
        update_row(self.tx, obj, record_id, changed)
        self._note(obj, record_id, ChangeType.UPDATE, before, before | changed)

    def delete(self, obj: ObjectType, record_id: str) -> None:
        """Put a living record into the recycle bin."""
        before = self.read(obj, record_id)
        marks: dict[str, Value] = {"IsDeleted": True}
        self._set_audit(obj, marks, is_create=False)
        update_row(self.tx, obj, record_id, marks)
        self._note(obj, record_id, ChangeType.DELETE, before, None)

    def read(self, obj: ObjectType, record_id: str) -> dict[str, Value]:
        """A living record. Raises RecordNotFound or RecordDeleted."""
        row = try_read_row(self.tx, obj, record_id)
        return living(row, record_id)

    def changes(self) -> list[Change]:
        """What the work adds up to, in the order in which records were first touched."""
        out: list[Change] = []
        for record_id, touched in self._touched.items():
            if touched.before is None and touched.after is None:
                continue  # created and deleted in one breath: nobody outside ever saw it
            out.append(
                Change(
                    entity=touched.obj.name,
                    record_id=record_id,
                    type=touched.type,
                    before=touched.before,
                    after=touched.after,
                    changed=_changed_fields(touched),
                    sequence=len(out) + 1,
                )
            )
        return out

    def _note(
        self,
        obj: ObjectType,
        record_id: str,
        change_type: ChangeType,
        before: dict[str, Value],
        after: dict[str, Value] | None,
    ) -> None:
        touched = self._touched.get(record_id)
        if touched is None:
            self._touched[record_id] = _Touched(obj, change_type, before, after)
            return
        touched.after = after
        if after is None and touched.type is not ChangeType.CREATE:
            touched.type = ChangeType.DELETE

    def _parse(self, obj: ObjectType, values: Mapping[str, object], *, is_create: bool) -> dict[str, Value]:
        parsed: dict[str, Value] = {}
        refused: list[str] = []
        for name, raw in values.items():
            if name.lower() == "attributes":  # the record's own label, which clients send back to us
                continue
            field = obj.try_field(name)
            if field is None:
                raise FieldUnknown(
                    f"No such column '{name}' on sobject of type {obj.name}", field=name, entity=obj.name
                )
            if not (field.createable if is_create else field.updateable) or not field.column:
                refused.append(field.name)
                continue
            parsed[field.name] = parse_value(field, raw)
        if refused:
            raise not_writeable(refused)
        return parsed

    def _set_audit(self, obj: ObjectType, row: dict[str, Value], *, is_create: bool) -> None:
        known = obj.by_name
        stamps: dict[str, Value] = {
            "LastModifiedDate": self._second_ms,
            "LastModifiedById": self.user_id,
            "SystemModstamp": self._second_ms,
        }
        if is_create:
            stamps |= {"CreatedDate": self._second_ms, "CreatedById": self.user_id}
            if row.get("OwnerId") is None and "ownerid" in known:
                row["OwnerId"] = self.user_id
        row.update({name: value for name, value in stamps.items() if name.lower() in known})

    def _check_keys(self, obj: ObjectType, fresh: Mapping[str, Value], row: Mapping[str, Value]) -> None:
        for name, value in fresh.items():
            field = obj.by_name[name.lower()]
            if value is None:
                continue
            if field.unique:
                self._check_unique(obj, field, value, str(row["Id"]))
            if field.type is FieldType.REFERENCE and not field.is_system:
                self._check_reference(field, str(value), str(row["Id"]))

    def _check_unique(self, obj: ObjectType, field: Field, value: Value, record_id: str) -> None:
        holder = try_find_by_value(self.tx, obj, field, value)
        if holder is not None and holder != record_id:
            raise DuplicateValue(
                f"duplicate value found: {field.name} duplicates value on record with id: {holder[:15]}",
                fields=[],
                record_id=holder,
            )

    def _check_reference(self, field: Field, target_id: str, record_id: str) -> None:
        target = self.catalog.try_object_of_id(target_id)
        if target is None or target.name not in field.reference_to:
            raise ReferenceWrongType(
                f"{field.label}: id value of incorrect type: {target_id}", fields=[field.name]
            )
        if target_id == record_id:
            return
        row = try_read_row(self.tx, target, target_id)
        if row is None or row.get("IsDeleted"):
            raise ReferenceMissing("invalid cross reference id", fields=[field.name])


def not_writeable(names: list[str]) -> FieldNotWriteable:
    """The refusal of a write to fields that the call or the user cannot set."""
    return FieldNotWriteable(
        f"Unable to create/update fields: {', '.join(names)}. Please check the security settings of this"
        " field and verify that it is read/write for your profile or permission set.",
        fields=names,
    )


def living(row: dict[str, Value] | None, record_id: str) -> dict[str, Value]:
    """The row, if it is there and not in the recycle bin."""
    if row is None:
        raise RecordNotFound("The requested resource does not exist", record_id=record_id)
    if row.get("IsDeleted"):
        raise RecordDeleted("entity is deleted", record_id=record_id)
    return row


@lru_cache(maxsize=1024)
def _defaults(obj: ObjectType) -> dict[str, Value]:
    """A new record's values before anybody sets one. Shared: copy before changing."""
    row: dict[str, Value] = {}
    for field in obj.stored_fields:
        if field.default is not None:
            row[field.name] = field.default
        else:
            row[field.name] = False if field.type is FieldType.CHECKBOX else None
    return row


@lru_cache(maxsize=1024)
def _required(obj: ObjectType) -> tuple[str, ...]:
    return tuple(f.name for f in obj.stored_fields if f.required)


@lru_cache(maxsize=1024)
def _auto_numbers(obj: ObjectType) -> tuple[Field, ...]:
    return tuple(f for f in obj.fields if f.type is FieldType.AUTO_NUMBER)


def _changed_fields(touched: _Touched) -> tuple[str, ...]:
    if touched.before is None or touched.after is None:
        return ()
    before, after = touched.before, touched.after
    return tuple(f.name for f in touched.obj.stored_fields if before.get(f.name) != after.get(f.name))
