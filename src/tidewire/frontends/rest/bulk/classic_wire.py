"""The older Bulk API's own forms: jobs and batches in XML or JSON, results in the format of the job. Pure.

A request that has a body of JSON or XML, or that accepts only one of them, is answered in it; every other
one in JSON if it is about a job of JSON, else in XML. What became of a batch is told in the format of its job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    row_message,
    status_code,
)
from tidewire.frontends.rest.wire import (
    MAX_VERSION,
    MIN_VERSION,
    NO_STORE,
    parse_json_object,
    parse_options,
    render_json,
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
from tidewire.names import data_url, is_api_name
from tidewire.schema.values import render_datetime
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.xml_trees import UNPRINTABLE, local_name, parse_tree

# Clients compare these with the whole header, so there is no charset.
XML_TYPE = "application/xml"
JSON_TYPE = "application/json"
NAMESPACE = "http://www.force.com/2009/06/asyncapi/dataload"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
_VERSION = re.compile(r"([1-9][0-9])\.0")
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
    """The number in `59.0`. Raises VersionUnsupported."""
    found = _VERSION.fullmatch(text)
    if found is None or not MIN_VERSION <= int(found[1]) <= MAX_VERSION:
        raise VersionUnsupported(f"Api version {text[:16]} is not supported", version=text[:16])
    return int(found[1])


def wants_json(request: HttpRequest, job: Job | None = None) -> bool:
    """Whether the caller speaks JSON. One that does not say speaks the format of the job it asks about."""
    accept = request.headers.get("accept", "").lower()
    if "json" in accept and "xml" not in accept:
        return True
    # The type of a body that is not there says nothing: singer's tap sends JSON's, and reads XML.
    is_silent = request.media_type == "" or request.method == "GET"
    if job is not None and is_silent:
        return "xml" not in accept and job.request.content_type == "JSON"
    return request.media_type == "application/json"


def parse_info(request: HttpRequest) -> dict[str, object]:
    """The fields of a job in the request's body. Raises JobInvalid or what reading JSON raises."""
    if wants_json(request):
        return parse_json_object(request)
    try:
        root = parse_tree(request.body)
    except (BodyMalformed, BodyTooLarge) as error:
        raise JobInvalid(error.message, reason="InvalidXML") from error
    return {local_name(child): (child.text or "").strip() for child in root}


def parse_request(body: Mapping[str, object], version: int, origin: str) -> JobRequest:
    """What a body asks for that makes a job. Raises JobInvalid."""
    entity = parse_text(body, "object")
    if not entity:
        raise JobInvalid("object is required", reason="InvalidJob")
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


def parse_chunking(request: HttpRequest, asked: JobRequest) -> JobRequest:
    """What is asked for, with how Sforce-Enable-PKChunking says that a query is to be cut. Raises JobInvalid."""
    text = request.headers.get("sforce-enable-pkchunking", "").strip()
    if text.lower() in ("", "false") or not asked.operation.is_query:
        return asked
    options = {} if text.lower() == "true" else parse_options(text)
    size = options.get("chunksize", str(_DEFAULT_CHUNK_ROWS))
    is_number = size.isascii() and size.isdecimal() and len(size) <= 9
    if not is_number or not 1 <= int(size) <= _MAX_CHUNK_ROWS:
        raise JobInvalid(
            f"chunkSize must be a number from 1 to {_MAX_CHUNK_ROWS}, not {size[:40]}", reason="InvalidJob"
        )
    parent = options.get("parent", "")
    if parent and not is_api_name(parent):
        raise JobInvalid(f"parent must be the name of an object, not {parent[:40]}", reason="InvalidJob")
    start = options.get("startrow", "")
    if start and try_normalise_id(start) is None:
        raise JobInvalid(f"startRow must be an id, not {start[:40]}", reason="InvalidJob")
    return replace(asked, chunk_rows=int(size), chunk_start=start, chunk_parent=parent)


def job_info(job: Job, batches: Sequence[Batch]) -> dict[str, object]:
    """A job with how far its batches are."""
    states = [batch.state for batch in batches]
    work_ms = sum(batch.work_ms for batch in batches)
    # The batch that a query was chunked from has not failed, though it is never processed.
    failed = states.count(BatchState.FAILED)
    if not job.request.chunk_rows or job.state is JobState.ABORTED:
        failed += states.count(BatchState.NOT_PROCESSED)
    return {
        "id": job.job_id,
        "operation": job.request.operation.value,
        "object": job.request.entity,
        "createdById": job.user_id,
        "createdDate": _moment(job.created_ms),
        "systemModstamp": _moment(job.modified_ms),
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
    """A batch with how far it is."""
    return {
        "id": batch.batch_id,
        "jobId": batch.job_id,
        "state": (BatchState.QUEUED if batch.state is BatchState.UNSPLIT else batch.state).value,
        "stateMessage": batch.error or None,
        "createdDate": _moment(batch.created_ms),
        "systemModstamp": _moment(batch.modified_ms),
        "numberRecordsProcessed": batch.rows_done,
        "numberRecordsFailed": batch.rows_failed,
        "totalProcessingTime": batch.work_ms,
        "apiActiveProcessingTime": batch.work_ms,
        "apexProcessingTime": 0,
    }


def render_info(
    request: HttpRequest, job: Job, status: int, name: str, info: Mapping[str, object]
) -> HttpResponse:
    """A job or one of its batches, in the caller's format."""
    if wants_json(request, job):
        return _json(request, status, info)
    return _xml(status, f'<{name} xmlns="{NAMESPACE}">{_elements(info)}</{name}>')


def render_batches(request: HttpRequest, job: Job, batches: Sequence[Batch]) -> HttpResponse:
    """The batches of a job."""
    infos = [batch_info(batch) for batch in batches]
    if wants_json(request, job):
        return _json(request, 200, {"batchInfo": infos})
    inner = "".join(f"<batchInfo>{_elements(info)}</batchInfo>" for info in infos)
    return _xml(200, f'<batchInfoList xmlns="{NAMESPACE}">{inner}</batchInfoList>')


def render_exception(request: HttpRequest, error: PlatformError) -> HttpResponse:
    """A failed request, in the caller's format."""
    code = _exception_code(error)
    row = rest_error(error, request.method)
    message = row.text or error.message
    return render_failure(request, row.status if row.status >= 500 else 400, code, message)


def render_failure(request: HttpRequest, status: int, code: str, message: str) -> HttpResponse:
    """What went wrong, in the caller's format."""
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
    """Where the results of a query are."""
    if content_type == "JSON":
        return HttpResponse(200, orjson.dumps(list(result_ids)), JSON_TYPE, (NO_STORE,))
    inner = "".join(f"<result>{result_id}</result>" for result_id in result_ids)
    return _xml(200, f'<result-list xmlns="{NAMESPACE}">{inner}</result-list>')


def render_outcomes(content_type: str, outcomes: Iterable[Outcome]) -> bytes:
    """What became of the rows of a batch, in their order."""
    if content_type == "CSV":
        rows = [[o.record_id, _flag(not o.code), _flag(o.is_new), _error(o)] for o in outcomes]
        return render_csv([["Id", "Success", "Created", "Error"], *rows], "COMMA", "LF")
    if content_type == "JSON":
        return orjson.dumps([_json_outcome(outcome) for outcome in outcomes])
    inner = "".join(map(_xml_outcome, outcomes))
    return f'{_HEAD}<results xmlns="{NAMESPACE}">{inner}</results>'.encode()


def render_json_records(
    entity: str, version: int, columns: Sequence[ResultColumn], row: Sequence[Value]
) -> bytes:
    """One record of a query's result as JSON, its parents inside."""
    record: dict[str, object] = {
        "attributes": {"type": entity, "url": data_url(version, "sobjects", entity, str(row[0]))}
    }
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
            url = data_url(version, "sobjects", *key)
            found = inner.setdefault(parent, {"attributes": {"type": key[0], "url": url}})
            inner = found if isinstance(found, dict) else {}
        else:
            inner[path[-1]] = render_json_cell(column, value)
    return orjson.dumps(record)


def render_xml_record(entity: str, columns: Sequence[ResultColumn], row: Sequence[Value]) -> str:
    """One record of a query's result as XML, its parents inside."""
    tree: dict[str, object] = {"type": entity}
    parents = _parents_of(columns, row)
    for column, value in zip(columns, row[1:], strict=True):
        if column.is_parent:
            continue
        path, inner = column.path.split("."), tree
        for depth, parent in enumerate(path[:-1], 1):
            key = parents.get(".".join(path[:depth]))
            if key is None:
                inner[parent] = None
                break
            found = inner.setdefault(parent, {"type": key[0]})
            inner = found if isinstance(found, dict) else {}
        else:
            inner[path[-1]] = None if value is None else render_cell(column, value)
    return f'<records xsi:type="sObject">{_record_elements(tree)}</records>'


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
    """The types and ids of the records that a row's relationships lead to, by path."""
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


def _error(outcome: Outcome) -> str:
    return render_row_error(outcome) if outcome.code else ""


def _elements(values: Mapping[str, object]) -> str:
    """One element for each value that is there."""
    return "".join(f"<{name}>{_text(value)}</{name}>" for name, value in values.items() if value is not None)


def _text(value: object) -> str:
    return _flag(value) if isinstance(value, bool) else escape(UNPRINTABLE.sub("\ufffd", str(value)))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _moment(epoch_ms: int) -> str:
    return render_datetime(epoch_ms, "Z")


def _json(request: HttpRequest, status: int, value: object) -> HttpResponse:
    return replace(render_json(request, status, value, (NO_STORE,)), content_type=JSON_TYPE)


def _xml(status: int, body: str) -> HttpResponse:
    return HttpResponse(status, f"{_HEAD}{body}".encode(), XML_TYPE, (NO_STORE,))
