"""The one runner of an org's jobs: takes batches up as they queue and does a piece of each in turn.

Between two pieces the loop is free, and every chunk is a transaction like any other, so calls of clients are not held
up by a large job, and a small job not by a large one. Nothing here is durable: after a restart the runner finds what is
queued or half done in the database.
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
_MAX_OPEN = 8
_RETRY_S = 1.0
_MAX_ERROR_LENGTH = 2_000


class _Run(Protocol):
    async def step(self) -> bool:
        """Do some more; returns whether the batch is done."""


class JobRunner:
    """Lives on the core's loop."""

    def __init__(self, gate: Gate, clock: Clock, org_id: str) -> None:
        self._gate = gate
        self._clock = clock
        self._org_id = org_id
        self._runs: dict[str, tuple[BatchContext, _Run]] = {}
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether there may be something left to do."""
        return not self._idle.is_set()

    async def wait_idle(self) -> None:
        """Return once nothing is left to do."""
        await self._idle.wait()

    def wake(self) -> None:
        """There may be something to do."""
        self._idle.clear()
        self._awake.set()

    async def run_forever(self) -> None:
        """Process what is there and what comes, until cancelled or until the store takes no more writes."""
        try:
            while True:
                try:
                    await self._run_pending()
                except StorageError as error:
                    log.warning("jobs.run_interrupted", extra={"code": error.code})
                    self._runs.clear()
                    if not error.retryable:
                        return
                    await asyncio.sleep(_RETRY_S)
                    continue
                if not self._awake.is_set():
                    self._idle.set()
                    await self._awake.wait()
        finally:
            self._idle.set()

    async def _run_pending(self) -> None:
        """Process everything that is queued, then return. Raises StorageError."""
        while True:
            self._awake.clear()
            await self._take_up()
            if not self._runs:
                return
            for batch_id, (context, run) in tuple(self._runs.items()):
                if await self._step(context, run):
                    del self._runs[batch_id]

    async def _take_up(self) -> None:
        waiting = await self._gate.records.read(lambda reader: store.read_waiting(reader, _MAX_OPEN))
        for batch in waiting:
            if batch.batch_id not in self._runs and len(self._runs) < _MAX_OPEN:
                started = await self._gate.records.read(partial(self._start, batch=batch))
                self._runs[batch.batch_id] = started

    def _start(self, reader: Reader, batch: Batch) -> tuple[BatchContext, _Run]:
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
        user = try_read_row(reader, self._gate.catalog.object("User"), job.user_id)
        username = "" if user is None else str(user.get("Username") or "")
        return Principal(self._org_id, job.user_id, username, "")

    async def _step(self, context: BatchContext, run: _Run) -> bool:
        """One piece of a batch; returns whether it is over, however it ended."""
        try:
            return await run.step()
        except StorageError:
            raise
        except JobStateInvalid:
            return True
        except JobInvalid as error:
            message = f"{error.details.get('reason', 'InvalidBatch')} : {error.message}"
        except RequestError as error:
            what = "Failed to process query: " if context.job.request.operation.is_query else ""
            message = f"InvalidBatch : {what}{error.message}"
        except Exception:
            log.exception("jobs.batch_failed", extra={"batch": context.batch.batch_id})
            message = "InternalServerError : An unexpected error occurred"
        counters["jobs.batches_failed"] += 1
        try:
            await context.fail(message[:_MAX_ERROR_LENGTH])
        except JobStateInvalid:
            log.info("jobs.batch_ended_before", extra={"batch": context.batch.batch_id})
        return True


def _read_query(reader: Reader, batch: Batch) -> str:
    text = b"".join(store.iter_parts(lambda: reader, batch.batch_id))
    return text.decode("utf-8", "replace").strip()
