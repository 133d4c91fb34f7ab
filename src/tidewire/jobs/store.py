"""Stores jobs, batches, uploads and results in the org's database. Every function runs in its caller's transaction.

An upload is stored as numbered parts of bytes; a result as JSON slices, each with the number of its first row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from tidewire.events import Value
from tidewire.jobs.model import (
    ENDED,
    WAITING,
    Batch,
    BatchState,
    Job,
    JobKind,
    JobRequest,
    JobState,
    Operation,
    Outcome,
    ResultColumn,
)
from tidewire.records.numbers import take_number, take_record_id
from tidewire.storage.store import Reader, Row, SqlValue, Transaction

PART_BYTES = 256 << 10
JOB_PREFIX = "750"
_BATCH_PREFIX = "751"
_ReaderOf = Callable[[], Reader]
_DELETED_AT_ONCE = 64  # parts or slices in one transaction: 16 MB
_JOB = "job_id, number, kind, state, user_id, request, error, created_ms, modified_ms"
_BATCH = (
    "batch_id, job_id, number, state, size_bytes, rows_done, rows_failed, work_ms, columns, error, created_ms,"
    " modified_ms"
)


def insert_job(tx: Transaction, request: JobRequest, state: JobState, user_id: str, now_ms: int) -> Job:
    """Store a new job."""
    number = take_number(tx, "bulk jobs")
    job = Job(take_record_id(tx, JOB_PREFIX), number, request, state, user_id, now_ms, now_ms)
    tx.execute(
        f"INSERT INTO bulk_jobs ({_JOB}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # constant
        (
            job.job_id,
            number,
            request.kind.value,
            state.value,
            user_id,
            json.dumps(asdict(request)),
            "",
            now_ms,
            now_ms,
        ),
    )
    return job


def insert_batch(tx: Transaction, job_id: str, state: BatchState, size_bytes: int, now_ms: int) -> Batch:
    """Store a new batch without data."""
    number = take_number(tx, "bulk batches")
    batch_id = take_record_id(tx, _BATCH_PREFIX)
    tx.execute(
        f"INSERT INTO bulk_batches ({_BATCH}) VALUES (?, ?, ?, ?, ?, 0, 0, 0, '[]', '', ?, ?)",  # noqa: S608
        (batch_id, job_id, number, state.value, size_bytes, now_ms, now_ms),
    )
    return Batch(batch_id, job_id, number, state, size_bytes, 0, 0, 0, now_ms, now_ms)


def try_read_job(reader: Reader, job_id: str) -> Job | None:
    """Read the job with this id."""
    rows = reader.execute(f"SELECT {_JOB} FROM bulk_jobs WHERE job_id = ?", (job_id,))  # noqa: S608
    return _job(rows[0]) if rows else None


def list_jobs(
    reader: Reader, kinds: Sequence[JobKind], user_id: str | None, after: int, limit: int
) -> list[Job]:
    """Read jobs of these kinds with a number above `after`, in order; of all users if `user_id` is None."""
    marks = ", ".join("?" for _ in kinds)
    params: list[SqlValue] = [*(kind.value for kind in kinds), after]
    owned = ""
    if user_id is not None:
        owned = " AND user_id = ?"
        params.append(user_id)
    rows = reader.execute(
        f"SELECT {_JOB} FROM bulk_jobs WHERE kind IN ({marks}) AND number > ?{owned} ORDER BY number LIMIT ?",  # noqa: S608
        (*params, limit),
    )
    return [_job(row) for row in rows]


def read_batches(reader: Reader, job_ids: Sequence[str]) -> list[Batch]:
    """Read the batches of these jobs, oldest first."""
    found: list[Batch] = []
    for start in range(0, len(job_ids), 500):
        some = job_ids[start : start + 500]
        marks = ", ".join("?" for _ in some)
        rows = reader.execute(
            f"SELECT {_BATCH} FROM bulk_batches WHERE job_id IN ({marks}) ORDER BY number",  # noqa: S608
            some,
        )
        found += [_batch(row) for row in rows]
    return found


def try_read_batch(reader: Reader, batch_id: str) -> Batch | None:
    """Read the batch with this id."""
    rows = reader.execute(f"SELECT {_BATCH} FROM bulk_batches WHERE batch_id = ?", (batch_id,))  # noqa: S608
    return _batch(rows[0]) if rows else None


def read_waiting(reader: Reader, limit: int) -> list[Batch]:
    """Read batches to process, oldest first, at most one per job."""
    marks = ", ".join("?" for _ in WAITING)
    rows = reader.execute(
        f"SELECT {_BATCH} FROM bulk_batches WHERE number IN (SELECT MIN(number) FROM bulk_batches"  # noqa: S608
        f" WHERE state IN ({marks}) GROUP BY job_id) ORDER BY number LIMIT ?",
        (*(state.value for state in WAITING), limit),
    )
    return [_batch(row) for row in rows]


def set_job_state(tx: Transaction, job_id: str, state: JobState, now_ms: int, error: str = "") -> None:
    """Set a job's state."""
    tx.execute(
        "UPDATE bulk_jobs SET state = ?, error = ?, modified_ms = ? WHERE job_id = ?",
        (state.value, error, now_ms, job_id),
    )


def set_request(tx: Transaction, job_id: str, request: JobRequest, now_ms: int) -> None:
    """Replace a job's parameters."""
    tx.execute(
        "UPDATE bulk_jobs SET request = ?, modified_ms = ? WHERE job_id = ?",
        (json.dumps(asdict(request)), now_ms, job_id),
    )


def set_batch_state(tx: Transaction, batch_id: str, state: BatchState, now_ms: int, error: str = "") -> None:
    """Set a batch's state."""
    tx.execute(
        "UPDATE bulk_batches SET state = ?, error = ?, modified_ms = ? WHERE batch_id = ?",
        (state.value, error, now_ms, batch_id),
    )


def add_progress(
    tx: Transaction, batch_id: str, *, rows: int, failed: int, work_ms: int, data: bytes, now_ms: int
) -> None:
    """Store the results of the next rows and advance the batch's counters."""
    ((first_row,),) = tx.execute("SELECT rows_done FROM bulk_batches WHERE batch_id = ?", (batch_id,))
    if rows:
        tx.execute(
            "INSERT INTO bulk_results (batch_id, first_row, row_count, data) VALUES (?, ?, ?, ?)",
            (batch_id, first_row, rows, data),
        )
    tx.execute(
        "UPDATE bulk_batches SET rows_done = rows_done + ?, rows_failed = rows_failed + ?, work_ms = work_ms + ?,"
        " modified_ms = ? WHERE batch_id = ?",
        (rows, failed, work_ms, now_ms, batch_id),
    )


def set_columns(tx: Transaction, batch_id: str, columns: Sequence[ResultColumn]) -> None:
    """Store the columns of a query's result."""
    text = json.dumps([[column.path, column.type, column.entity] for column in columns])
    tx.execute("UPDATE bulk_batches SET columns = ? WHERE batch_id = ?", (text, batch_id))


def append_part(tx: Transaction, batch_id: str, part: int, data: bytes) -> None:
    """Append a part to an upload."""
    tx.execute("INSERT INTO bulk_parts (batch_id, part, data) VALUES (?, ?, ?)", (batch_id, part, data))


def read_part(reader: Reader, batch_id: str, part: int) -> bytes | None:
    """Read a part of an upload; None after the last."""
    rows = reader.execute("SELECT data FROM bulk_parts WHERE batch_id = ? AND part = ?", (batch_id, part))
    return bytes(rows[0][0]) if rows else None


def read_slice(reader: Reader, batch_id: str, row: int) -> tuple[int, int, bytes] | None:
    """Read the result slice with this row, or the next one: its first row, its length and its data."""
    rows = reader.execute(
        "SELECT first_row, row_count, data FROM bulk_results WHERE batch_id = ? AND first_row + row_count > ?"
        " ORDER BY first_row LIMIT 1",
        (batch_id, row),
    )
    return (int(rows[0][0]), int(rows[0][1]), bytes(rows[0][2])) if rows else None


def restart_batch(tx: Transaction, batch_id: str) -> bool:
    """Delete some results of a batch that starts over; return whether more are left."""
    tx.execute("UPDATE bulk_batches SET rows_done = 0, rows_failed = 0 WHERE batch_id = ?", (batch_id,))
    return _delete_some(tx, "bulk_results", "first_row", batch_id)


def delete_job(tx: Transaction, job_id: str) -> bool:
    """Delete a bounded part of a job; return whether more is left.

    The job's row is deleted last, so that after a crash the rest can still be found.
    """
    for batch in read_batches(tx, [job_id]):
        if clear_upload(tx, batch.batch_id) or _delete_some(tx, "bulk_results", "first_row", batch.batch_id):
            return True
        delete_batch(tx, batch.batch_id)
    tx.execute("DELETE FROM bulk_jobs WHERE job_id = ?", (job_id,))
    return False


def delete_batch(tx: Transaction, batch_id: str) -> None:
    """Delete a batch whose upload and results are already deleted."""
    tx.execute("DELETE FROM bulk_batches WHERE batch_id = ?", (batch_id,))


def clear_upload(tx: Transaction, batch_id: str) -> bool:
    """Delete some parts of an upload; return whether more are left."""
    return _delete_some(tx, "bulk_parts", "part", batch_id)


def read_stale(reader: Reader, before_ms: int, limit: int) -> list[str]:
    """Read the ids of ended or open jobs that have not changed since `before_ms` and have no waiting batch."""
    states = sorted({*ENDED, JobState.OPEN})
    marks, waiting = ", ".join("?" for _ in states), ", ".join("?" for _ in WAITING)
    rows = reader.execute(
        f"SELECT job_id FROM bulk_jobs WHERE modified_ms < ? AND state IN ({marks}) AND job_id NOT IN"  # noqa: S608
        f" (SELECT job_id FROM bulk_batches WHERE state IN ({waiting})) LIMIT ?",
        (before_ms, *(state.value for state in states), *(state.value for state in WAITING), limit),
    )
    return [str(row[0]) for row in rows]


def dump_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """Serialise outcomes."""
    rows = [
        [o.record_id, o.is_new, o.code, o.message, o.fields] if o.code else [o.record_id, o.is_new]
        for o in outcomes
    ]
    return json.dumps(rows).encode()


def load_outcomes(data: bytes) -> list[Outcome]:
    """Deserialise outcomes."""
    loaded: list[Outcome] = []
    for record_id, is_new, *failure in json.loads(data):
        if failure:
            code, message, fields = failure
            loaded.append(Outcome(record_id, is_new, code, message, tuple(fields)))
        else:
            loaded.append(Outcome(record_id, is_new))
    return loaded


def load_cells(data: bytes) -> list[list[Value]]:
    """Deserialise a slice of a query's result: rows of stored values."""
    loaded: list[list[Value]] = json.loads(data)
    return loaded


def iter_parts(reader_of: _ReaderOf, batch_id: str) -> Iterator[bytes]:
    """Yield the parts of an upload, each through the reader that `reader_of` returns at that time."""
    part = 0
    while (data := read_part(reader_of(), batch_id, part)) is not None:
        yield data
        part += 1


def _delete_some(tx: Transaction, table: str, key: str, batch_id: str) -> bool:
    rows = tx.execute(
        f"SELECT {key} FROM {table} WHERE batch_id = ? ORDER BY {key} LIMIT ?",  # noqa: S608  # constants
        (batch_id, _DELETED_AT_ONCE),
    )
    if rows:
        tx.execute(
            f"DELETE FROM {table} WHERE batch_id = ? AND {key} <= ?",  # noqa: S608
            (batch_id, rows[-1][0]),
        )
    return len(rows) == _DELETED_AT_ONCE


def _job(row: Row) -> Job:
    job_id, number, kind, state, user_id, request, error, created_ms, modified_ms = row
    asked = json.loads(request)
    asked["kind"], asked["operation"] = JobKind(kind), Operation(asked["operation"])
    asked["spec"] = tuple(map(tuple, asked.get("spec", ())))
    return Job(job_id, number, JobRequest(**asked), JobState(state), user_id, created_ms, modified_ms, error)


def _batch(row: Row) -> Batch:
    stored = dict(zip(_BATCH.split(", "), row, strict=True))
    stored["state"] = BatchState(stored["state"])
    stored["columns"] = tuple(ResultColumn(*column) for column in json.loads(stored["columns"]))
    return Batch(**stored)
