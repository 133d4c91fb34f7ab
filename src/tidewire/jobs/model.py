"""Bulk jobs and their batches as plain values.

A job of Bulk API 2.0 has one batch; a job of the older API has as many as its client adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidewire.errors import PlatformError, leaf_errors

MAX_UPLOAD_BYTES = 150 * 1024 * 1024
MAX_BATCH_BYTES = 10 * 1024 * 1024
MAX_BATCH_ROWS = 10_000
MAX_COLUMNS = 5_000
MAX_ROW_LENGTH = 400_000

NULL_MARK = "#N/A"
"""Clears a field in CSV, where an empty cell leaves it unchanged."""

DELIMITERS = {"BACKQUOTE": "`", "CARET": "^", "COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "TAB": "\t"}
LINE_ENDINGS = {"LF": "\n", "CRLF": "\r\n"}
PARENT = "parent"


class JobKind(StrEnum):
    """The API that a job was made with, in that API's words."""

    INGEST = "V2Ingest"
    QUERY = "V2Query"
    CLASSIC = "Classic"


class Operation(StrEnum):
    """What is done with each row."""

    INSERT = "insert"
    UPDATE = "update"
    UPSERT = "upsert"
    DELETE = "delete"
    HARD_DELETE = "hardDelete"
    QUERY = "query"
    QUERY_ALL = "queryAll"

    @property
    def is_query(self) -> bool:
        """Whether the job reads records."""
        return self in (Operation.QUERY, Operation.QUERY_ALL)

    @property
    def is_delete(self) -> bool:
        """Whether rows contain only ids."""
        return self in (Operation.DELETE, Operation.HARD_DELETE)


class JobState(StrEnum):
    """The state of a job. Closed is the older API's: no more batches are accepted."""

    OPEN = "Open"
    UPLOAD_COMPLETE = "UploadComplete"
    IN_PROGRESS = "InProgress"
    JOB_COMPLETE = "JobComplete"
    ABORTED = "Aborted"
    FAILED = "Failed"
    CLOSED = "Closed"


class BatchState(StrEnum):
    """The state of a batch. The first two precede closing the job; Unsplit waits for PK chunking."""

    UPLOADING = "Uploading"
    UPLOADED = "Uploaded"
    UNSPLIT = "Unsplit"
    QUEUED = "Queued"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    NOT_PROCESSED = "NotProcessed"


ENDED = frozenset({JobState.JOB_COMPLETE, JobState.ABORTED, JobState.FAILED, JobState.CLOSED})
WAITING = (BatchState.UNSPLIT, BatchState.QUEUED, BatchState.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The parameters of a job. `entity` is spelled as in the catalog; `delimiter` and `line_ending` are names."""

    kind: JobKind
    operation: Operation
    entity: str
    version: int
    origin: str
    content_type: str = "CSV"
    delimiter: str = "COMMA"
    line_ending: str = "LF"
    external_id: str = ""
    query: str = ""
    concurrency: str = "Parallel"
    assignment_rule: str = ""
    namespace: str = ""  # the prefix that the caller omits from names
    chunk_rows: int = 0  # rows per range of PK chunking, 0 without it
    chunk_start: str = ""
    chunk_parent: str = ""
    spec: tuple[tuple[str, str, str, str], ...] = ()  # lines of the transformation spec


@dataclass(frozen=True, slots=True)
class Job:
    """A stored job. `error` is empty unless it failed."""

    job_id: str
    number: int
    request: JobRequest
    state: JobState
    user_id: str
    created_ms: int
    modified_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a query's result: its dotted path, the type of its values, and the object of its field.

    A column of type PARENT has no field: its values are the type and id of the related records.
    """

    path: str
    type: str
    entity: str

    @property
    def is_parent(self) -> bool:
        """Whether it names the related record instead of a field's value."""
        return self.type == PARENT


@dataclass(frozen=True, slots=True)
class Batch:
    """A stored batch. `rows_done` counts committed rows; `columns` are those of a query's result."""

    batch_id: str
    job_id: str
    number: int
    state: BatchState
    size_bytes: int
    rows_done: int
    rows_failed: int
    work_ms: int
    created_ms: int
    modified_ms: int
    columns: tuple[ResultColumn, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one row. `code` is an error code of `tidewire.errors`, empty on success."""

    record_id: str
    is_new: bool = False
    code: str = ""
    message: str = ""
    fields: tuple[str, ...] = ()

    @property
    def error_class(self) -> type[PlatformError]:
        """The error class of `code`."""
        return _CLASSES[self.code]


_CLASSES = {leaf.code: leaf for leaf in leaf_errors()}


def outcome_of(error: PlatformError, record_id: str = "") -> Outcome:
    """Return the outcome of a failed row."""
    named = error.details.get("fields")
    fields = tuple(str(name) for name in named) if isinstance(named, list | tuple | set | frozenset) else ()
    return Outcome(record_id, False, error.code, error.message, fields)
