"""Plans of deletes and undeletes: reading and checking, never writing.

A detail goes with its master; so does a record whose lookup cascades. A lookup that restricts, or that is
required, forbids the delete. Any other is cleared; an undelete sets it again unless somebody has set it
since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from tidewire.errors import DeleteRestricted, InternalError, RecordNotFound, UndeleteRefused
from tidewire.events import Value
from tidewire.records.checks import check_unique, lookups, unique_fields
from tidewire.records.partial_rows import PartialRow, PartialRows
from tidewire.records.recycle_bin import BinStep, has_step, iter_step_pages, try_root
from tidewire.records.table import read_rows, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.storage.store import Transaction

ResetFields = Callable[[ObjectType], Collection[str]]
"""Names the lookups of an object that an undeleted record does not keep."""

_GONE: dict[str, Value] = {"IsDeleted": True}  # one for all records of a cascade


@dataclass(frozen=True, slots=True)
class RowEdit:
    """A stored row, and its new values."""

    obj: ObjectType
    row: Mapping[str, Value]
    values: dict[str, Value]

    @property
    def record_id(self) -> str:
        """Return the record's id."""
        return str(self.row["Id"])


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """The deleted records, the root first, and those that stay with a lookup cleared."""

    gone: tuple[RowEdit, ...]
    cleared: tuple[RowEdit, ...] = ()

    def steps(self) -> Iterator[BinStep]:
        """Yield the delete as the recycle bin stores it."""
        for edit in self.gone:
            yield BinStep(edit.record_id, edit.obj.name)
        for edit in self.cleared:
            for name in edit.values:
                yield BinStep(edit.record_id, edit.obj.name, name, str(edit.row[name]))


def references_to(catalog: Catalog, entity: str) -> list[tuple[ObjectType, Field]]:
    """Return every lookup of every object that can hold the id of such a record."""
    return [(obj, f) for obj in catalog.objects for f in lookups(obj) if entity in f.reference_to]


def cascades(field: Field) -> bool:
    """Return whether a record is deleted with the one that this lookup of it points at."""
    return field.is_master_detail or field.delete_constraint == "Cascade"


def plan_delete(tx: Transaction, catalog: Catalog, obj: ObjectType, row: dict[str, Value]) -> DeletePlan:
    """Plan the delete of a living record. Raises DeleteRestricted."""
    plan = try_plan_delete(tx, catalog, obj, row, None)
    if plan is None:
        raise InternalError("a delete without a bound was found too large")
    return plan


def try_plan_delete(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: dict[str, Value], most: int | None
) -> DeletePlan | None:
    """Plan the delete of a living record; None if it concerns more than `most` other records."""
    gone = {str(row["Id"]): RowEdit(obj, row, _GONE)}
    loose: list[tuple[ObjectType, Field, PartialRow]] = []
    level = {obj: [str(row["Id"])]}
    rows: dict[ObjectType, PartialRows] = {}
    while level:
        below: dict[ObjectType, list[str]] = {}
        for parent, ids in level.items():
            for child, field in references_to(catalog, parent.name):
                if child not in rows:
                    rows[child] = PartialRows(tx, child)
                for found in rows[child].iter_referring(field, ids, None if most is None else most + 1):
                    if most is not None and len(gone) + len(loose) > most:
                        return None
                    child_id = str(found["Id"])
                    if not cascades(field):
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
            raise restricted(gone[str(found[field.name])], child, child_id)
        cleared.setdefault(child_id, RowEdit(child, found, {})).values[field.name] = None
    return DeletePlan(tuple(gone.values()), tuple(cleared.values()))


class UndeletePlan:
    """An undelete, read from the recycle bin a page at a time, as often as needed."""

    def __init__(
        self,
        tx: Transaction,
        catalog: Catalog,
        root_id: str,
        record_id: str,
        user_id: str,
        reset_fields: ResetFields,
    ) -> None:
        self._tx = tx
        self._catalog = catalog
        self._reset_fields = reset_fields
        self._root_id = root_id
        self._record_id = record_id
        self._user_id = user_id

    def iter_returned(self) -> Iterator[list[RowEdit]]:
        """Yield the restored records, the requested one first. Raises UndeleteRefused or DuplicateValue."""
        for page in self.iter_rows():
            stands = self._known()
            for edit in page:
                edit.values.update(_revived(self._tx, edit, stands, self._reset_fields(edit.obj)))
                if "OwnerId" in edit.values:
                    edit.values["OwnerId"] = self._user_id
            yield page

    def iter_relinked(self) -> Iterator[RowEdit]:
        """Yield the records whose lookup is set again."""
        cleared = (step for page in iter_step_pages(self._tx, self._record_id) for step in page if step.field)
        for record_id, steps in groupby(cleared, lambda step: step.record_id):
            lookups_of = list(steps)
            obj = self._catalog.object(lookups_of[0].entity)
            row = try_read_row(self._tx, obj, record_id)
            if row is not None and not row.get("IsDeleted"):
                values: dict[str, Value] = {
                    s.field: s.target_id for s in lookups_of if row.get(s.field) is None
                }
                if values:
                    yield RowEdit(obj, row, values)

    def iter_rows(self) -> Iterator[list[RowEdit]]:
        """Yield the restored records as they are stored."""
        for page in iter_step_pages(self._tx, self._record_id):
            edits: list[RowEdit] = []
            for entity, steps in groupby((s for s in page if not s.field), lambda step: step.entity):
                obj = self._catalog.object(entity)
                ids = [step.record_id for step in steps]
                rows = {row["Id"]: row for row in read_rows(self._tx, obj, "Id", ids, with_deleted=True)}
                edits += [RowEdit(obj, rows[record_id], {}) for record_id in ids if record_id in rows]
            if edits:
                yield edits

    def _known(self) -> Callable[[str], bool]:
        """Return a check, for one page, of whether a record is alive or restored."""
        known: dict[str, bool] = {}

        def stands(record_id: str) -> bool:
            if record_id not in known:
                known[record_id] = self._returns(record_id) or _is_alive(self._tx, self._catalog, record_id)
            return known[record_id]

        return stands

    def _returns(self, record_id: str) -> bool:
        if self._root_id != self._record_id:
            return record_id == self._record_id
        return has_step(self._tx, self._root_id, record_id)


def plan_undelete(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    record_id: str,
    user_id: str,
    reset_fields: ResetFields,
) -> UndeletePlan:
    """Plan an undelete. Raises RecordNotFound, UndeleteRefused or DuplicateValue.

    A record whose owner is gone becomes `user_id`'s.
    """
    row = try_read_row(tx, obj, record_id)
    if row is None:
        raise RecordNotFound("The requested resource does not exist", record_id=record_id)
    root_id = try_root(tx, record_id) if row.get("IsDeleted") and not obj.is_setup else None
    if root_id is None:
        raise UndeleteRefused("Entity is not in the recycle bin", record_id=record_id)
    plan = UndeletePlan(tx, catalog, root_id, record_id, user_id, reset_fields)
    for _ in plan.iter_returned():  # to its end, so that all is checked before anything is written
        continue
    return plan


def _revived(
    tx: Transaction, edit: RowEdit, stands: Callable[[str], bool], reset_fields: Collection[str]
) -> dict[str, Value]:
    """Return the new values of an undeleted record.

    Its `reset_fields` and lookups of deleted records become null.
    """
    values: dict[str, Value] = {"IsDeleted": False}
    for field in lookups(edit.obj):
        target_id = edit.row.get(field.name)
        if target_id is None:
            continue
        if field.name in reset_fields:
            values[field.name] = None
        elif not stands(str(target_id)):
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


def restricted(edit: RowEdit, child: ObjectType, child_id: str) -> DeleteRestricted:
    """Return the error for a delete of a record that another one needs."""
    name = edit.row.get("Name") or edit.record_id
    return DeleteRestricted(
        f"Your attempt to delete {name} could not be completed because it is associated with the following"
        f" {child.label_plural}: {child_id}",
        record_id=edit.record_id,
        entity=child.name,
        child_id=child_id,
    )
