"""Runs a batch that writes records: validates the whole upload first, then writes it chunk by chunk.

A chunk (at most 200 rows) is one transaction: its records, the events they cause, the outcome of each row, and the
batch's progress. So a chunk is written exactly once, whenever the server is killed, and an abort takes effect before
the next chunk. A row that fails does not affect the others of its chunk; if the whole transaction is rejected, its rows
are retried one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidewire.access.principal import Principal
from tidewire.errors import (
    JobInvalid,
    JobStateInvalid,
    ObjectUnknown,
    PlatformError,
    RequestError,
    TopicUnknown,
)
from tidewire.faults import crash_point
from tidewire.gate.duplicate_upserts import reject_duplicate_keys
from tidewire.gate.gate import Gate
from tidewire.gate.namespaces import try_namespace
from tidewire.gate.publishing import event_object, publishable_event
from tidewire.gate.requests import Upsert, Write
from tidewire.jobs import store
from tidewire.jobs.batch_context import BatchContext
from tidewire.jobs.model import Operation, Outcome, outcome_of
from tidewire.jobs.row_mapping import (
    Column,
    bind_columns,
    check_names,
    check_operation,
    plan_write,
    typed_values,
    values_of,
)
from tidewire.jobs.transform_spec import Transform
from tidewire.jobs.uploads import InputRow, UploadReader, Values
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Reader

CHUNK_ROWS = 200
_SLICE_ROWS = 2_000  # rows of one step, after which other batches have their turn
_SCAN_ROWS = 20_000


class IngestRun:
    """One batch in progress. Each `step` writes a slice of it."""

    def __init__(self, context: BatchContext) -> None:
        self._context = context
        self._rows: UploadReader | None = None
        self._columns: tuple[Column, ...] | None = None
        self._transform: Transform | None = None
        self._namespace = try_namespace(context.gate.catalog, context.job.request.namespace)
        self._done = context.batch.rows_done

    async def step(self) -> bool:
        """Process the next slice; return whether the batch is done. Raises JobInvalid for an invalid upload."""
        context = self._context
        if self._rows is None:
            self._rows = await self._open()
            return False
        rows = self._rows

        def work(reader: Reader) -> list[InputRow]:
            context.check_owner(reader)
            return rows.take(reader, _SLICE_ROWS)

        taken = await context.gate.records.read(work)
        obj, _ = await self._check_rights()
        plans = [self._plan(obj, row) for row in taken]
        for start in range(0, len(plans), CHUNK_ROWS):
            await self._write(self._checked(plans[start : start + CHUNK_ROWS]))
            crash_point("jobs.chunk_done")
        if taken:
            return False
        await context.finish()
        return True

    async def _open(self) -> UploadReader:
        """Validate the whole upload, then return a reader at the first row that is not written yet."""
        context = self._context
        await context.begin()
        obj, readable = await self._check_rights()
        request = context.job.request
        records = context.gate.records
        scan = UploadReader(request, context.batch.batch_id)
        if request.content_type == "CSV":
            header = await records.read(lambda reader: scan.take(reader, 1))
            if not header:
                raise JobInvalid("Records not found", reason="InvalidBatch")
            given = _texts(header[0])
            if request.spec:
                self._transform = Transform(request.spec, obj, given)
                given = self._transform.header
            names = [self._full_column(name) for name in given]
            self._columns = bind_columns(names, obj, context.gate.catalog, readable)
            check_operation(request, names)
        while rows := await records.read(lambda reader: scan.take(reader, _SCAN_ROWS)):
            if self._columns is None:
                check_names([self._full(row) for row in rows if isinstance(row, dict)], obj, readable)
        source = UploadReader(request, context.batch.batch_id)
        skipped = self._done + (self._columns is not None)
        while skipped:
            skipped -= len(await records.read(partial(source.take, count=min(skipped, _SCAN_ROWS))))
        return source

    def _full_column(self, name: str) -> str:
        return name.strip() if self._namespace is None else self._namespace.qualify_column(name)

    def _full(self, values: Values) -> Values:
        return values if self._namespace is None else self._namespace.qualify_record(values)

    async def _check_rights(self) -> tuple[ObjectType, frozenset[str]]:
        context = self._context
        request = context.job.request
        target = await open_target(context.gate, context.principal, request.entity, request.operation)
        if request.operation is Operation.HARD_DELETE:
            grants = await context.gate.grants(context.principal)
            if not grants.has("BulkApiHardDelete"):
                raise JobInvalid("hardDelete needs the permission Bulk API Hard Delete", reason="InvalidUser")
        return target

    def _plan(self, obj: ObjectType, row: InputRow) -> Write | Upsert | PlatformError:
        if self._transform is not None and isinstance(row, list):
            row = self._transform.row(row)
        values: Values | PlatformError = (
            typed_values(obj, self._full(row))
            if isinstance(row, dict)
            else values_of(self._columns or (), row)
        )
        return values if isinstance(values, PlatformError) else plan_write(self._context.job.request, values)

    def _checked(
        self, plans: Sequence[Write | Upsert | PlatformError]
    ) -> list[Write | Upsert | PlatformError]:
        """Replace upserts that repeat a key of the same chunk by their errors."""
        upserts = [plan for plan in plans if isinstance(plan, Upsert)]
        marked = iter(reject_duplicate_keys(self._context.gate.catalog, upserts))
        return [next(marked) if isinstance(plan, Upsert) else plan for plan in plans]

    async def _write(self, plans: Sequence[Write | Upsert | PlatformError]) -> None:
        try:
            await self._commit(plans)
        except JobStateInvalid:
            raise
        except RequestError as error:
            if len(plans) == 1:
                await self._commit([error])
                return
            for plan in plans:
                await self._write([plan])

    async def _commit(self, plans: Sequence[Write | Upsert | PlatformError]) -> None:
        """Write these rows, their outcomes and the progress in one transaction."""
        gate, call = self._context.gate, self._context.call
        note = self._noting(plans)
        upserts = [plan for plan in plans if isinstance(plan, Upsert)]
        if upserts:
            await gate.upsert_together(call, upserts, all_or_none=False, on_results=note)
        elif gate.catalog.try_event(self._context.job.request.entity) is not None:
            rows = [plan.values or {} for plan in plans if isinstance(plan, Write)]
            await gate.publisher.publish_together(call, self._context.job.request.entity, rows, note)
        else:
            writes = [plan for plan in plans if isinstance(plan, Write)]
            await gate.write_together(call, writes, all_or_none=False, on_results=note)
        self._done += len(plans)

    def _noting(
        self, plans: Sequence[Write | Upsert | PlatformError]
    ) -> Callable[[UnitOfWork, Sequence[str | tuple[str, bool] | PlatformError]], None]:
        context, expected = self._context, self._done
        begun_s = context.clock.monotonic_s()

        def note(unit: UnitOfWork, results: Sequence[str | tuple[str, bool] | PlatformError]) -> None:
            batch = context.require_running(unit.tx)
            if batch.rows_done != expected:
                raise JobStateInvalid("The batch is not where it was left", job_id=batch.job_id)
            left = iter(results)
            outcomes = [
                outcome_of(plan) if isinstance(plan, PlatformError) else self._outcome(plan, next(left))
                for plan in plans
            ]
            failed = sum(1 for outcome in outcomes if outcome.code)
            context.add_progress(unit.tx, len(outcomes), failed, store.dump_outcomes(outcomes), begun_s)

        return note

    def _outcome(self, plan: Write | Upsert, result: str | tuple[str, bool] | PlatformError) -> Outcome:
        if isinstance(result, PlatformError):
            return outcome_of(result, (plan.record_id or "") if isinstance(plan, Write) else "")
        if isinstance(result, tuple):
            return Outcome(*result)
        return Outcome(result, self._context.job.request.operation is Operation.INSERT)


async def open_target(
    gate: Gate, principal: Principal, entity: str, operation: Operation
) -> tuple[ObjectType, frozenset[str]]:
    """Return the object that a job writes to, and the names of the fields that the user may use.

    A platform event is returned as an object whose records are the events to publish. Raises ObjectUnknown,
    AccessDenied, or OperationUnsupported for an operation that events do not have.
    """
    if operation is Operation.INSERT and gate.catalog.try_any_event(entity) is not None:
        try:
            event = publishable_event(gate.records.types, await gate.grants(principal), entity)
        except TopicUnknown as error:
            raise ObjectUnknown(f"sObject type '{entity}' is not supported.", entity=entity) from error
        return event_object(event), frozenset(f.name for f in event.fields)
    obj, readable, _ = await gate.visible_fields(principal, entity)
    return obj, readable


def _texts(row: InputRow) -> list[str]:
    return row if isinstance(row, list) else []
