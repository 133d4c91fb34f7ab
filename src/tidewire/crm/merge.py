"""Merging: up to three records become one.

The master keeps its id and its values, except for those that the caller submits. The others go into the
recycle bin, with the master's id in MasterRecordId, after everything that pointed at them points at the
master.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidewire.crm import persons
from tidewire.errors import MergeRefused
from tidewire.events import Value
from tidewire.records.cascade import DeletePlan, RowEdit, references_to
from tidewire.records.table import read_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType

MERGEABLE = frozenset({"Account", "Contact", "Lead", "Case", "Individual"})
_MAX_LOSERS = 2


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge: the remaining record, the merged ones, and those that now point at the first."""

    record_id: str
    merged_ids: tuple[str, ...]
    updated_related_ids: tuple[str, ...]


def merge(
    unit: UnitOfWork,
    obj: ObjectType,
    master_id: str,
    loser_ids: Sequence[str],
    values: Mapping[str, object],
) -> Merged:
    """Merge `loser_ids` into the master, which gets `values`. All are living records of `obj`.

    Raises MergeRefused, RecordNotFound, RecordDeleted, or errors of the master's update.
    """
    if obj.name not in MERGEABLE:
        raise MergeRefused(
            f"entity type {obj.name} does not support merge", record_id=master_id, entity=obj.name
        )
    if not 1 <= len(loser_ids) <= _MAX_LOSERS:
        raise MergeRefused("a merge takes one or two records beside the master", record_id=master_id)
    if len({master_id, *loser_ids}) != 1 + len(loser_ids):
        raise MergeRefused("a record cannot be merged with itself", record_id=master_id)
    master = unit.read(obj, master_id)
    losers = [unit.read(obj, loser_id) for loser_id in loser_ids]
    for row in (master, *losers):
        _check_alike(obj, master, row)
    if values:
        unit.update(obj, master_id, values)
    updated = _merge_rows(unit, obj, master_id, losers)
    if persons.is_person(obj, master):
        contact, contact_id = persons.twin_of(unit.catalog, obj, master)
        twins = [unit.read(contact, str(row["PersonContactId"])) for row in losers]
        updated += _merge_rows(unit, contact, contact_id, twins)
    gone = {*loser_ids, *(str(row.get("PersonContactId")) for row in losers)}
    return Merged(master_id, tuple(loser_ids), tuple(dict.fromkeys(i for i in updated if i not in gone)))


def _check_alike(obj: ObjectType, master: Mapping[str, Value], row: Mapping[str, Value]) -> None:
    if obj.name == "Contact" and row.get("IsPersonAccount"):
        raise MergeRefused("a person account's contact cannot be merged", record_id=row["Id"])
    if bool(row.get("IsPersonAccount")) != bool(master.get("IsPersonAccount")):
        raise MergeRefused("a person account merges with person accounts only", record_id=row["Id"])
    if obj.name == "Lead" and row.get("IsConverted"):
        raise MergeRefused("a converted lead cannot be merged", record_id=row["Id"])


def _merge_rows(
    unit: UnitOfWork, obj: ObjectType, master_id: str, losers: Sequence[Mapping[str, Value]]
) -> list[str]:
    """Redirect lookups from the losers to the master, then delete the losers; return the updated ids."""
    loser_ids = [str(row["Id"]) for row in losers]
    updated: list[str] = []
    for child, field in references_to(unit.catalog, obj.name):
        for row in read_rows(unit.tx, child, field.name, loser_ids):
            child_id = str(row["Id"])
            if _is_part_of_person(child, row, field.name):
                continue  # a person's contact goes where its account goes
            # A master that was below a loser would be above itself.
            unit.store(child, row, {field.name: None if child_id == master_id else master_id})
            unit.never_merge(child_id)
            if child.name == "Task":
                unit.suppress_notifications(child_id)
            updated.append(child_id)
    has_master_field = obj.try_field("MasterRecordId") is not None
    for loser_id in loser_ids:
        marks: dict[str, Value] = {"IsDeleted": True}
        if has_master_field:
            marks["MasterRecordId"] = master_id
        unit.recycle(DeletePlan((RowEdit(obj, unit.read(obj, loser_id), marks),)))
        unit.never_merge(loser_id)
    return updated


def _is_part_of_person(child: ObjectType, row: Mapping[str, Value], field_name: str) -> bool:
    names = ("PersonContactId", "AccountId")
    return persons.is_person(child, row) and field_name in names
