"""CSV results as streams of bytes: the outcomes of a job's rows, and the rows of a query."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import islice

from tidewire.errors import JobInvalid
from tidewire.frontends.rest.bulk.wire import render_cell, render_row_error
from tidewire.jobs.csv_rows import render_csv
from tidewire.jobs.model import Batch, Job, Outcome
from tidewire.jobs.service import BulkJobs
from tidewire.jobs.uploads import InputRow

CSV_TYPE = "text/csv;charset=UTF-8"
_SUCCESS_HEADER = ["sf__Id", "sf__Created"]
_FAILURE_HEADER = ["sf__Id", "sf__Error"]


async def iter_outcomes_csv(
    jobs: BulkJobs, job: Job, batch: Batch | None, *, are_failed: bool
) -> AsyncIterator[bytes]:
    """Yield the rows that failed, or those that succeeded, each with its outcome before its own columns."""
    header = _FAILURE_HEADER if are_failed else _SUCCESS_HEADER
    if batch is None or not batch.rows_done:
        yield _csv(job, [header])
        return
    inputs = _Inputs(jobs.iter_input(job, batch))
    yield _csv(job, [[*header, *_texts(await inputs.take(1))]])
    async for outcomes in jobs.iter_outcomes(batch):
        rows = await inputs.take(len(outcomes))
        chosen = [
            [outcome.record_id, _outcome_cell(outcome), *_cells(row)]
            for outcome, row in zip(outcomes, rows, strict=True)
            if bool(outcome.code) is are_failed
        ]
        if chosen:
            yield _csv(job, chosen)


async def iter_unprocessed_csv(jobs: BulkJobs, job: Job, batch: Batch | None) -> AsyncIterator[bytes]:
    """Yield the rows that were not processed, up to the first unreadable one."""
    if batch is None:
        return
    inputs = _Inputs(jobs.iter_input(job, batch))
    try:
        header = await inputs.take(1)
        if header:
            yield _csv(job, [_texts(header)])
        await inputs.take(batch.rows_done)
        while rows := await inputs.take(1_000):
            yield _csv(job, [_cells(row) for row in rows])
    except JobInvalid:
        # The row that failed the job is unreadable here too; the rows before it have been sent.
        return


async def iter_query_csv(
    jobs: BulkJobs, job: Job, batch: Batch, first: int, count: int
) -> AsyncIterator[bytes]:
    """Yield a page of a query's result, header first."""
    columns = [column for column in batch.columns if not column.is_parent]
    yield _csv(job, [[column.path for column in columns]])
    async for rows in jobs.iter_result(batch, first, count):
        cells = [[render_cell(c, v) for c, v in zip(columns, row[1:], strict=False)] for row in rows]
        yield _csv(job, cells)


class _Inputs:
    """Takes any number of rows from slices of other sizes."""

    def __init__(self, slices: AsyncIterator[list[InputRow]]) -> None:
        self._slices = slices
        self._rows: list[InputRow] = []

    async def take(self, count: int) -> list[InputRow]:
        """Return the next rows; fewer only at the end."""
        taken: list[InputRow] = []
        while len(taken) < count:
            if not self._rows:
                found = await anext(self._slices, None)
                if found is None:
                    break
                self._rows = found
            some = list(islice(self._rows, count - len(taken)))
            taken += some
            self._rows = self._rows[len(some) :]
        return taken


def _outcome_cell(outcome: Outcome) -> str:
    if outcome.code:
        return render_row_error(outcome)
    return "true" if outcome.is_new else "false"


def _csv(job: Job, rows: Sequence[Sequence[str]]) -> bytes:
    return render_csv(rows, job.request.delimiter, job.request.line_ending)


def _texts(rows: Sequence[InputRow]) -> list[str]:
    return _cells(rows[0]) if rows else []


def _cells(row: InputRow) -> list[str]:
    return row if isinstance(row, list) else []
