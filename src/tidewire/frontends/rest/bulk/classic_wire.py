"""Bulk API 1.0 on the wire: jobs and batches in XML or JSON, results in the format of the job. Pure.

A request with a JSON or XML body, or that accepts only one of them, is answered in that format; any other in the
format of its job if that is JSON, else in XML. Results are always in the format of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from xml.sax.saxutils import escape

import orjson

from tidewire import errors
from tidewire.errors import BodyMalformed, BodyTooLarge, JobInvalid, PlatformError, VersionUnsupported
from tidewire.events import Value
from tidewire.frontends.rest.bulk.wire import (
    parse_operation,
    parse_text,
    parse_word,
    render_cell,
    render_json_cell,
    render_row_error,
    require_text,
    row_message,
    status_code,
)
from tidewire.frontends.rest.wire import (
    NO_STORE,
    parse_json_object,
    parse_options,
    render_json,
    try_parse_number,
)
from tidewire.frontends.rest.wire_errors import rest_error
from tidewire.ids import try_normalise_id
from tidewire.jobs.csv_rows import render_csv
from tidewire.jobs.model import (
    Batch,
    BatchState,
    Job,
    JobKind,
    JobRequest,
    JobState,
    Outcome,
    ResultColumn,
)
from tidewire.names import data_url, is_api_name, try_parse_api_version
from tidewire.schema.values import render_datetime
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.xml_trees import UNPRINTABLE, local_name, parse_tree

# Clients compare these with the whole header, so they have no charset.
XML_TYPE = "application/xml"
JSON_TYPE = "application/json"
NAMESPACE = "http://www.force.com/2009/06/asyncapi/dataload"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
_CONTENT_TYPES = ("CSV", "JSON", "XML")
_DEFAULT_CHUNK_ROWS = 100_000
_MAX_CHUNK_ROWS = 250_000
_MODES = {"0": "Parallel", "1": "Serial"}
_EXCEPTIONS: dict[type[PlatformError], str] = {
    errors.SessionInvalid: "InvalidSessionId",
    errors.AuthHeaderInvalid: "InvalidSessionId",
    errors.JobStateInvalid: "InvalidJobState",
    errors.BodyTooLarge: "ClientInputError",
    errors.VersionUnsupported: "InvalidVersion",
    errors.MethodNotAllowed: "MethodNotAllowed",
    errors.AccessDenied: "InvalidUser",
    errors.LimitExceeded: "ExceededQuota",
    errors.MediaTypeUnsupported: "InvalidContentType",
}


def parse_version(text: str) -> int:
    """Parse the number in `59.0`. Raises VersionUnsupported."""
    version = try_parse_api_version(text)
    if version is None:
        raise VersionUnsupported(f"Api version {text[:16]} is not supported", version=text[:16])
    return version


def wants_json(request: HttpRequest, job: Job | None = None) -> bool:
    """Whether to answer in JSON; a caller without a preference gets the format of the job."""
    accept = request.headers.get("accept", "").lower()
    if "json" in accept and "xml" not in accept:
        return True
    # The Content-Type of a GET is no preference: the Singer tap sends JSON's but reads XML.
    is_silent = request.media_type == "" or request.method == "GET"
    if job is not None and is_silent:
        return "xml" not in accept and job.request.content_type == "JSON"
    return request.media_type == "application/json"


def parse_info(request: HttpRequest) -> dict[str, object]:
    """Parse the fields of a job from XML or JSON. Raises JobInvalid or what parsing JSON raises."""
    if wants_json(request):
        return parse_json_object(request)
    try:
        root = parse_tree(request.body)
    except (BodyMalformed, BodyTooLarge) as error:
        raise JobInvalid(error.message, reason="InvalidXML") from error
    return {local_name(child): (child.text or "").strip() for child in root}


def parse_request(body: Mapping[str, object], version: int, origin: str) -> JobRequest:
    """Parse the request of a new job. Raises JobInvalid."""
    entity = require_text(body, "object")
    mode = str(body.get("concurrencyMode") or "Parallel")
    return JobRequest(
        JobKind.CLASSIC,
        parse_operation(body, is_query=None),
        entity,
        version,
        origin,
        content_type=parse_word(body, "contentType", _CONTENT_TYPES, "XML"),
        external_id=parse_text(body, "externalIdFieldName"),
        concurrency="Serial" if _MODES.get(mode, mode) == "Serial" else "Parallel",
        assignment_rule=parse_text(body, "assignmentRuleId"),
    )


def parse_chunking(http: HttpRequest, request: JobRequest) -> JobRequest:
    """Add the chunking of a query that Sforce-Enable-PKChunking asks for. Raises JobInvalid."""
    text = http.headers.get("sforce-enable-pkchunking", "").strip()
    if text.lower() in ("", "false") or not request.operation.is_query:
        return request
    options = {} if text.lower() == "true" else parse_options(text)
    size = options.get("chunksize", str(_DEFAULT_CHUNK_ROWS))
    rows = try_parse_number(size)
    if rows is None or not 1 <= rows <= _MAX_CHUNK_ROWS:
        raise JobInvalid(
            f"chunkSize must be a number from 1 to {_MAX_CHUNK_ROWS}, not {size[:40]}", reason="InvalidJob"
        )
    parent = options.get("parent", "")
    if parent and not is_api_name(parent):
        raise JobInvalid(f"parent must be the name of an object, not {parent[:40]}", reason="InvalidJob")
    start = options.get("startrow", "")
    if start and try_normalise_id(start) is None:
        raise JobInvalid(f"startRow must be an id, not {start[:40]}", reason="InvalidJob")
    return replace(request, chunk_rows=rows, chunk_start=start, chunk_parent=parent)


def job_info(job: Job, batches: Sequence[Batch]) -> dict[str, object]:
    """Return a job's fields with the progress of its batches."""
    states = [batch.state for batch in batches]
    work_ms = sum(batch.work_ms for batch in batches)
    # The original batch of a chunked query stays unprocessed without having failed.
    failed = states.count(BatchState.FAILED)
    if not job.request.chunk_rows or job.state is JobState.ABORTED:
        failed += states.count(BatchState.NOT_PROCESSED)
    return {
        "id": job.job_id,
        "operation": job.request.operation.value,
        "object": job.request.entity,
        "createdById": job.user_id,
        "createdDate": render_datetime(job.created_ms, "Z"),
        "systemModstamp": render_datetime(job.modified_ms, "Z"),
        "state": job.state.value,
        "externalIdFieldName": job.request.external_id or None,
        "concurrencyMode": job.request.concurrency,
        "contentType": job.request.content_type,
        "numberBatchesQueued": states.count(BatchState.QUEUED) + states.count(BatchState.UNSPLIT),
        "numberBatchesInProgress": states.count(BatchState.IN_PROGRESS),
        "numberBatchesCompleted": states.count(BatchState.COMPLETED),
        "numberBatchesFailed": failed,
        "numberBatchesTotal": len(states),
        "numberRecordsProcessed": sum(batch.rows_done for batch in batches),
        "numberRetries": 0,
        "apiVersion": float(job.request.version),
        "numberRecordsFailed": sum(batch.rows_failed for batch in batches),
        "totalProcessingTime": work_ms,
        "apiActiveProcessingTime": work_ms,
        "apexProcessingTime": 0,
    }


def batch_info(batch: Batch) -> dict[str, object]:
    """Return a batch's fields with its progress."""
    return {
        "id": batch.batch_id,
        "jobId": batch.job_id,
        "state": (BatchState.QUEUED if batch.state is BatchState.UNSPLIT else batch.state).value,
        "stateMessage": batch.error or None,
        "createdDate": render_datetime(batch.created_ms, "Z"),
        "systemModstamp": render_datetime(batch.modified_ms, "Z"),
        "numberRecordsProcessed": batch.rows_done,
        "numberRecordsFailed": batch.rows_failed,
        "totalProcessingTime": batch.work_ms,
        "apiActiveProcessingTime": batch.work_ms,
        "apexProcessingTime": 0,
    }


def render_info(
    request: HttpRequest, job: Job, status: int, name: str, info: Mapping[str, object]
) -> HttpResponse:
    """Render a job or batch in the caller's format."""
    if wants_json(request, job):
        return _json(request, status, info)
    return _xml(status, f'<{name} xmlns="{NAMESPACE}">{_elements(info)}</{name}>')


def render_batches(request: HttpRequest, job: Job, batches: Sequence[Batch]) -> HttpResponse:
    """Render the batches of a job in the caller's format."""
    infos = [batch_info(batch) for batch in batches]
    if wants_json(request, job):
        return _json(request, 200, {"batchInfo": infos})
    inner = "".join(f"<batchInfo>{_elements(info)}</batchInfo>" for info in infos)
    return _xml(200, f'<batchInfoList xmlns="{NAMESPACE}">{inner}</batchInfoList>')


def render_exception(request: HttpRequest, error: PlatformError) -> HttpResponse:
    """Render an error in the caller's format."""
    row = rest_error(error, request.method)
    status = row.status if row.status >= 500 else 400
    return render_failure(request, status, _exception_code(error), row.text or error.message)


def render_failure(request: HttpRequest, status: int, code: str, message: str) -> HttpResponse:
    """Render an error code and message in the caller's format."""
    body = {"exceptionCode": code, "exceptionMessage": message}
    if wants_json(request):
        return _json(request, status, body)
    return _xml(status, f'<error xmlns="{NAMESPACE}">{_elements(body)}</error>')


def _exception_code(error: PlatformError) -> str:
    match error:
        case JobInvalid():
            return str(error.details.get("reason", "InvalidJob"))
        case errors.ResourceUnknown():
            if "batch_id" in error.details:
                return "InvalidBatch"
            return "InvalidJob" if "job_id" in error.details else "InvalidUrl"
        case errors.RequestError():
            return _EXCEPTIONS.get(type(error), "ClientInputError")
        case _:
            return _EXCEPTIONS.get(type(error), "Unknown")


def render_result_list(content_type: str, result_ids: Sequence[str]) -> HttpResponse:
    """Render the list of a query's results."""
    if content_type == "JSON":
        return HttpResponse(200, orjson.dumps(list(result_ids)), JSON_TYPE, (NO_STORE,))
    inner = "".join(f"<result>{result_id}</result>" for result_id in result_ids)
    return _xml(200, f'<result-list xmlns="{NAMESPACE}">{inner}</result-list>')


def render_outcomes(content_type: str, outcomes: Iterable[Outcome]) -> bytes:
    """Render the outcomes of a batch's rows, in order."""
    if content_type == "CSV":
        rows = [
            [o.record_id, _flag(not o.code), _flag(o.is_new), render_row_error(o) if o.code else ""]
            for o in outcomes
        ]
        return render_csv([["Id", "Success", "Created", "Error"], *rows], "COMMA", "LF")
    if content_type == "JSON":
        return orjson.dumps([_json_outcome(outcome) for outcome in outcomes])
    inner = "".join(map(_xml_outcome, outcomes))
    return f'{_HEAD}<results xmlns="{NAMESPACE}">{inner}</results>'.encode()


def render_json_record(
    entity: str, version: int, columns: Sequence[ResultColumn], row: Sequence[Value]
) -> bytes:
    """Render one record of a query's result as JSON, its parents inside."""

    def attributes(type_: str, record_id: str) -> dict[str, object]:
        return {"attributes": {"type": type_, "url": data_url(version, "sobjects", type_, record_id)}}

    record = attributes(entity, str(row[0]))
    return orjson.dumps(_fill_record(record, columns, row, attributes, render_json_cell))


def render_xml_record(entity: str, columns: Sequence[ResultColumn], row: Sequence[Value]) -> str:
    """Render one record of a query's result as XML, its parents inside."""

    def render(column: ResultColumn, value: Value) -> str | None:
        return None if value is None else render_cell(column, value)

    record = _fill_record({"type": entity}, columns, row, lambda type_, _: {"type": type_}, render)
    return f'<records xsi:type="sObject">{_record_elements(record)}</records>'


def _fill_record(
    record: dict[str, object],
    columns: Sequence[ResultColumn],
    row: Sequence[Value],
    make_parent: Callable[[str, str], dict[str, object]],
    render: Callable[[ResultColumn, Value], object],
) -> dict[str, object]:
    """Add a row's values to a record, each inside the parents on its path; a missing parent is None."""
    parents = _parents_of(columns, row)
    for column, value in zip(columns, row[1:], strict=True):
        if column.is_parent:
            continue
        path, inner = column.path.split("."), record
        for depth, parent in enumerate(path[:-1], 1):
            key = parents.get(".".join(path[:depth]))
            if key is None:
                inner[parent] = None
                break
            found = inner.setdefault(parent, make_parent(*key))
            inner = found if isinstance(found, dict) else {}
        else:
            inner[path[-1]] = render(column, value)
    return record


QUERY_XML_HEAD = f'{_HEAD}<queryResult xmlns="{NAMESPACE}" {_XSI}>'.encode()
QUERY_XML_TAIL = b"</queryResult>"


def _record_elements(tree: Mapping[str, object]) -> str:
    out = []
    for name, value in tree.items():
        if isinstance(value, dict):
            out.append(f'<{name} xsi:type="sObject">{_record_elements(value)}</{name}>')
        elif value is None:
            out.append(f'<{name} xsi:nil="true"/>')
        else:
            out.append(f"<{name}>{_text(value)}</{name}>")
    return "".join(out)


def _parents_of(columns: Sequence[ResultColumn], row: Sequence[Value]) -> dict[str, tuple[str, str]]:
    """Return the types and ids of a row's parent records, by path."""
    keys = ((c.path, v) for c, v in zip(columns, row[1:], strict=True) if c.is_parent)
    return {
        path: (type_, record_id) for path, v in keys if v for type_, _, record_id in [str(v).partition("/")]
    }


def _json_outcome(outcome: Outcome) -> dict[str, object]:
    failures = []
    if outcome.code:
        failures.append(
            {
                "message": row_message(outcome),
                "fields": list(outcome.fields),
                "statusCode": status_code(outcome),
                "extendedErrorDetails": None,
            }
        )
    return {
        "success": not outcome.code,
        "created": outcome.is_new,
        "id": outcome.record_id or None,
        "errors": failures,
    }


def _xml_outcome(outcome: Outcome) -> str:
    if not outcome.code:
        shown = {"id": outcome.record_id, "success": True, "created": outcome.is_new}
        return f"<result>{_elements(shown)}</result>"
    fields = "".join(f"<fields>{_text(name)}</fields>" for name in outcome.fields)
    failure = _elements({"message": row_message(outcome), "statusCode": status_code(outcome)})
    shown = {"id": outcome.record_id or None, "success": False, "created": False}
    return f"<result><errors>{fields}{failure}</errors>{_elements(shown)}</result>"


def _elements(values: Mapping[str, object]) -> str:
    """Render one element for each value that is not None."""
    return "".join(f"<{name}>{_text(value)}</{name}>" for name, value in values.items() if value is not None)


def _text(value: object) -> str:
    return _flag(value) if isinstance(value, bool) else escape(UNPRINTABLE.sub("\ufffd", str(value)))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _json(request: HttpRequest, status: int, value: object) -> HttpResponse:
    return replace(render_json(request, status, value, (NO_STORE,)), content_type=JSON_TYPE)


def _xml(status: int, body: str) -> HttpResponse:
    return HttpResponse(status, f"{_HEAD}{body}".encode(), XML_TYPE, (NO_STORE,))
