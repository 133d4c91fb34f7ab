"""The resources under `jobs/ingest` and `jobs/query`: Bulk API 2.0."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from dataclasses import replace

from tidewire.access.principal import Principal
from tidewire.errors import (
    JobInvalid,
    JobStateInvalid,
    LocatorInvalid,
    MediaTypeUnsupported,
    ResourceUnknown,
)
from tidewire.frontends.rest.bulk.csv_results import (
    CSV_TYPE,
    iter_outcomes_csv,
    iter_query_csv,
    iter_unprocessed_csv,
)
from tidewire.frontends.rest.bulk.multipart import parse_form_job
from tidewire.frontends.rest.bulk.wire import (
    ingest_request,
    parse_word,
    query_request,
    render_job,
    render_job_info,
)
from tidewire.frontends.rest.calls import ApiCall, Route
from tidewire.frontends.rest.wire import (
    NO_STORE,
    method_not_allowed,
    parse_default_namespace,
    parse_json_object,
    render_json,
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

_FIRST_VERSION = {"ingest": 41, "query": 47}
_LIST_PAGE = 1_000
_DEFAULT_RECORDS = 50_000
_MAX_RECORDS = 1_000_000


class JobsApi:
    """Answers requests for jobs. Holds no state."""

    def __init__(self, gate: Gate, jobs: BulkJobs) -> None:
        self._usage = gate.usage
        self._jobs = jobs

    async def answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """The answer to one request; raises PlatformError. `segments` follow `jobs`."""
        if not request.is_head_only:
            self._usage.count()
        if not segments or version < _FIRST_VERSION.get(segments[0], 100):
            raise ResourceUnknown("The requested resource does not exist")
        for route in ROUTES:
            arguments = route.try_match(segments)
            if arguments is None:
                continue
            handler = route.methods.get(request.method)
            if handler is None:
                raise method_not_allowed(request.method, route.methods)
            try:
                return await handler(self, ApiCall(request, version, principal, arguments))
            except JobInvalid as error:
                code = str(error.details.get("reason", "InvalidJob")).upper()
                return render_protocol_error(request, 400, code, error.message)
        raise ResourceUnknown("The requested resource does not exist")

    async def create_ingest(self, call: ApiCall) -> HttpResponse:
        """Make a job that writes, perhaps with its data."""
        origin = call.context.origin
        if call.request.media_type != "multipart/form-data":
            body = parse_json_object(call.request)
            asked = _formatted(ingest_request(body, call.version, origin), body, call.request)
            job = await self._jobs.create(call.principal, asked)
            return self._json(call, 200, render_job(job, call.version))
        body, data = parse_form_job(call.request)
        asked = _formatted(ingest_request(body, call.version, origin), body, call.request)
        job = await self._jobs.create(call.principal, asked)
        await self._jobs.upload(job, iter((data,)))
        job = await self._jobs.close(job)
        return self._json(call, 200, render_job(job, call.version))

    async def create_query(self, call: ApiCall) -> HttpResponse:
        """Make a job that reads."""
        body = parse_json_object(call.request)
        asked = _formatted(query_request(body, call.version, call.context.origin), body, call.request)
        job = await self._jobs.create(call.principal, asked)
        return self._json(call, 200, render_job(job, call.version))

    async def list_ingest(self, call: ApiCall) -> HttpResponse:
        """Jobs that write, those of the older API among them."""
        return await self._list(call, "ingest", (JobKind.INGEST, JobKind.CLASSIC))

    async def list_query(self, call: ApiCall) -> HttpResponse:
        """Jobs that read."""
        return await self._list(call, "query", (JobKind.QUERY,))

    async def _list(self, call: ApiCall, resource: str, kinds: tuple[JobKind, ...]) -> HttpResponse:
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

    async def read_ingest(self, call: ApiCall) -> HttpResponse:
        """One job that writes."""
        return await self._read(call, JobKind.INGEST)

    async def read_query(self, call: ApiCall) -> HttpResponse:
        """One job that reads."""
        return await self._read(call, JobKind.QUERY)

    async def _read(self, call: ApiCall, kind: JobKind) -> HttpResponse:
        job = await self._jobs.find(call.principal, call.arguments[0], kind)
        batches = await self._jobs.batches(job)
        return self._json(call, 200, render_job_info(job, batches, call.version))

    async def change_ingest(self, call: ApiCall) -> HttpResponse:
        """Close or abort a job that writes."""
        job = await self._jobs.find(call.principal, call.arguments[0], JobKind.INGEST)
        body = parse_json_object(call.request)
        state = parse_word(body, "state", (JobState.UPLOAD_COMPLETE, JobState.ABORTED), "")
        if not state:
            raise JobInvalid("state is required", reason="InvalidJob")
        act = self._jobs.close if state == JobState.UPLOAD_COMPLETE else self._jobs.abort
        return self._json(call, 200, render_job(await act(job), call.version))

    async def change_query(self, call: ApiCall) -> HttpResponse:
        """Abort a job that reads."""
        job = await self._jobs.find(call.principal, call.arguments[0], JobKind.QUERY)
        if not parse_word(parse_json_object(call.request), "state", (JobState.ABORTED,), ""):
            raise JobInvalid("state is required", reason="InvalidJob")
        return self._json(call, 200, render_job(await self._jobs.abort(job), call.version))

    async def delete_ingest(self, call: ApiCall) -> HttpResponse:
        """Remove a job that writes."""
        return await self._delete(call, JobKind.INGEST)

    async def delete_query(self, call: ApiCall) -> HttpResponse:
        """Remove a job that reads."""
        return await self._delete(call, JobKind.QUERY)

    async def _delete(self, call: ApiCall, kind: JobKind) -> HttpResponse:
        await self._jobs.delete(await self._jobs.find(call.principal, call.arguments[0], kind))
        return HttpResponse(204, b"", "", (self._usage.header(), NO_STORE))

    async def upload(self, call: ApiCall) -> HttpResponse:
        """Take a job's data."""
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

    async def successful_results(self, call: ApiCall) -> HttpResponse:
        """The rows that were written."""
        job, batch = await self._find_results(call)
        return self._csv(iter_outcomes_csv(self._jobs, job, batch, are_failed=False))

    async def failed_results(self, call: ApiCall) -> HttpResponse:
        """The rows that were refused, and why."""
        job, batch = await self._find_results(call)
        return self._csv(iter_outcomes_csv(self._jobs, job, batch, are_failed=True))

    async def unprocessed_records(self, call: ApiCall) -> HttpResponse:
        """The rows that were not tried."""
        job, batch = await self._find_results(call)
        return self._csv(iter_unprocessed_csv(self._jobs, job, batch))

    async def _find_results(self, call: ApiCall) -> tuple[Job, Batch | None]:
        job = await self._jobs.find(call.principal, call.arguments[0], JobKind.INGEST)
        await self._jobs.check_data(call.principal, job)
        batches = await self._jobs.batches(job)
        return job, batches[0] if batches else None

    async def query_results(self, call: ApiCall) -> HttpResponse:
        """A page of what a query found."""
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


def _formatted(asked: JobRequest, body: dict[str, object], request: HttpRequest) -> JobRequest:
    return replace(
        asked,
        namespace=parse_default_namespace(request),
        delimiter=parse_word(body, "columnDelimiter", DELIMITERS, "COMMA"),
        line_ending=parse_word(body, "lineEnding", LINE_ENDINGS, "LF"),
    )


def _render_locator(place: int) -> str:
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def _parse_locator(text: str) -> int:
    """The place that a locator stands for, 0 for none."""
    if not text:
        return 0
    try:
        place = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise LocatorInvalid("invalid query locator") from error
    if not place.isdecimal() or len(place) > 12:
        raise LocatorInvalid("invalid query locator")
    return int(place)


def _parse_count(text: str) -> int:
    if not text:
        return _DEFAULT_RECORDS
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) == 0:
        raise JobInvalid("maxRecords must be a positive number", reason="InvalidJob")
    return min(int(text), _MAX_RECORDS)


ROUTES: tuple[Route[JobsApi], ...] = (
    Route(("ingest",), {"GET": JobsApi.list_ingest, "POST": JobsApi.create_ingest}),
    Route(
        ("ingest", "*"),
        {"GET": JobsApi.read_ingest, "PATCH": JobsApi.change_ingest, "DELETE": JobsApi.delete_ingest},
    ),
    Route(("ingest", "*", "batches"), {"PUT": JobsApi.upload}),
    Route(("ingest", "*", "successfulResults"), {"GET": JobsApi.successful_results}),
    Route(("ingest", "*", "failedResults"), {"GET": JobsApi.failed_results}),
    Route(("ingest", "*", "unprocessedrecords"), {"GET": JobsApi.unprocessed_records}),
    Route(("ingest", "*", "unprocessedRecords"), {"GET": JobsApi.unprocessed_records}),
    Route(("query",), {"GET": JobsApi.list_query, "POST": JobsApi.create_query}),
    Route(
        ("query", "*"),
        {"GET": JobsApi.read_query, "PATCH": JobsApi.change_query, "DELETE": JobsApi.delete_query},
    ),
    Route(("query", "*", "results"), {"GET": JobsApi.query_results}),
)
