"""Work on records below the API, as a cleanup in the database would do it: subscribers learn of it by gap events.

It needs Modify All Data, and Customize Application because no field is closed to it. A job is one transaction that
the database has an id of its own for; rules and cascades hold as for any write. Push topics stay silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidewire.crm.archiving import archive_activities
from tidewire.errors import AccessDenied, DefinitionInvalid
from tidewire.events import ChangeType, UntrackedChange
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Call
from tidewire.records.numbers import take_record_id
from tidewire.records.work import UnitOfWork

T = TypeVar("T")
MAX_RECORDS = 2_000
"""How many records one job may work on."""
_TRANSACTION_PREFIX = "0Mc"


@dataclass(frozen=True, slots=True)
class Job:
    """What to do to records of one object: give each of `ids` the same values, delete or undelete them, or store
    `records` as new ones.
    """

    operation: ChangeType
    entity: str
    ids: Sequence[str] = ()
    values: Mapping[str, object] | None = None
    records: Sequence[Mapping[str, object]] = ()


async def run_job(gate: Gate, call: Call, job: Job) -> list[str]:
    """Carry out a job; returns the ids of its records. Raises what the writes raise, with nothing done."""
    await _check(gate, call)
    if max(len(job.ids), len(job.records)) > MAX_RECORDS:
        raise DefinitionInvalid(f"a job works on {MAX_RECORDS} records at most", path="ids")
    obj = gate.catalog.object(job.entity)
    if obj.is_setup:
        raise DefinitionInvalid(f"{obj.name} is no object for jobs", path="entity")
    allowed = {ChangeType.CREATE: obj.createable, ChangeType.UPDATE: obj.updateable}
    if not allowed.get(job.operation, obj.deletable):
        raise DefinitionInvalid(f"no job can {job.operation.name.lower()} {obj.name} records", path="entity")

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
    """Archive every activity from before a moment, so many in one transaction; returns how many of each object."""
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
    grants = await gate.grants(call.principal)
    if not (grants.has("ModifyAllData") and grants.has("CustomizeApplication")):
        raise AccessDenied("work in the database needs Modify All Data and Customize Application")


async def _write(gate: Gate, call: Call, work: Callable[[UnitOfWork], T]) -> T:
    return await gate.records.write(work, user_id=call.principal.user_id, has_notifications=False, solo=True)
