"""The context of a batch in progress: its job, its owner, and the transitions of its state.

Every transition is one transaction that first checks that the batch is still in progress, so an aborted job stays
aborted.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import JobInvalid, JobStateInvalid
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Call
from tidewire.jobs import store
from tidewire.jobs.model import Batch, BatchState, Job, JobKind, JobState
from tidewire.records.table import try_read_row
from tidewire.storage.store import Reader, Transaction

_RUNNING = (BatchState.IN_PROGRESS, BatchState.UNSPLIT)


@dataclass(frozen=True, slots=True)
class BatchContext:
    """One batch that is processed as its job's owner."""

    gate: Gate
    clock: Clock
    job: Job
    batch: Batch
    principal: Principal

    @property
    def call(self) -> Call:
        """The owner as a caller of the gate. Bulk changes send no push-topic notifications."""
        return Call(self.principal, self.job.request.origin, has_notifications=False)

    def check_owner(self, reader: Reader) -> None:
        """Raise JobInvalid if the owner is no longer an active user."""
        user = try_read_row(reader, self.gate.catalog.object("User"), self.principal.user_id)
        if user is None or not user.get("IsActive"):
            raise JobInvalid("The user who made the job is no longer active", reason="InvalidUser")

    def require(self, tx: Reader, *states: BatchState) -> Batch:
        """Return the stored batch. Raises JobStateInvalid if it is in none of these states."""
        batch = store.try_read_batch(tx, self.batch.batch_id)
        if batch is None or batch.state not in states:
            raise JobStateInvalid("The job was ended", job_id=self.job.job_id)
        return batch

    def require_running(self, tx: Reader) -> Batch:
        """Return the stored batch. Raises JobStateInvalid if it is no longer in progress."""
        return self.require(tx, *_RUNNING)

    def add_progress(self, tx: Transaction, rows: int, failed: int, data: bytes, begun_s: float) -> None:
        """Store the results of the next rows, whose processing began at `begun_s`."""
        store.add_progress(
            tx,
            self.batch.batch_id,
            rows=rows,
            failed=failed,
            work_ms=round((self.clock.monotonic_s() - begun_s) * 1000),
            data=data,
            now_ms=self.clock.now_ms(),
        )

    async def begin(self) -> None:
        """Mark the batch as in progress. Raises JobStateInvalid if it was aborted or has ended."""
        startable = (BatchState.QUEUED, BatchState.IN_PROGRESS)
        await self._change_state(startable, BatchState.IN_PROGRESS, JobState.IN_PROGRESS)

    async def finish(self) -> None:
        """Mark the batch as completed, and its job too unless clients may add more batches."""
        await self._change_state(_RUNNING, BatchState.COMPLETED, JobState.JOB_COMPLETE)

    async def fail(self, message: str) -> None:
        """Mark the batch as failed, and its job likewise. Committed chunks stay."""
        await self._change_state(_RUNNING, BatchState.FAILED, JobState.FAILED, message)

    async def _change_state(
        self, allowed: tuple[BatchState, ...], batch_state: BatchState, job_state: JobState, message: str = ""
    ) -> None:
        def work(tx: Transaction) -> None:
            self.require(tx, *allowed)
            now_ms = self.clock.now_ms()
            store.set_batch_state(tx, self.batch.batch_id, batch_state, now_ms, message)
            if self.job.request.kind is not JobKind.CLASSIC:
                store.set_job_state(tx, self.job.job_id, job_state, now_ms, message)

        await self.gate.records.write_plain(work)
