"""What a bulk job is: one order, with its data in batches. Plain values.

A job of the newer API has one batch; one of the older API as many as its client adds.
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
"""What empties a field in CSV, where nothing at all leaves it as it is."""

DELIMITERS = {"BACKQUOTE": "`", "CARET": "^", "COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "TAB": "\t"}
LINE_ENDINGS = {"LF": "\n", "CRLF": "\r\n"}
PARENT = "parent"


class JobKind(StrEnum):
    """Which API a job came by, in the words of the API."""

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
        """Whether it reads."""
        return self in (Operation.QUERY, Operation.QUERY_ALL)

    @property
    def is_delete(self) -> bool:
        """Whether rows are ids and nothing else."""
        return self in (Operation.DELETE, Operation.HARD_DELETE)


class JobState(StrEnum):
    """How far a job is. Closed is the older API's: no more batches, whatever their own states."""

    OPEN = "Open"
    UPLOAD_COMPLETE = "UploadComplete"
    IN_PROGRESS = "InProgress"
    JOB_COMPLETE = "JobComplete"
    ABORTED = "Aborted"
    FAILED = "Failed"
    CLOSED = "Closed"


class BatchState(StrEnum):
    """How far a batch is. The first two are of uploads that nobody has asked to process yet; Unsplit is that of a query
    which is still to be cut into chunks.
    """

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
    """What was asked for. `entity` has the catalog's spelling; `delimiter` and `line_ending` are words."""

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
    namespace: str = ""  # what the caller leaves out of names
    chunk_rows: int = 0  # of PK chunking, 0 without
    chunk_start: str = ""
    chunk_parent: str = ""
    spec: tuple[tuple[str, str, str, str], ...] = ()  # how the columns of a file become fields


@dataclass(frozen=True, slots=True)
class Job:
    """A job as stored. `error` says why it failed, empty if it did not."""

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
    """A column of a query's result: its dotted path, the type of its values, and the object that it is of.

    One of type PARENT is nobody's cell: its values are the type and id of the records that the path leads to.
    """

    path: str
    type: str
    entity: str

    @property
    def is_parent(self) -> bool:
        """Whether it says which record a relationship leads to."""
        return self.type == PARENT


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as stored. `rows_done` counts what is committed; `columns` are those of a query's result."""

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
    """What became of one row. `code` is that of an error of ours, empty if all went well."""

    record_id: str
    is_new: bool = False
    code: str = ""
    message: str = ""
    fields: tuple[str, ...] = ()

    @property
    def error_class(self) -> type[PlatformError]:
        """The class of the error that `code` names."""
        return _CLASSES[self.code]


_CLASSES = {leaf.code: leaf for leaf in leaf_errors()}


def outcome_of(error: PlatformError, record_id: str = "") -> Outcome:
    """The outcome of a row that failed."""
    named = error.details.get("fields")
    fields = tuple(str(name) for name in named) if isinstance(named, list | tuple | set | frozenset) else ()
    return Outcome(record_id, False, error.code, error.message, fields)
