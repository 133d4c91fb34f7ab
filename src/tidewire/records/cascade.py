"""What a delete takes along, and what an undelete brings back. Plans only: reading, checking, never writing.

A detail goes with its master; a lookup that cascades does the same to its record. One that restricts, or that
the record must have, forbids the delete. Any other is cleared; the clearing is undone together with the delete,
unless somebody has set the lookup since.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from tidewire.errors import DeleteRestricted, RecordNotFound, UndeleteRefused
from tidewire.events import Value
from tidewire.records.bin import BinStep, read_steps
from tidewire.records.checks import check_unique, lookups, unique_fields
from tidewire.records.table import try_read_row
from tidewire.records.thin_rows import ThinRow, ThinRows
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.storage.store import Transaction

_GONE: dict[str, Value] = {"IsDeleted": True}  # one for all records of a cascade


@dataclass(frozen=True, slots=True)
class RowEdit:
    """A stored row, and values that it shall get."""

    obj: ObjectType
    row: Mapping[str, Value]
    values: dict[str, Value]

    @property
    def record_id(self) -> str:
        """The record's id."""
        return str(self.row["Id"])


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """The records that go, the root first, and those that stay with a lookup cleared."""

    gone: tuple[RowEdit, ...]
    cleared: tuple[RowEdit, ...] = ()

    def steps(self) -> Iterator[BinStep]:
        """The delete as the recycle bin keeps it."""
        for edit in self.gone:
            yield BinStep(edit.record_id, edit.obj.name)
        for edit in self.cleared:
            for name in edit.values:
                yield BinStep(edit.record_id, edit.obj.name, name, str(edit.row[name]))


@dataclass(frozen=True, slots=True)
class UndeletePlan:
    """The records that come back, the one asked for first, and those whose lookup is set again."""

    returned: tuple[RowEdit, ...]
    relinked: tuple[RowEdit, ...]


def references_to(catalog: Catalog, entity: str) -> list[tuple[ObjectType, Field]]:
    """Every lookup of every object that can hold the id of such a record."""
    return [(obj, f) for obj in catalog.objects for f in lookups(obj) if entity in f.reference_to]


def plan_delete(tx: Transaction, catalog: Catalog, obj: ObjectType, row: dict[str, Value]) -> DeletePlan:
    """What deleting this living record does. Raises DeleteRestricted."""
    if obj.name == "Contact" and row.get("IsPersonAccount"):
        raise DeleteRestricted(
            "The contact is part of a person account. Delete the account instead.",
            record_id=row["Id"],
            entity="Account",
        )
    gone = {str(row["Id"]): RowEdit(obj, row, _GONE)}
    loose: list[tuple[ObjectType, Field, ThinRow]] = []
    level = {obj: [str(row["Id"])]}
    rows: dict[ObjectType, ThinRows] = {}
    while level:
        below: dict[ObjectType, list[str]] = {}
        for parent, ids in level.items():
            for child, field in references_to(catalog, parent.name):
                if child not in rows:
                    rows[child] = ThinRows(tx, child)
                for found in rows[child].iter_referring(field, ids):
                    child_id = str(found["Id"])
                    if not (field.is_master_detail or field.delete_constraint == "Cascade"):
                        loose.append((child, field, found))
                    elif child_id not in gone:
                        gone[child_id] = RowEdit(child, found, _GONE)
                        below.setdefault(child, []).append(child_id)
        level = below
    cleared: dict[str, RowEdit] = {}
    for child, field, found in loose:
        child_id = str(found["Id"])
        if child_id in gone:
            continue
        if field.required or field.delete_constraint == "Restrict":
            raise _restricted(gone[str(found[field.name])], child, child_id)
        cleared.setdefault(child_id, RowEdit(child, found, {})).values[field.name] = None
    return DeletePlan(tuple(gone.values()), tuple(cleared.values()))


def plan_undelete(
    tx: Transaction, catalog: Catalog, obj: ObjectType, record_id: str, user_id: str
) -> UndeletePlan:
    """What undeleting this record does. Raises RecordNotFound, UndeleteRefused or DuplicateValue.

    A record whose owner is gone becomes `user_id`'s.
    """
    row = try_read_row(tx, obj, record_id)
    if row is None:
        raise RecordNotFound("The requested resource does not exist", record_id=record_id)
    steps = read_steps(tx, record_id) if row.get("IsDeleted") and not obj.is_setup else []
    if not steps:
        raise UndeleteRefused("Entity is not in the recycle bin", record_id=record_id)
    returned: dict[str, RowEdit] = {}
    relinked: dict[str, RowEdit] = {}
    for step in steps:
        owner = catalog.object(step.entity)
        found = try_read_row(tx, owner, step.record_id)
        if found is None:
            continue
        if not step.field:
            returned[step.record_id] = RowEdit(owner, found, {})
        elif not found.get("IsDeleted") and found.get(step.field) is None:
            relinked.setdefault(step.record_id, RowEdit(owner, found, {})).values[step.field] = step.target_id
    for edit in returned.values():
        edit.values.update(_revived(tx, catalog, edit, returned.keys()))
        if "OwnerId" in edit.values:
            edit.values["OwnerId"] = user_id
    return UndeletePlan(tuple(returned.values()), tuple(relinked.values()))


def _revived(tx: Transaction, catalog: Catalog, edit: RowEdit, returned: Container[str]) -> dict[str, Value]:
    """The new values of a record that comes back: alive, no longer merged, and pointing at nothing deleted."""
    values: dict[str, Value] = {"IsDeleted": False}
    for field in lookups(edit.obj):
        target_id = edit.row.get(field.name)
        if target_id is None:
            continue
        if field.name == "MasterRecordId":
            values[field.name] = None
        elif target_id not in returned and not _is_alive(tx, catalog, str(target_id)):
            if field.is_master_detail or field.required:
                raise UndeleteRefused(
                    f"The record's {field.label} is deleted. Undelete it first.", record_id=edit.record_id
                )
            values[field.name] = None
    for field in unique_fields(edit.obj):
        value = edit.row.get(field.name)
        if value is not None:
            check_unique(tx, edit.obj, field, value, edit.record_id)
    return values


def _is_alive(tx: Transaction, catalog: Catalog, record_id: str) -> bool:
    obj = catalog.try_object_of_id(record_id)
    row = try_read_row(tx, obj, record_id) if obj is not None else None
    return row is not None and not row.get("IsDeleted")


def _restricted(edit: RowEdit, child: ObjectType, child_id: str) -> DeleteRestricted:
    name = edit.row.get("Name") or edit.record_id
    return DeleteRestricted(
        f"Your attempt to delete {name} could not be completed because it is associated with the following"
        f" {child.label_plural}: {child_id}",
        record_id=edit.record_id,
        entity=child.name,
        child_id=child_id,
    )
