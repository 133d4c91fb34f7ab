"""Database jobs: changes to records below the API, which subscribers see as gap events.

They need Modify All Data, and Customize Application because field security does not apply. A job is one transaction
with a database transaction key; validation and cascades work as for any write. Push topics send no notifications.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidewire.crm.archiving import archive_activities
from tidewire.errors import DefinitionInvalid
from tidewire.events import ChangeType, UntrackedChange
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Call
from tidewire.records.numbers import take_record_id
from tidewire.records.work import UnitOfWork

T = TypeVar("T")
MAX_RECORDS = 2_000
"""Records per job."""
_TRANSACTION_PREFIX = "0Mc"


@dataclass(frozen=True, slots=True)
class Job:
    """One operation on records of an object.

    An update sets `values` on each of `ids`, a delete or undelete takes `ids`, a create stores `records`.
    """

    operation: ChangeType
    entity: str
    ids: Sequence[str] = ()
    values: Mapping[str, object] | None = None
    records: Sequence[Mapping[str, object]] = ()


async def run_job(gate: Gate, call: Call, job: Job) -> list[str]:
    """Run a job in one transaction; returns the ids of its records. Raises what the writes raise."""
    await _check(gate, call)
    if max(len(job.ids), len(job.records)) > MAX_RECORDS:
        raise DefinitionInvalid(f"at most {MAX_RECORDS} records per job", path="ids")
    obj = gate.catalog.object(job.entity)
    if obj.is_setup:
        raise DefinitionInvalid(f"{obj.name} is a setup object; jobs cannot change it", path="entity")
    allowed = {ChangeType.CREATE: obj.createable, ChangeType.UPDATE: obj.updateable}
    if not allowed.get(job.operation, obj.deletable):
        raise DefinitionInvalid(
            f"{obj.name} records do not support {job.operation.name.lower()}", path="entity"
        )

    def work(unit: UnitOfWork) -> list[str]:
        unit.database_key = take_record_id(unit.tx, _TRANSACTION_PREFIX)
        match job.operation:
            case ChangeType.CREATE:
                return [unit.create(obj, values) for values in job.records]
            case ChangeType.UPDATE:
                for record_id in job.ids:
                    unit.update(obj, record_id, job.values or {})
            case ChangeType.DELETE:
                for record_id in job.ids:
                    unit.delete(obj, record_id)
            case ChangeType.UNDELETE:
                for record_id in job.ids:
                    unit.undelete(obj, record_id)
        return list(job.ids)

    return await _write(gate, call, work)


async def archive(gate: Gate, call: Call, before_ms: int) -> dict[str, int]:
    """Archive all activities older than a time, in batches; returns the count by object."""
    await _check(gate, call)
    totals = {"Task": 0, "Event": 0}
    while archived := await _write(gate, call, lambda unit: _archive_some(unit, before_ms)):
        for entity, count in archived.items():
            totals[entity] += count
    return totals


def _archive_some(unit: UnitOfWork, before_ms: int) -> dict[str, int]:
    archived = {entity: ids for entity, ids in archive_activities(unit, before_ms).items() if ids}
    if archived:
        key = take_record_id(unit.tx, _TRANSACTION_PREFIX)
        for entity, ids in archived.items():
            unit.untracked_changes.append(
                UntrackedChange(entity, ChangeType.UPDATE, tuple(ids), transaction_key=key)
            )
    return {entity: len(ids) for entity, ids in archived.items()}


async def _check(gate: Gate, call: Call) -> None:
    message = "database jobs need the permissions Modify All Data and Customize Application"
    await gate.require(call.principal, "ModifyAllData", "CustomizeApplication", message=message)


async def _write(gate: Gate, call: Call, work: Callable[[UnitOfWork], T]) -> T:
    return await gate.records.write(
        work, user_id=call.principal.user_id, has_notifications=False, exclusive=True
    )
