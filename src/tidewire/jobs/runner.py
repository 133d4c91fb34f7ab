"""The job runner of an org: picks up queued batches and processes them round-robin, one step at a time.

Fairness. A step is short, and between steps the loop is free. Every chunk is an ordinary transaction in the writer's
queue, so client calls do not wait for a large job, and a small job does not wait for a large one.

Durability. The runner keeps nothing of its own. A batch's state and progress are in the database and change in the same
transactions as the records, so after a crash, or after any storage error, the runner drops what it holds in memory and
reads again what is queued or in progress.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import (
    InternalError,
    JobInvalid,
    JobStateInvalid,
    RequestError,
    StorageError,
)
from tidewire.gate.gate import Gate
from tidewire.gate.namespaces import try_namespace
from tidewire.jobs import store
from tidewire.jobs.batch_context import BatchContext
from tidewire.jobs.ingest import IngestRun
from tidewire.jobs.model import Batch, BatchState, Job
from tidewire.jobs.pk_chunking import ChunkingRun
from tidewire.jobs.query import QueryRun
from tidewire.records.table import try_read_row
from tidewire.storage.store import Reader
from tidewire.telemetry import counters

log = logging.getLogger(__name__)
_MAX_OPEN = 8  # batches in progress at once; each holds up to a slice of parsed rows in memory
_RETRY_S = 1.0
_MAX_ERROR_LENGTH = 2_000  # of a message in the job's `errorMessage`


class _Run(Protocol):
    async def step(self) -> bool:
        """Process the next piece; return whether the batch is done."""


class JobRunner:
    """Processes one org's batches, on the core's loop."""

    def __init__(self, gate: Gate, clock: Clock, org_id: str) -> None:
        self._gate = gate
        self._clock = clock
        self._org_id = org_id
        self._runs: dict[str, tuple[BatchContext, _Run]] = {}
        # Two events, because they answer different questions: is there a reason to look at the queue (set by `wake`),
        # and has everything been processed (waited for by `wait_idle`).
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether batches may be queued or in progress."""
        return not self._idle.is_set()

    async def wait_idle(self) -> None:
        """Wait until no batch is queued or in progress."""
        await self._idle.wait()

    def wake(self) -> None:
        """Look at the queue again. Called after the commit that queues a batch."""
        # `_idle` first: a caller that queues a batch and then waits for idle must not see the old state.
        self._idle.clear()
        self._awake.set()

    async def run_forever(self) -> None:
        """Process batches as they are queued. Returns only if the store fails for good; ends by being cancelled."""
        try:
            while True:
                try:
                    await self._run_pending()
                except StorageError as error:
                    # What the runs hold in memory may be ahead of the database now (a chunk whose commit failed). They
                    # are dropped, and each batch is opened again at its stored position.
                    log.warning("jobs.run_interrupted", extra={"code": error.code})
                    self._runs.clear()
                    if not error.retryable:
                        return  # the writer has stopped; after a restart the batches continue
                    await asyncio.sleep(_RETRY_S)
                    continue
                # No `await` between this test and `_idle.set()`, so no `wake` can get lost in between.
                if not self._awake.is_set():
                    self._idle.set()
                    await self._awake.wait()
        finally:
            self._idle.set()  # nobody may wait for a runner that has ended

    async def _run_pending(self) -> None:
        """Process everything that is queued, then return. Raises StorageError."""
        while True:
            # Cleared before the queue is read: a batch that is queued during the read sets it again.
            self._awake.clear()
            await self._open_waiting()
            if not self._runs:
                return
            # One step of each batch per round. The queue is read again after every round, so that a new job starts
            # while older ones are in progress.
            for batch_id, (context, run) in tuple(self._runs.items()):
                if await self._step(context, run):
                    del self._runs[batch_id]

    async def _open_waiting(self) -> None:
        """Open waiting batches, the oldest first, one per job, as far as there is room."""
        waiting = await self._gate.records.read(lambda reader: store.read_waiting(reader, _MAX_OPEN))
        for batch in waiting:
            if batch.batch_id not in self._runs and len(self._runs) < _MAX_OPEN:
                started = await self._gate.records.read(partial(self._start, batch=batch))
                self._runs[batch.batch_id] = started

    def _start(self, reader: Reader, batch: Batch) -> tuple[BatchContext, _Run]:
        """Choose what processes a batch: rows to write, a query to split into chunks, or a query to run."""
        job = store.try_read_job(reader, batch.job_id)
        if job is None:
            raise InternalError(f"batch {batch.batch_id} has no job")
        context = BatchContext(self._gate, self._clock, job, batch, self._owner(reader, job))
        if not job.request.operation.is_query:
            return context, IngestRun(context)
        soql = job.request.query or _read_query(reader, batch)
        namespace = try_namespace(self._gate.catalog, job.request.namespace)
        if namespace is not None:
            soql = namespace.qualify_query(soql)
        is_whole = batch.state is BatchState.UNSPLIT
        return context, ChunkingRun(context, soql) if is_whole else QueryRun(context, soql)

    def _owner(self, reader: Reader, job: Job) -> Principal:
        # A job runs with the rights of the user who made it, whoever closed it. There is no login session behind it.
        user = try_read_row(reader, self._gate.catalog.object("User"), job.user_id)
        username = "" if user is None else str(user.get("Username") or "")
        return Principal(self._org_id, job.user_id, username, "")

    async def _step(self, context: BatchContext, run: _Run) -> bool:
        """Process one piece of a batch; return whether the batch is over, whether it succeeded or not."""
        try:
            return await run.step()
        except StorageError:
            raise  # not the batch's fault: it stays in progress and is opened again
        except JobStateInvalid:
            return True  # aborted or deleted meanwhile; its state in the database is final
        except JobInvalid as error:
            message = f"{error.details.get('reason', 'InvalidBatch')} : {error.message}"
        except RequestError as error:
            what = "Failed to process query: " if context.job.request.operation.is_query else ""
            message = f"InvalidBatch : {what}{error.message}"
        except Exception:
            # A bug must fail one batch, not stop the jobs of the whole org.
            log.exception("jobs.batch_failed", extra={"batch": context.batch.batch_id})
            message = "InternalServerError : An unexpected error occurred"
        counters["jobs.batches_failed"] += 1
        try:
            await context.fail(message[:_MAX_ERROR_LENGTH])
        except JobStateInvalid:
            # Aborted between the failure and this write: the abort wins.
            log.info("jobs.batch_ended_before", extra={"batch": context.batch.batch_id})
        return True


def _read_query(reader: Reader, batch: Batch) -> str:
    text = b"".join(store.iter_parts(lambda: reader, batch.batch_id))
    return text.decode("utf-8", "replace").strip()
