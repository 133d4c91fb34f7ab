"""Bulk API 2.0: the resources under `jobs/ingest` and `jobs/query`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from email.message import Message
from email.parser import BytesParser
from functools import partial

from tidewire.access.principal import Principal
from tidewire.errors import (
    BodyMalformed,
    BodyTooLarge,
    JobInvalid,
    JobStateInvalid,
    LocatorInvalid,
    MediaTypeUnsupported,
)
from tidewire.frontends.rest.bulk.csv_results import (
    CSV_TYPE,
    iter_outcomes_csv,
    iter_query_csv,
    iter_unprocessed_csv,
)
from tidewire.frontends.rest.bulk.wire import (
    ingest_request,
    parse_word,
    query_request,
    render_job,
    render_job_info,
)
from tidewire.frontends.rest.calls import ApiCall, Route, RouteTable
from tidewire.frontends.rest.wire import (
    NO_STORE,
    parse_default_namespace,
    parse_json,
    parse_json_object,
    render_json,
    try_parse_number,
)
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.gate import Gate
from tidewire.jobs.model import (
    DELIMITERS,
    LINE_ENDINGS,
    MAX_UPLOAD_BYTES,
    Batch,
    Job,
    JobKind,
    JobRequest,
    JobState,
)
from tidewire.jobs.service import BulkJobs
from tidewire.names import data_url
from tidewire.transport.http import HttpRequest, HttpResponse

_INGEST_SINCE = 41
_QUERY_SINCE = 47
_LIST_PAGE = 1_000
_DEFAULT_RECORDS = 50_000
_MAX_RECORDS = 1_000_000
_MAX_FORM_BYTES = 1024 * 1024


class JobsApi:
    """Answers requests for jobs. Stateless."""

    def __init__(self, gate: Gate, jobs: BulkJobs) -> None:
        self._usage = gate.usage
        self._jobs = jobs

    async def answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """Answer one request; `segments` follow `jobs`. Raises PlatformError."""
        if not request.is_head_only:
            self._usage.count()
        _, handler, call = _TABLE.find(request, version, segments, principal)
        try:
            return await handler(self, call)
        except JobInvalid as error:
            code = str(error.details.get("reason", "InvalidJob")).upper()
            return render_protocol_error(request, 400, code, error.message)

    async def create_ingest(self, call: ApiCall) -> HttpResponse:
        """Create an ingest job; a multipart form also carries its data."""
        data: bytes | None = None
        if call.request.media_type == "multipart/form-data":
            body, data = _parse_form_job(call.request)
        else:
            body = parse_json_object(call.request)
        request = ingest_request(body, call.version, call.context.origin)
        job = await self._jobs.create(call.principal, _with_format(request, body, call.request))
        if data is not None:
            await self._jobs.upload(job, iter((data,)))
            job = await self._jobs.close(job)
        return self._json(call, 200, render_job(job, call.version))

    async def create_query(self, call: ApiCall) -> HttpResponse:
        """Create a query job."""
        body = parse_json_object(call.request)
        request = query_request(body, call.version, call.context.origin)
        job = await self._jobs.create(call.principal, _with_format(request, body, call.request))
        return self._json(call, 200, render_job(job, call.version))

    async def list_jobs(self, call: ApiCall, resource: str, kinds: tuple[JobKind, ...]) -> HttpResponse:
        """List the jobs of these kinds."""
        query = call.request.query
        wanted = query.get("jobType")
        if wanted is not None:
            kinds = tuple(kind for kind in kinds if kind.value == wanted)
        found: list[tuple[Job, list[Batch]]] = []
        if kinds:
            after = _parse_locator(query.get("queryLocator", ""))
            found = await self._jobs.list_jobs(call.principal, kinds, after, _LIST_PAGE + 1)
        shown = found[:_LIST_PAGE]
        is_last = len(found) <= _LIST_PAGE
        locator = "" if is_last else _render_locator(shown[-1][0].number)
        url = None if is_last else f"{data_url(call.version, 'jobs', resource)}?queryLocator={locator}"
        records = [render_job_info(job, batches, call.version) for job, batches in shown]
        return self._json(call, 200, {"done": is_last, "records": records, "nextRecordsUrl": url})

    async def read_job(self, call: ApiCall, kind: JobKind) -> HttpResponse:
        """Return one job."""
        job = await self._jobs.find(call.principal, call.arguments[0], kind)
        batches = await self._jobs.batches(job)
        return self._json(call, 200, render_job_info(job, batches, call.version))

    async def change_job(self, call: ApiCall, kind: JobKind) -> HttpResponse:
        """Close an ingest job, or abort a job."""
        job = await self._jobs.find(call.principal, call.arguments[0], kind)
        body = parse_json_object(call.request)
        closing = (JobState.UPLOAD_COMPLETE,) if kind is JobKind.INGEST else ()
        state = parse_word(body, "state", (*closing, JobState.ABORTED), "")
        if not state:
            raise JobInvalid("state is required", reason="InvalidJob")
        act = self._jobs.close if state == JobState.UPLOAD_COMPLETE else self._jobs.abort
        return self._json(call, 200, render_job(await act(job), call.version))

    async def delete_job(self, call: ApiCall, kind: JobKind) -> HttpResponse:
        """Delete a job."""
        await self._jobs.delete(await self._jobs.find(call.principal, call.arguments[0], kind))
        return HttpResponse(204, b"", "", (self._usage.header(), NO_STORE))

    async def upload(self, call: ApiCall) -> HttpResponse:
        """Store a job's data."""
        request = call.request
        if request.media_type not in ("", "text/csv"):
            raise MediaTypeUnsupported(
                f"Content type {request.media_type[:80]} is not supported: send text/csv"
            )
        job = await self._jobs.find(call.principal, call.arguments[0], JobKind.INGEST)
        if request.is_head_only:
            return HttpResponse(100)
        if request.upload is None:
            await self._jobs.upload(job, iter((request.body,)))
        else:
            await self._jobs.upload(job, request.upload.iter_blocks(MAX_UPLOAD_BYTES))
        return HttpResponse(201, b"", "", (self._usage.header(), NO_STORE))

    async def read_outcomes(self, call: ApiCall, *, are_failed: bool) -> HttpResponse:
        """Return the rows that were written, or those that failed with their errors."""
        job, batch = await self._find_results(call)
        return self._csv(iter_outcomes_csv(self._jobs, job, batch, are_failed=are_failed))

    async def unprocessed_records(self, call: ApiCall) -> HttpResponse:
        """Return the rows that were not processed."""
        job, batch = await self._find_results(call)
        return self._csv(iter_unprocessed_csv(self._jobs, job, batch))

    async def _find_results(self, call: ApiCall) -> tuple[Job, Batch | None]:
        job = await self._jobs.find(call.principal, call.arguments[0], JobKind.INGEST)
        await self._jobs.check_data(call.principal, job)
        batches = await self._jobs.batches(job)
        return job, batches[0] if batches else None

    async def query_results(self, call: ApiCall) -> HttpResponse:
        """Return a page of a query's result."""
        job = await self._jobs.find(call.principal, call.arguments[0], JobKind.QUERY)
        await self._jobs.check_data(call.principal, job)
        if job.state is not JobState.JOB_COMPLETE:
            raise JobStateInvalid(f"The job is {job.state}: it has no results", job_id=job.job_id)
        (batch,) = await self._jobs.batches(job)
        first = _parse_locator(call.request.query.get("locator", ""))
        if first > batch.rows_done:
            raise LocatorInvalid("invalid query locator")
        count = min(_parse_count(call.request.query.get("maxRecords", "")), batch.rows_done - first)
        end = first + count
        locator = _render_locator(end) if end < batch.rows_done else "null"
        headers = (("Sforce-Locator", locator), ("Sforce-NumberOfRecords", str(count)))
        return self._csv(iter_query_csv(self._jobs, job, batch, first, count), *headers)

    def _json(self, call: ApiCall, status: int, value: object) -> HttpResponse:
        return render_json(call.request, status, value, (self._usage.header(), NO_STORE))

    def _csv(self, pieces: AsyncIterator[bytes], *headers: tuple[str, str]) -> HttpResponse:
        return HttpResponse(200, b"", CSV_TYPE, (*headers, self._usage.header(), NO_STORE), pieces)


def _with_format(request: JobRequest, body: dict[str, object], http: HttpRequest) -> JobRequest:
    return replace(
        request,
        namespace=parse_default_namespace(http),
        delimiter=parse_word(body, "columnDelimiter", DELIMITERS, "COMMA"),
        line_ending=parse_word(body, "lineEnding", LINE_ENDINGS, "LF"),
    )


def _render_locator(position: int) -> str:
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


def _parse_locator(text: str) -> int:
    """Return the position that a locator encodes, 0 for an empty one."""
    if not text:
        return 0
    try:
        position = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise LocatorInvalid("invalid query locator") from error
    if not position.isdecimal() or len(position) > 12:
        raise LocatorInvalid("invalid query locator")
    return int(position)


def _parse_count(text: str) -> int:
    if not text:
        return _DEFAULT_RECORDS
    count = try_parse_number(text)
    if not count:
        raise JobInvalid("maxRecords must be a positive number", reason="InvalidJob")
    return min(count, _MAX_RECORDS)


def _parse_form_job(request: HttpRequest) -> tuple[dict[str, object], bytes]:
    """Parse a form with the parts `job` and `content`. Raises BodyTooLarge or BodyMalformed."""
    if len(request.body) > _MAX_FORM_BYTES:
        raise BodyTooLarge(
            f"A job with its data in one request may have at most {_MAX_FORM_BYTES} bytes",
            limit_bytes=_MAX_FORM_BYTES,
        )
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser().parsebytes(head + request.body)
    parts = message.get_payload()
    if not isinstance(parts, list):
        raise BodyMalformed("The request body is not multipart/form-data")
    found: dict[str, bytes] = {}
    for part in parts:
        if isinstance(part, Message):
            name = part.get_param("name", header="content-disposition")
            data = part.get_payload(decode=True)
            if isinstance(name, str) and isinstance(data, bytes):
                found[name] = data
    if "job" not in found or "content" not in found:
        raise BodyMalformed("The form must have the parts job and content")
    job = parse_json(found["job"])
    if not isinstance(job, dict):
        raise BodyMalformed("The part job must be a JSON object")
    return job, found["content"]


def _job_routes(kind: JobKind, *listed: JobKind, since: int) -> Iterator[Route[JobsApi]]:
    """Yield the routes that ingest and query jobs both have; lists also include the jobs of `listed`."""
    name = "ingest" if kind is JobKind.INGEST else "query"
    create = JobsApi.create_ingest if kind is JobKind.INGEST else JobsApi.create_query
    show_list = partial(JobsApi.list_jobs, resource=name, kinds=(kind, *listed))
    yield Route((name,), {"GET": show_list, "POST": create}, since)
    handlers = {"GET": JobsApi.read_job, "PATCH": JobsApi.change_job, "DELETE": JobsApi.delete_job}
    yield Route((name, "*"), {word: partial(handler, kind=kind) for word, handler in handlers.items()}, since)


ROUTES: tuple[Route[JobsApi], ...] = (
    *_job_routes(JobKind.INGEST, JobKind.CLASSIC, since=_INGEST_SINCE),
    Route(("ingest", "*", "batches"), {"PUT": JobsApi.upload}, _INGEST_SINCE),
    *(
        Route(
            ("ingest", "*", name), {"GET": partial(JobsApi.read_outcomes, are_failed=failed)}, _INGEST_SINCE
        )
        for name, failed in (("successfulResults", False), ("failedResults", True))
    ),
    Route(("ingest", "*", "unprocessedrecords"), {"GET": JobsApi.unprocessed_records}, _INGEST_SINCE),
    Route(("ingest", "*", "unprocessedRecords"), {"GET": JobsApi.unprocessed_records}, _INGEST_SINCE),
    *_job_routes(JobKind.QUERY, since=_QUERY_SINCE),
    Route(("query", "*", "results"), {"GET": JobsApi.query_results}, _QUERY_SINCE),
)
_TABLE = RouteTable(ROUTES)
