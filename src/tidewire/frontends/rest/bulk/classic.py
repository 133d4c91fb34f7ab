"""Bulk API 1.0, whose jobs the platform calls Classic: the resources under `/services/async/N.0/job`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from tidewire.access.logins import Logins
from tidewire.access.principal import Principal
from tidewire.errors import (
    AuthHeaderInvalid,
    InternalError,
    JobInvalid,
    PlatformError,
    ResourceUnknown,
)
from tidewire.frontends.rest.bulk.classic_wire import (
    JSON_TYPE,
    QUERY_XML_HEAD,
    QUERY_XML_TAIL,
    XML_TYPE,
    batch_info,
    job_info,
    parse_chunking,
    parse_info,
    parse_request,
    parse_version,
    render_batches,
    render_exception,
    render_info,
    render_json_record,
    render_outcomes,
    render_result_list,
    render_xml_record,
)
from tidewire.frontends.rest.bulk.csv_results import CSV_TYPE, iter_query_csv
from tidewire.frontends.rest.bulk.wire import parse_word
from tidewire.frontends.rest.calls import ApiCall, Route, RouteTable
from tidewire.frontends.rest.wire import NO_STORE, parse_default_namespace, parse_token
from tidewire.gate.gate import Gate
from tidewire.ids import try_normalise_id
from tidewire.jobs.model import Batch, BatchState, Job, JobKind, JobState
from tidewire.jobs.service import BulkJobs
from tidewire.transport.http import HttpRequest, HttpResponse

_TYPES = {"CSV": "text/csv", "JSON": JSON_TYPE, "XML": XML_TYPE}
_RESULT_PREFIX = "752"
_ZIPPED = ("zip/", "application/zip")


def parse_session(request: HttpRequest) -> str:
    """Return the session token from X-SFDC-Session or Authorization. Raises AuthHeaderInvalid."""
    token = request.headers.get("x-sfdc-session", "").strip()
    if token:
        return token
    try:
        return parse_token(request)
    except AuthHeaderInvalid as error:
        raise AuthHeaderInvalid("Unable to find session id") from error


class ClassicApi:
    """Answers requests of Bulk API 1.0. Stateless."""

    def __init__(self, gate: Gate, logins: Logins, jobs: BulkJobs) -> None:
        self._gate = gate
        self._usage = gate.usage
        self._logins = logins
        self._jobs = jobs

    async def handle(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse:
        """Answer one request; `segments` follow `async`. Raises only InternalError."""
        try:
            return await self._answer(request, segments)
        except InternalError:
            raise
        except PlatformError as error:
            return render_exception(request, error)

    async def _answer(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse:
        if len(segments) < 2:
            raise ResourceUnknown("The requested resource does not exist")
        version = parse_version(segments[0])
        principal = await self._logins.sessions.authenticate(parse_session(request))
        self._usage.count()
        is_on = self._gate.records.types.settings.api_enabled
        if not is_on or not (await self._gate.grants(principal)).has("ApiEnabled"):
            raise JobInvalid("Async API not enabled", reason="FeatureNotEnabled")
        _, handler, call = _TABLE.find(request, version, segments[1:], principal)
        return await handler(self, call)

    async def create_job(self, call: ApiCall) -> HttpResponse:
        """Create a job."""
        request = parse_request(parse_info(call.request), call.version, call.context.origin)
        request = replace(request, namespace=parse_default_namespace(call.request))
        job = await self._jobs.create(call.principal, parse_chunking(call.request, request))
        return render_info(call.request, job, 201, "jobInfo", job_info(job, ()))

    async def read_job(self, call: ApiCall) -> HttpResponse:
        """Return one job."""
        job = await self._find(call.principal, call.arguments[0])
        return render_info(call.request, job, 200, "jobInfo", job_info(job, await self._jobs.batches(job)))

    async def change_job(self, call: ApiCall) -> HttpResponse:
        """Close or abort a job."""
        job = await self._find(call.principal, call.arguments[0])
        state = parse_word(parse_info(call.request), "state", (JobState.CLOSED, JobState.ABORTED), "")
        if not state:
            raise JobInvalid("state is required", reason="InvalidJob")
        job = await (self._jobs.close(job) if state == JobState.CLOSED else self._jobs.abort(job))
        return render_info(call.request, job, 200, "jobInfo", job_info(job, await self._jobs.batches(job)))

    async def add_batch(self, call: ApiCall) -> HttpResponse:
        """Add a batch of data to a job, and start to process it."""
        job = await self._find(call.principal, call.arguments[0])
        if call.request.media_type.startswith(_ZIPPED):
            raise JobInvalid(
                f"Content type {call.request.media_type[:40]} is not supported: there are no binary fields",
                reason="FeatureNotEnabled",
            )
        batch = await self._jobs.add_batch(job, call.request.body)
        return render_info(call.request, job, 201, "batchInfo", batch_info(batch))

    async def set_spec(self, call: ApiCall) -> HttpResponse:
        """Store the transformation spec of a job."""
        job = await self._find(call.principal, call.arguments[0])
        await self._jobs.set_spec(job, call.request.body)
        return HttpResponse(200, b"", "", (NO_STORE,))

    async def list_batches(self, call: ApiCall) -> HttpResponse:
        """List the batches of a job."""
        job = await self._find(call.principal, call.arguments[0])
        return render_batches(call.request, job, await self._jobs.batches(job))

    async def read_batch(self, call: ApiCall) -> HttpResponse:
        """Return one batch."""
        job, batch = await self._find_batch(call)
        return render_info(call.request, job, 200, "batchInfo", batch_info(batch))

    async def read_request(self, call: ApiCall) -> HttpResponse:
        """Return the data of a batch as it was sent."""
        job, batch = await self._find_batch(call)
        await self._jobs.check_data(call.principal, job)
        data = b"".join([part async for part in self._jobs.iter_parts(batch)])
        return HttpResponse(200, data, _TYPES[job.request.content_type], (NO_STORE,))

    async def read_result(self, call: ApiCall) -> HttpResponse:
        """Return the outcomes of a batch's rows, or the list of a query's results."""
        job, batch = await self._find_batch(call)
        await self._jobs.check_data(call.principal, job)
        content_type = job.request.content_type
        if batch.state is not BatchState.COMPLETED and not batch.rows_done:
            has_ended = batch.state in (BatchState.FAILED, BatchState.NOT_PROCESSED)
            raise JobInvalid(
                "Records not processed" if has_ended else "Batch not completed", reason="InvalidBatch"
            )
        if job.request.operation.is_query:
            return render_result_list(content_type, [_result_id(batch)])
        outcomes = [o async for some in self._jobs.iter_outcomes(batch) for o in some]
        body = render_outcomes(content_type, outcomes)
        return HttpResponse(200, body, _TYPES[content_type], (NO_STORE,))

    async def read_query_result(self, call: ApiCall) -> HttpResponse:
        """Return the result of a query."""
        job, batch = await self._find_batch(call)
        await self._jobs.check_data(call.principal, job)
        wanted = try_normalise_id(call.arguments[2])
        if wanted != _result_id(batch) or not job.request.operation.is_query:
            raise ResourceUnknown("The requested resource does not exist", batch_id=batch.batch_id)
        if batch.state is not BatchState.COMPLETED:
            raise JobInvalid("Batch not completed", reason="InvalidBatch")
        content_type = job.request.content_type
        if content_type == "CSV":
            pieces = iter_query_csv(self._jobs, job, batch, 0, batch.rows_done)
        elif content_type == "JSON":
            pieces = self._iter_json(job, batch)
        else:
            pieces = self._iter_xml(job, batch)
        media_type = CSV_TYPE if content_type == "CSV" else _TYPES[content_type]
        return HttpResponse(200, b"", media_type, (NO_STORE,), pieces)

    async def _iter_json(self, job: Job, batch: Batch) -> AsyncIterator[bytes]:
        lead = b"["
        async for rows in self._jobs.iter_result(batch, 0, batch.rows_done):
            for start in range(0, len(rows), 200):
                rendered = [
                    render_json_record(_entity(job, batch), job.request.version, batch.columns, row)
                    for row in rows[start : start + 200]
                ]
                yield lead + b",".join(rendered)
                lead = b","
        yield b"[]" if lead == b"[" else b"]"

    async def _iter_xml(self, job: Job, batch: Batch) -> AsyncIterator[bytes]:
        yield QUERY_XML_HEAD
        async for rows in self._jobs.iter_result(batch, 0, batch.rows_done):
            for start in range(0, len(rows), 200):
                some = rows[start : start + 200]
                records = [render_xml_record(_entity(job, batch), batch.columns, row) for row in some]
                yield "".join(records).encode()
        yield QUERY_XML_TAIL

    async def _find(self, principal: Principal, job_id: str) -> Job:
        return await self._jobs.find(principal, job_id, JobKind.CLASSIC)

    async def _find_batch(self, call: ApiCall) -> tuple[Job, Batch]:
        job = await self._find(call.principal, call.arguments[0])
        return job, await self._jobs.find_batch(job, call.arguments[1])


def _entity(job: Job, batch: Batch) -> str:
    """Return the object of a query, which may differ from the one that its job named."""
    own = (column.entity for column in batch.columns if "." not in column.path and not column.is_parent)
    return next(own, job.request.entity)


def _result_id(batch: Batch) -> str:
    """Return the id of a batch's only result: that of the batch with another prefix."""
    return try_normalise_id(_RESULT_PREFIX + batch.batch_id[3:15]) or ""


ROUTES: tuple[Route[ClassicApi], ...] = (
    Route(("job",), {"POST": ClassicApi.create_job}),
    Route(("job", "*"), {"GET": ClassicApi.read_job, "POST": ClassicApi.change_job}),
    Route(("job", "*", "spec"), {"POST": ClassicApi.set_spec}),
    Route(("job", "*", "batch"), {"GET": ClassicApi.list_batches, "POST": ClassicApi.add_batch}),
    Route(("job", "*", "batch", "*"), {"GET": ClassicApi.read_batch}),
    Route(("job", "*", "batch", "*", "request"), {"GET": ClassicApi.read_request}),
    Route(("job", "*", "batch", "*", "result"), {"GET": ClassicApi.read_result}),
    Route(("job", "*", "batch", "*", "result", "*"), {"GET": ClassicApi.read_query_result}),
)
_TABLE = RouteTable(ROUTES)
