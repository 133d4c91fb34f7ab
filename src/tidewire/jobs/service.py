"""Bulk jobs for front ends: create, upload, close, watch, fetch results and delete, within the caller's rights.

A job belongs to the user who made it. Others cannot see it, except users with Manage Data Integrations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import JobInvalid, JobStateInvalid, ObjectUnknown, OperationUnsupported, ResourceUnknown
from tidewire.events import Value
from tidewire.gate.gate import Gate
from tidewire.gate.namespaces import try_namespace
from tidewire.ids import try_normalise_id
from tidewire.jobs import store
from tidewire.jobs.csv_rows import iter_csv
from tidewire.jobs.ingest import open_target
from tidewire.jobs.model import (
    ENDED,
    MAX_BATCH_BYTES,
    WAITING,
    Batch,
    BatchState,
    Job,
    JobKind,
    JobRequest,
    JobState,
    Operation,
    Outcome,
)
from tidewire.jobs.query import check_query, result_columns
from tidewire.jobs.runner import JobRunner
from tidewire.jobs.transform_spec import parse_spec
from tidewire.jobs.uploads import InputRow, UploadReader
from tidewire.storage.store import Reader, Transaction

KEPT_MS = 7 * 86_400_000
_SLICE_ROWS = 2_000
_PURGED_AT_ONCE = 100
_MAX_SPEC_BYTES = 1 << 20
_UNFINISHED = frozenset({BatchState.UPLOADING, BatchState.UPLOADED, *WAITING})


class BulkJobs:
    """One org's jobs, on the core's loop."""

    def __init__(self, gate: Gate, clock: Clock, runner: JobRunner) -> None:
        self._gate = gate
        self._clock = clock
        self._runner = runner
        self._uploading: set[str] = set()

    async def create(self, principal: Principal, request: JobRequest) -> Job:
        """Create a job, and queue it if it is a query. Raises JobInvalid, or what binding its query raises."""
        request = self._with_full_names(request)
        if request.query:
            check_query(request.query)
            bound = await self._gate.bind(principal, request.query, self._clock.now_ms())
            result_columns(bound)
            request = replace(request, entity=bound.entity.name)
        else:
            request = await self._check(principal, request)
        is_query = request.kind is JobKind.QUERY
        state = JobState.UPLOAD_COMPLETE if is_query else JobState.OPEN
        now_ms = self._clock.now_ms()

        def work(tx: Transaction) -> Job:
            job = store.insert_job(tx, request, state, principal.user_id, now_ms)
            if is_query:
                store.insert_batch(tx, job.job_id, BatchState.QUEUED, 0, now_ms)
            return job

        job = await self._gate.records.write_plain(work)
        if is_query:
            self._runner.wake()
        return job

    def _with_full_names(self, request: JobRequest) -> JobRequest:
        namespace = try_namespace(self._gate.catalog, request.namespace)
        if namespace is None:
            return request
        return replace(
            request,
            entity=namespace.qualify(request.entity),
            external_id=namespace.qualify(request.external_id),
            query=namespace.qualify_query(request.query),
        )

    async def _check(self, principal: Principal, request: JobRequest) -> JobRequest:
        try:
            obj, readable = await open_target(self._gate, principal, request.entity, request.operation)
        except (ObjectUnknown, OperationUnsupported) as error:
            shown = request.entity[:80]
            raise JobInvalid(
                f"Entity '{shown}' is not supported by the Bulk API.", reason="InvalidEntity"
            ) from error
        grants = await self._gate.grants(principal)
        if request.operation is Operation.HARD_DELETE and not grants.has("BulkApiHardDelete"):
            raise JobInvalid(
                "hardDelete needs the permission Bulk API Hard Delete", reason="FeatureNotEnabled"
            )
        external_id = ""
        if request.operation is Operation.UPSERT:
            field = obj.try_field(request.external_id)
            if field is None or field.name not in obj.keys or field.name not in readable:
                raise JobInvalid(
                    f"Field name provided, {request.external_id[:80] or 'none'} does not match an External ID for"
                    f" {obj.name}",
                    reason="InvalidJob",
                )
            external_id = field.name
        return replace(request, entity=obj.name, external_id=external_id)

    async def find(self, principal: Principal, job_id: str, *kinds: JobKind) -> Job:
        """Return a visible job of one of these kinds. Raises ResourceUnknown."""
        normal = try_normalise_id(job_id)
        job = None
        if normal is not None:
            job = await self._gate.records.read(lambda reader: store.try_read_job(reader, normal))
        if job is None or job.request.kind not in kinds or not await self._is_visible(principal, job):
            raise ResourceUnknown("The requested resource does not exist", job_id=job_id[:18])
        return job

    async def _is_visible(self, principal: Principal, job: Job) -> bool:
        if job.user_id == principal.user_id:
            return True
        return (await self._gate.grants(principal)).has("ManageDataIntegrations")

    async def check_data(self, principal: Principal, job: Job) -> None:
        """Raise ResourceUnknown unless the user may read a job's uploads and results.

        Results contain what the job's owner could see, so managing jobs is not enough to read them.
        """
        is_open = job.user_id == principal.user_id
        if not is_open and not (await self._gate.grants(principal)).has("ViewAllData"):
            raise ResourceUnknown("The requested resource does not exist", job_id=job.job_id)

    async def list_jobs(
        self, principal: Principal, kinds: Sequence[JobKind], after: int, limit: int
    ) -> list[tuple[Job, list[Batch]]]:
        """Return visible jobs with a number above `after`, oldest first, each with its batches."""
        grants = await self._gate.grants(principal)
        owner = None if grants.has("ManageDataIntegrations") else principal.user_id

        def work(reader: Reader) -> list[tuple[Job, list[Batch]]]:
            jobs = store.list_jobs(reader, kinds, owner, after, limit)
            batches = store.read_batches(reader, [job.job_id for job in jobs])
            return [(job, [b for b in batches if b.job_id == job.job_id]) for job in jobs]

        return await self._gate.records.read(work)

    async def batches(self, job: Job) -> list[Batch]:
        """Return the batches of a job, oldest first."""
        return await self._gate.records.read(lambda reader: store.read_batches(reader, [job.job_id]))

    async def find_batch(self, job: Job, batch_id: str) -> Batch:
        """Return a batch of the job. Raises ResourceUnknown."""
        normal = try_normalise_id(batch_id)
        found = next((b for b in await self.batches(job) if b.batch_id == normal), None)
        if found is None:
            raise ResourceUnknown("The requested resource does not exist", batch_id=batch_id[:18])
        return found

    async def upload(self, job: Job, blocks: Iterator[bytes]) -> None:
        """Store the data of an open job, which accepts one upload. The blocks are read off the loop."""
        if job.job_id in self._uploading:
            raise _already_uploaded(job)
        self._uploading.add(job.job_id)
        try:
            await self._drop_broken_upload(job)
            batch = await self._gate.records.write_plain(
                lambda tx: self._begin_upload(tx, job, BatchState.UPLOADING)
            )
            try:
                await self._store_parts(batch, blocks)
                await self._gate.records.write_plain(lambda tx: self._end_upload(tx, job, batch))
            except BaseException:
                await self._drop_broken_upload(job)
                raise
        finally:
            self._uploading.discard(job.job_id)

    async def add_batch(self, job: Job, data: bytes) -> Batch:
        """Add a batch to a job of the older API and queue it."""
        if len(data) > MAX_BATCH_BYTES:
            raise JobInvalid(
                f"Batch size {len(data)} is larger than {MAX_BATCH_BYTES} bytes", reason="ClientInputError"
            )
        if not data.strip():
            raise JobInvalid("The batch has no data", reason="InvalidBatch")

        def work(tx: Transaction) -> Batch:
            state = BatchState.UNSPLIT if job.request.chunk_rows else BatchState.QUEUED
            batch = self._begin_upload(tx, job, state, len(data))
            for part, start in enumerate(range(0, len(data), store.PART_BYTES)):
                store.append_part(tx, batch.batch_id, part, data[start : start + store.PART_BYTES])
            return batch

        batch = await self._gate.records.write_plain(work)
        self._runner.wake()
        return batch

    async def set_spec(self, job: Job, data: bytes) -> None:
        """Set the transformation spec for batches to come. Raises JobInvalid or JobStateInvalid."""
        request = job.request
        if request.content_type != "CSV" or request.operation.is_query:
            raise JobInvalid("A transformation spec needs a job that writes CSV", reason="InvalidJob")
        if len(data) > _MAX_SPEC_BYTES:
            raise JobInvalid(f"A spec may have at most {_MAX_SPEC_BYTES} bytes", reason="ClientInputError")
        spec = parse_spec(iter_csv([data], "COMMA", ""))

        def work(tx: Transaction) -> None:
            current = self._require(tx, job, JobState.OPEN)
            if store.read_batches(tx, [job.job_id]):
                raise JobStateInvalid("The job has batches already", job_id=job.job_id)
            store.set_request(tx, job.job_id, replace(current.request, spec=spec), self._clock.now_ms())

        await self._gate.records.write_plain(work)

    def _begin_upload(self, tx: Transaction, job: Job, state: BatchState, size_bytes: int = 0) -> Batch:
        self._require(tx, job, JobState.OPEN)
        if job.request.kind is JobKind.INGEST and store.read_batches(tx, [job.job_id]):
            raise _already_uploaded(job)
        return store.insert_batch(tx, job.job_id, state, size_bytes, self._clock.now_ms())

    async def _store_parts(self, batch: Batch, blocks: Iterator[bytes]) -> None:
        part, pending = 0, b""
        while True:
            block = await asyncio.to_thread(next, blocks, None)
            pending += block or b""
            if len(pending) >= store.PART_BYTES or (block is None and pending):
                await self._gate.records.write_plain(
                    partial(store.append_part, batch_id=batch.batch_id, part=part, data=pending)
                )
                part, pending = part + 1, b""
            if block is None:
                return

    def _end_upload(self, tx: Transaction, job: Job, batch: Batch) -> None:
        self._require(tx, job, JobState.OPEN)
        store.set_batch_state(tx, batch.batch_id, BatchState.UPLOADED, self._clock.now_ms())

    async def _drop_broken_upload(self, job: Job) -> None:
        """Delete the parts of an incomplete upload."""

        def work(tx: Transaction) -> bool:
            for batch in store.read_batches(tx, [job.job_id]):
                if batch.state is BatchState.UPLOADING:
                    if store.clear_upload(tx, batch.batch_id):
                        return True
                    store.delete_batch(tx, batch.batch_id)
            return False

        while await self._gate.records.write_plain(work):
            pass

    def _require(self, tx: Transaction, job: Job, *states: JobState) -> Job:
        """Return the stored job. Raises JobStateInvalid if it is in none of these states."""
        current = store.try_read_job(tx, job.job_id)
        state = None if current is None else current.state
        if current is None or state not in states:
            shown = "deleted" if state is None else state.value
            raise JobStateInvalid(f"The job is {shown}, which does not allow this", job_id=job.job_id)
        return current

    async def close(self, job: Job) -> Job:
        """Accept no more data, and queue what was uploaded."""

        def work(tx: Transaction) -> Job:
            now_ms = self._clock.now_ms()
            if job.request.kind is JobKind.CLASSIC:
                self._require(tx, job, JobState.OPEN, JobState.CLOSED)
                store.set_job_state(tx, job.job_id, JobState.CLOSED, now_ms)
                return self._require(tx, job, JobState.CLOSED)
            self._require(tx, job, JobState.OPEN)
            uploaded = [b for b in store.read_batches(tx, [job.job_id]) if b.state is BatchState.UPLOADED]
            if not uploaded:
                raise JobStateInvalid("The job has no data to process", job_id=job.job_id)
            for batch in uploaded:
                store.set_batch_state(tx, batch.batch_id, BatchState.QUEUED, now_ms)
            store.set_job_state(tx, job.job_id, JobState.UPLOAD_COMPLETE, now_ms)
            return self._require(tx, job, JobState.UPLOAD_COMPLETE)

        closed = await self._gate.records.write_plain(work)
        self._runner.wake()
        return closed

    async def abort(self, job: Job) -> Job:
        """Stop processing a job. Committed chunks stay."""

        def work(tx: Transaction) -> Job:
            current = store.try_read_job(tx, job.job_id)
            if current is not None and current.state in (JobState.JOB_COMPLETE, JobState.FAILED):
                raise JobStateInvalid("Aborting already Completed Job not allowed", job_id=job.job_id)
            self._abort(tx, job)
            return self._require(tx, job, JobState.ABORTED)

        return await self._gate.records.write_plain(work)

    def _abort(self, tx: Transaction, job: Job) -> None:
        now_ms = self._clock.now_ms()
        for batch in store.read_batches(tx, [job.job_id]):
            if batch.state in _UNFINISHED:
                store.set_batch_state(tx, batch.batch_id, BatchState.NOT_PROCESSED, now_ms)
        store.set_job_state(tx, job.job_id, JobState.ABORTED, now_ms)

    async def delete(self, job: Job) -> None:
        """Delete a job that is not in progress, with its uploads and results."""

        def begin(tx: Transaction) -> None:
            current = self._require(tx, job, JobState.UPLOAD_COMPLETE, *ENDED)
            if current.state is JobState.UPLOAD_COMPLETE:
                self._abort(tx, job)

        await self._gate.records.write_plain(begin)
        await self._remove(job.job_id)

    async def purge(self) -> None:
        """Delete jobs that ended, or were last changed, more than a week ago."""
        before_ms = self._clock.now_ms() - KEPT_MS
        stale = await self._gate.records.read(
            lambda reader: store.read_stale(reader, before_ms, _PURGED_AT_ONCE)
        )
        for job_id in stale:
            await self._remove(job_id)

    async def _remove(self, job_id: str) -> None:
        while await self._gate.records.write_plain(lambda tx: store.delete_job(tx, job_id)):
            pass

    async def iter_input(self, job: Job, batch: Batch) -> AsyncIterator[list[InputRow]]:
        """Yield the uploaded rows in slices; for CSV the header is the first row."""
        source = UploadReader(job.request, batch.batch_id)
        while rows := await self._gate.records.read(lambda reader: source.take(reader, _SLICE_ROWS)):
            yield rows

    async def iter_parts(self, batch: Batch) -> AsyncIterator[bytes]:
        """Yield the uploaded bytes unchanged."""
        part = 0
        while True:
            data = await self._gate.records.read(partial(store.read_part, batch_id=batch.batch_id, part=part))
            if data is None:
                return
            yield data
            part += 1

    async def iter_outcomes(self, batch: Batch) -> AsyncIterator[list[Outcome]]:
        """Yield the outcomes of processed rows, in order."""
        async for _, data in self._iter_slices(batch, 0):
            yield store.load_outcomes(data)

    async def iter_result(self, batch: Batch, first: int, count: int) -> AsyncIterator[list[list[Value]]]:
        """Yield rows of a query's result from row `first` on, each with the record's id before its cells."""
        left = count
        async for start, data in self._iter_slices(batch, first):
            rows = store.load_cells(data)[max(0, first - start) :][:left]
            left -= len(rows)
            yield rows
            if left <= 0:
                return

    async def _iter_slices(self, batch: Batch, first: int) -> AsyncIterator[tuple[int, bytes]]:
        row = first
        while True:
            found = await self._gate.records.read(partial(store.read_slice, batch_id=batch.batch_id, row=row))
            if found is None:
                return
            start, length, data = found
            yield start, data
            row = start + length


def _already_uploaded(job: Job) -> JobStateInvalid:
    return JobStateInvalid(
        f"Found multiple contents for job: <{job.job_id}>; data is uploaded once for each job",
        job_id=job.job_id,
    )
