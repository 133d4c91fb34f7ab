"""The resources under `/services/async/N.0/job`: the older Bulk API."""

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
    render_json_records,
    render_outcomes,
    render_result_list,
    render_xml_record,
)
from tidewire.frontends.rest.bulk.csv_results import CSV_TYPE, iter_query_csv
from tidewire.frontends.rest.bulk.wire import parse_word
from tidewire.frontends.rest.calls import ApiCall, Route
from tidewire.frontends.rest.wire import (
    NO_STORE,
    method_not_allowed,
    parse_default_namespace,
    parse_token,
    render_origin,
)
from tidewire.gate.gate import Gate
from tidewire.ids import try_normalise_id
from tidewire.jobs.model import Batch, BatchState, Job, JobKind, JobState
from tidewire.jobs.service import BulkJobs
from tidewire.transport.http import HttpRequest, HttpResponse

_TYPES = {"CSV": "text/csv", "JSON": JSON_TYPE, "XML": XML_TYPE}
_RESULT_PREFIX = "752"
_ZIPPED = ("zip/", "application/zip")


def parse_session(request: HttpRequest) -> str:
    """The session token, which this API has a header of its own for. Raises AuthHeaderInvalid."""
    token = request.headers.get("x-sfdc-session", "").strip()
    if token:
        return token
    try:
        return parse_token(request)
    except AuthHeaderInvalid as error:
        raise AuthHeaderInvalid("Unable to find session id") from error


class ClassicApi:
    """Answers requests of the older Bulk API. Holds no state."""

    def __init__(self, gate: Gate, logins: Logins, jobs: BulkJobs) -> None:
        self._gate = gate
        self._usage = gate.usage
        self._logins = logins
        self._jobs = jobs

    async def handle(self, request: HttpRequest, segments: tuple[str, ...]) -> HttpResponse:
        """Answer one request; `segments` follow `async`. Raises InternalError alone."""
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
        principal = await self._logins.authenticate(parse_session(request))
        self._usage.count()
        is_on = self._gate.records.types.settings.api_enabled
        if not is_on or not (await self._gate.grants(principal)).has("ApiEnabled"):
            raise JobInvalid("Async API not enabled", reason="FeatureNotEnabled")
        for route in ROUTES:
            arguments = route.try_match(segments[1:])
            if arguments is None:
                continue
            handler = route.methods.get(request.method)
            if handler is None:
                raise method_not_allowed(request.method, route.methods)
            return await handler(self, ApiCall(request, version, principal, arguments))
        raise ResourceUnknown("The requested resource does not exist")

    async def create_job(self, call: ApiCall) -> HttpResponse:
        """Make a job."""
        origin = render_origin(call.request, call.version)
        asked = parse_request(parse_info(call.request), call.version, origin)
        asked = replace(asked, namespace=parse_default_namespace(call.request))
        job = await self._jobs.create(call.principal, parse_chunking(call.request, asked))
        return render_info(call.request, job, 201, "jobInfo", job_info(job, ()))

    async def read_job(self, call: ApiCall) -> HttpResponse:
        """One job."""
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
        """Add data to a job; it is processed at once."""
        job = await self._find(call.principal, call.arguments[0])
        if call.request.media_type.startswith(_ZIPPED):
            raise JobInvalid(
                f"Content type {call.request.media_type[:40]} is not supported: there are no binary fields",
                reason="FeatureNotEnabled",
            )
        batch = await self._jobs.add_batch(job, call.request.body)
        return render_info(call.request, job, 201, "batchInfo", batch_info(batch))

    async def set_spec(self, call: ApiCall) -> HttpResponse:
        """Take the transformation spec of a job."""
        job = await self._find(call.principal, call.arguments[0])
        await self._jobs.set_spec(job, call.request.body)
        return HttpResponse(200, b"", "", (NO_STORE,))

    async def list_batches(self, call: ApiCall) -> HttpResponse:
        """The batches of a job."""
        job = await self._find(call.principal, call.arguments[0])
        return render_batches(call.request, job, await self._jobs.batches(job))

    async def read_batch(self, call: ApiCall) -> HttpResponse:
        """One batch."""
        job, batch = await self._find_batch(call)
        return render_info(call.request, job, 200, "batchInfo", batch_info(batch))

    async def read_request(self, call: ApiCall) -> HttpResponse:
        """What was sent as a batch."""
        job, batch = await self._find_batch(call)
        await self._jobs.check_data(call.principal, job)
        data = b"".join([part async for part in self._jobs.iter_parts(batch)])
        return HttpResponse(200, data, _TYPES[job.request.content_type], (NO_STORE,))

    async def read_result(self, call: ApiCall) -> HttpResponse:
        """What became of a batch: of each row, or where a query's results are."""
        job, batch = await self._find_batch(call)
        await self._jobs.check_data(call.principal, job)
        content_type = job.request.content_type
        if batch.state is not BatchState.COMPLETED and not batch.rows_done:
            is_over = batch.state in (BatchState.FAILED, BatchState.NOT_PROCESSED)
            raise JobInvalid(
                "Records not processed" if is_over else "Batch not completed", reason="InvalidBatch"
            )
        if job.request.operation.is_query:
            return render_result_list(content_type, [_result_id(batch)])
        outcomes = [o async for some in self._jobs.iter_outcomes(batch) for o in some]
        body = render_outcomes(content_type, outcomes)
        return HttpResponse(200, body, _TYPES[content_type], (NO_STORE,))

    async def read_query_result(self, call: ApiCall) -> HttpResponse:
        """What a query found."""
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
                    render_json_records(_entity(job, batch), job.request.version, batch.columns, row)
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
    """The object of a query, which need not be the one that its job named."""
    own = (column.entity for column in batch.columns if "." not in column.path and not column.is_parent)
    return next(own, job.request.entity)


def _result_id(batch: Batch) -> str:
    """A batch has one result; its id is that of the batch but for the prefix."""
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
