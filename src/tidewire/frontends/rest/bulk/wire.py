"""Jobs, row errors and values on the wire, for both Bulk APIs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidewire.errors import BodyMalformed, JobInvalid, PlatformError, ValueMalformed
from tidewire.events import Value
from tidewire.frontends.rest.wire_errors import rest_error
from tidewire.jobs.model import Batch, Job, JobKind, JobRequest, Operation, Outcome, ResultColumn
from tidewire.names import data_url
from tidewire.schema.field_types import FieldType, ValueKind
from tidewire.schema.values import render_date, render_datetime, render_time

_ROW_CODES: dict[type[PlatformError], str] = {
    ValueMalformed: "INVALID_TYPE_ON_FIELD_IN_RECORD",
    BodyMalformed: "INVALID_ROW",
}
_MISSING_ID = "Id not specified"
_INGEST_OPERATIONS = (
    Operation.INSERT,
    Operation.UPDATE,
    Operation.UPSERT,
    Operation.DELETE,
    Operation.HARD_DELETE,
)
_QUERY_OPERATIONS = (Operation.QUERY, Operation.QUERY_ALL)


def parse_word(body: Mapping[str, object], name: str, choices: Iterable[str], default: str) -> str:
    """Parse a word out of `choices`; absent means `default`. Raises JobInvalid."""
    value = body.get(name)
    if value is None or value == "":
        return default
    allowed = list(choices)
    if not isinstance(value, str) or value not in allowed:
        raise JobInvalid(
            f"{name} must be one of {', '.join(allowed)}, not {str(value)[:40]}", reason="InvalidJob"
        )
    return value


def parse_operation(body: Mapping[str, object], *, is_query: bool | None) -> Operation:
    """Parse the operation of a job; with `is_query` None, of any kind. Raises JobInvalid."""
    allowed = {True: _QUERY_OPERATIONS, False: _INGEST_OPERATIONS, None: tuple(Operation)}[is_query]
    given = body.get("operation")
    for operation in allowed:
        if isinstance(given, str) and operation.value.lower() == given.lower():
            return operation
    shown = ", ".join(allowed)
    raise JobInvalid(f"operation must be one of {shown}, not {str(given)[:40]}", reason="InvalidOperation")


def parse_text(body: Mapping[str, object], name: str) -> str:
    """Parse a text, empty if absent. Raises JobInvalid."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise JobInvalid(f"{name} must be a string", reason="InvalidJob")
    return value.strip()


def require_text(body: Mapping[str, object], name: str) -> str:
    """Parse a text that must not be empty. Raises JobInvalid."""
    text = parse_text(body, name)
    if not text:
        raise JobInvalid(f"{name} is required", reason="InvalidJob")
    return text


def render_job(job: Job, version: int) -> dict[str, object]:
    """Render a job of Bulk API 2.0 as the answer to its creation or change."""
    request = job.request
    body: dict[str, object] = {
        "id": job.job_id,
        "operation": request.operation.value,
        "object": request.entity,
        "createdById": job.user_id,
        "createdDate": render_datetime(job.created_ms, "+0000"),
        "systemModstamp": render_datetime(job.modified_ms, "+0000"),
        "state": job.state.value,
        "concurrencyMode": request.concurrency,
        "contentType": request.content_type,
        "apiVersion": float(request.version),
    }
    if request.external_id:
        body["externalIdFieldName"] = request.external_id
    if request.assignment_rule:
        body["assignmentRuleId"] = request.assignment_rule
    if request.kind is JobKind.INGEST:
        body["contentUrl"] = data_url(version, "jobs", "ingest", job.job_id, "batches").lstrip("/")
    if request.kind is not JobKind.CLASSIC:
        body["lineEnding"] = request.line_ending
        body["columnDelimiter"] = request.delimiter
    return body


def render_job_info(job: Job, batches: Sequence[Batch], version: int) -> dict[str, object]:
    """Render a job with its progress."""
    work_ms = sum(batch.work_ms for batch in batches)
    body = render_job(job, version) | {
        "jobType": job.request.kind.value,
        "numberRecordsProcessed": sum(batch.rows_done for batch in batches),
        "retries": 0,
        "totalProcessingTime": work_ms,
    }
    if job.request.kind is JobKind.QUERY:
        body["isPkChunkingSupported"] = False
    else:
        body["numberRecordsFailed"] = sum(batch.rows_failed for batch in batches)
        body["apiActiveProcessingTime"] = work_ms
        body["apexProcessingTime"] = 0
    if job.error:
        body["errorMessage"] = job.error
    return body


def ingest_request(body: Mapping[str, object], version: int, origin: str) -> JobRequest:
    """Parse the request of an ingest job of Bulk API 2.0. Raises JobInvalid."""
    entity = require_text(body, "object")
    return JobRequest(
        JobKind.INGEST,
        parse_operation(body, is_query=False),
        entity,
        version,
        origin,
        content_type=parse_word(body, "contentType", ("CSV",), "CSV"),
        external_id=parse_text(body, "externalIdFieldName"),
        assignment_rule=parse_text(body, "assignmentRuleId"),
    )


def query_request(body: Mapping[str, object], version: int, origin: str) -> JobRequest:
    """Parse the request of a query job of Bulk API 2.0. Raises JobInvalid."""
    query = require_text(body, "query")
    return JobRequest(
        JobKind.QUERY,
        parse_operation(body, is_query=True),
        "",
        version,
        origin,
        content_type=parse_word(body, "contentType", ("CSV",), "CSV"),
        query=query,
    )


def status_code(outcome: Outcome) -> str:
    """Return the status code of a row's error."""
    if outcome.message.startswith(_MISSING_ID):
        return "MISSING_ARGUMENT"
    error_class = outcome.error_class
    return _ROW_CODES.get(error_class) or rest_error(error_class(outcome.message), "PATCH").error_code


def row_message(outcome: Outcome) -> str:
    """Return the message of a row's error."""
    return rest_error(outcome.error_class(outcome.message), "PATCH").text or outcome.message


def render_row_error(outcome: Outcome) -> str:
    """Render a row's error as one cell: code, message and fields."""
    fields = f"{','.join(outcome.fields)} " if outcome.fields else ""
    return f"{status_code(outcome)}:{row_message(outcome)}:{fields}--"


def render_cell(column: ResultColumn, value: Value) -> str:
    """Render a stored value for CSV or XML; empty for null."""
    kind = FieldType[column.type]
    if kind is FieldType.CHECKBOX:
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    match kind.kind:
        case ValueKind.DATETIME:
            return render_datetime(int(value), "Z")
        case ValueKind.DATE:
            return render_date(int(value))
        case ValueKind.TIME:
            return render_time(int(value))
        case ValueKind.DOUBLE:
            return str(float(value))
        case _:
            return str(value)


def render_json_cell(column: ResultColumn, value: Value) -> Value:
    """Render a stored value for JSON of Bulk API 1.0, whose dates and times are numbers."""
    kind = FieldType[column.type]
    if kind is FieldType.CHECKBOX:
        return bool(value)
    if kind.kind is ValueKind.TIME and value is not None:
        return render_cell(column, value)
    if kind.kind is ValueKind.DOUBLE and value is not None:
        return float(value)
    return value
