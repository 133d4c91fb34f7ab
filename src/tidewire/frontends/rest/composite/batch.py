"""The batch resource: up to 25 requests that know nothing of each other, one after the other."""

from __future__ import annotations

from tidewire.errors import BodyMalformed, TooManyRecords
from tidewire.frontends.rest.calls import Api, ApiCall, render_answer, require_version
from tidewire.frontends.rest.collections import parse_flag
from tidewire.frontends.rest.composite.subrequests import Answer, Subrequest, ask, parse_body, parse_target
from tidewire.frontends.rest.wire import parse_json_object
from tidewire.transport.http import HttpResponse

_FIRST_VERSION = 34
_MAX_REQUESTS = 25
_DATA = "/services/data/"
_HALTED = Answer(
    412,
    [{"errorCode": "BATCH_PROCESSING_HALTED", "message": "Batch processing halted per request"}],
    has_failed=True,
)


async def run_batch(api: Api, call: ApiCall) -> HttpResponse:
    """Run every request; with `haltOnError`, none after the first that fails. What is done stays done."""
    require_version(call, _FIRST_VERSION)
    body = parse_json_object(call.request)
    requests = _parse_requests(body.get("batchRequests"))
    halts = parse_flag(body, "haltOnError")
    answers: list[Answer] = []
    is_halted = False
    for index, each in enumerate(requests):
        if is_halted:
            answers.append(_HALTED)
            continue
        if index:  # the batch itself was counted as the first of them
            api.gate.usage.count()
        answers.append(await ask(api, call, each))
        is_halted = halts and answers[-1].status >= 400
    return render_answer(
        api,
        call,
        200,
        {
            "hasErrors": any(answer.status >= 400 for answer in answers),
            "results": [{"statusCode": answer.status, "result": answer.body} for answer in answers],
        },
    )


def _parse_requests(value: object) -> list[Subrequest]:
    if not isinstance(value, list) or not value:
        raise BodyMalformed("batchRequests must be a list with at least one subrequest")
    if len(value) > _MAX_REQUESTS:
        raise TooManyRecords(
            f"The request can have up to {_MAX_REQUESTS} subrequests, not {len(value)}", limit=_MAX_REQUESTS
        )
    return [_parse_request(each) for each in value]


def _parse_request(value: object) -> Subrequest:
    if not isinstance(value, dict):
        raise BodyMalformed("subrequests must be JSON objects")
    method, url = parse_target(value)
    path = url.removeprefix(_DATA).lstrip("/")
    if not path.startswith("v"):
        raise BodyMalformed("The url of a subrequest must start with a version, such as v59.0/")
    return Subrequest(method, _DATA + path, "", parse_body(value, "richInput"))
