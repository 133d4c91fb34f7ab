"""The composite and batch resources: up to 25 subrequests in one request.

The subrequests of a composite request may use the answers to earlier ones. Without `allOrNone` each is a request of
its own. With it they share one transaction: the first failure rolls everything back and halts the others. The
subrequests of a batch are independent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import orjson

from tidewire.errors import (
    BodyMalformed,
    LimitExceeded,
    PlatformError,
    RequestError,
    ResourceUnknown,
    TooManyRecords,
)
from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer
from tidewire.frontends.rest.collections import parse_flag
from tidewire.frontends.rest.composite.references import (
    bad_reference_id,
    count_expressions,
    fill,
    fill_url,
    resolve,
)
from tidewire.frontends.rest.wire import parse_json_object, parse_segments, parse_version
from tidewire.frontends.rest.wire_errors import render_error, render_error_entry
from tidewire.gate.gate import Gate
from tidewire.gate.shared_transaction import run_in_transaction
from tidewire.names import data_url
from tidewire.transport.http import HttpRequest, HttpResponse

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
MAX_SECONDS = 10.0  # a transaction blocks all other writers; past this it starts no further subrequest
_COMPOSITE_SINCE = 38  # GET, which lists the composite resources, is older
_MAX_SUBREQUESTS = 25
_MAX_LARGE = 5
_STRICT_VERSION = 52  # from here on reference ids are checked, and references to null values resolve
_REFERENCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")
_DATA = "/services/data/"
_LARGE = re.compile(
    r"/services/data/v[0-9.]+/(query|queryAll|search|parameterizedSearch|composite/sobjects)\b"
)
_TOOLING = "/tooling/composite"
_RESOURCES = frozenset(
    {"sobjects", "query", "queryAll", "search", "parameterizedSearch", "limits", "recent", "event"}
    | {"tabs", "theme", "appMenu", "quickActions"}
)
_INHERITED = frozenset({"accept", "authorization", "content-type"})
_SHOWN_HEADERS = frozenset({"Location", "ETag", "Last-Modified"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")


@dataclass(frozen=True, slots=True)
class Subrequest:
    """One request inside another. `url` and `body` may hold references."""

    method: str
    url: str
    reference_id: str
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a subrequest; `has_failed` is also true of a collection with a failed row."""

    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)
    has_failed: bool = False

    def render(self, reference_id: str) -> dict[str, object]:
        """Render the entry of a composite response."""
        return {
            "body": self.body,
            "httpHeaders": dict(self.headers),
            "httpStatusCode": self.status,
            "referenceId": reference_id,
        }


def halted_answer(message: str) -> Answer:
    """Return the answer to a subrequest that was not run because of another one."""
    return Answer(400, [{"errorCode": "PROCESSING_HALTED", "message": message}], has_failed=True)


_HALTED = halted_answer(
    "The transaction was rolled back since another operation in the same transaction failed."
)


_BATCH_HALTED = Answer(
    412,
    [{"errorCode": "BATCH_PROCESSING_HALTED", "message": "Batch processing halted per request"}],
    has_failed=True,
)


async def list_composites(api: Api, call: ApiCall) -> HttpResponse:
    """List the composite resources of the version."""
    first = {"tree": 34, "batch": 34, "sobjects": 42, "graph": 50}
    listed = {
        name: data_url(call.version, "composite", name)
        for name, version in first.items()
        if call.version >= version
    }
    return render_answer(api, call, 200, listed)


async def run_composite(api: Api, call: ApiCall) -> HttpResponse:
    """Run subrequests in order, each alone or all in one transaction."""
    if call.version < _COMPOSITE_SINCE:
        raise ResourceUnknown("The requested resource does not exist")
    body = parse_json_object(call.request)
    # Only the form of this flag is checked: we run in order, which suits either value.
    parse_flag(body, "collateSubrequests")
    subrequests = parse_subrequests(body.get("compositeRequest"), call.version, _MAX_SUBREQUESTS)
    if sum(_is_large(each.url) for each in subrequests) > _MAX_LARGE:
        raise TooManyRecords(
            f"A composite request can have up to {_MAX_LARGE} subrequests that are queries or collections",
            limit=_MAX_LARGE,
        )
    return await _run_composite(api, call, subrequests, all_or_none=parse_flag(body, "allOrNone"))


async def run_tooling_composite(api: Api, call: ApiCall) -> HttpResponse:
    """Run subrequests for tooling records in order, each alone or all in one transaction."""
    body = parse_json_object(call.request)
    subrequests = parse_subrequests(body.get("compositeRequest"), call.version, _MAX_SUBREQUESTS)
    return await _run_composite(api, call, subrequests, all_or_none=parse_flag(body, "allOrNone"))


async def _run_composite(
    api: Api, call: ApiCall, subrequests: Sequence[Subrequest], *, all_or_none: bool
) -> HttpResponse:
    run = run_as_one if all_or_none else _run_in_order
    answers = await run(api, call, subrequests)
    rendered = [a.render(s.reference_id) for a, s in zip(answers, subrequests, strict=True)]
    return render_answer(api, call, 200, {"compositeResponse": rendered})


def parse_subrequests(value: object, version: int, limit: int) -> list[Subrequest]:
    """Parse all subrequests of a body before any is run. Raises BodyMalformed or TooManyRecords."""
    listed = _check_list(value, "compositeRequest", limit)
    parsed = [_parse_subrequest(each, version) for each in listed]
    seen: set[str] = set()
    for each in parsed:
        if each.reference_id in seen:
            raise BodyMalformed(f"Duplicate ReferenceId provided in the request: {each.reference_id[:200]}")
        seen.add(each.reference_id)
    return parsed


def _check_list(value: object, name: str, limit: int) -> list[object]:
    if not isinstance(value, list) or not value:
        raise BodyMalformed(f"{name} must be a list with at least one subrequest")
    if len(value) > limit:
        raise TooManyRecords(f"The request can have up to {limit} subrequests, not {len(value)}", limit=limit)
    return value


def _parse_subrequest(value: object, version: int) -> Subrequest:
    if not isinstance(value, dict):
        raise BodyMalformed("subrequests must be JSON objects")
    reference_id = value.get("referenceId")
    if not isinstance(reference_id, str) or not reference_id:
        raise BodyMalformed("Every subrequest needs a referenceId")
    if version >= _STRICT_VERSION and _REFERENCE_ID.fullmatch(reference_id) is None:
        raise BodyMalformed(bad_reference_id(reference_id))
    method, url = _parse_target(value)
    if not url.startswith(("/services/data/v", "@{")):
        raise BodyMalformed(f"The url of {reference_id[:200]} must start with /services/data/vXX.X/")
    return Subrequest(method, url, reference_id, _parse_body(value, "body"), _parse_headers(value))


def _parse_target(value: Mapping[str, object]) -> tuple[str, str]:
    method, url = value.get("method"), value.get("url")
    if method not in METHODS:
        raise BodyMalformed(f"The method of a subrequest must be one of {', '.join(METHODS)}")
    if not isinstance(url, str) or not url:
        raise BodyMalformed("Every subrequest needs a url")
    return str(method), url


def _parse_body(value: Mapping[str, object], name: str) -> object:
    body = value.get(name)
    if body is not None and not isinstance(body, dict | list):
        raise BodyMalformed(f"{name} must be a JSON object or list")
    return body


def _parse_headers(value: Mapping[str, object]) -> dict[str, str]:
    given = value.get("httpHeaders")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BodyMalformed("httpHeaders must be a JSON object")
    headers: dict[str, str] = {}
    for name, text in given.items():
        if not isinstance(text, str) or _HEADER_NAME.fullmatch(name) is None:
            raise BodyMalformed("httpHeaders must hold strings under the names of headers")
        if name.lower() in _INHERITED:
            raise BodyMalformed(f"The header {name} comes from the top-level request and cannot be set")
        headers[name.lower()] = text
    return headers


def _is_large(url: str) -> bool:
    """Whether a url may return many records; its references are not resolved yet."""
    return url.startswith("@{") or _LARGE.match(unquote(url)) is not None


async def run_as_one(api: Api, call: ApiCall, subrequests: Sequence[Subrequest]) -> list[Answer]:
    """Run subrequests in one transaction; if one fails, all are rolled back and the others answered as halted."""
    ran: list[Answer] = []

    async def run_all(gate: Gate) -> list[Answer]:
        ran[:] = await _run_in_order(api.view_for(gate), call, subrequests, is_shared=True)
        return ran

    try:
        answers = await run_in_transaction(
            api.gate, call.context, run_all, lambda answers: not any(a.has_failed for a in answers)
        )
    except RequestError as error:
        # Some errors, such as that of a push topic's query, only show when the transaction ends. They are reported
        # for the last subrequest that could have caused them.
        written = [i for i, each in enumerate(subrequests) if each.method != "GET"]
        blamed = written[-1] if written else len(subrequests) - 1
        failure = _render_failure(error, subrequests[blamed].method)
        return [failure if i == blamed else _HALTED for i in range(len(subrequests))]
    failed = next((i for i, answer in enumerate(answers) if answer.has_failed), None)
    if failed is None:
        return list(answers)
    return [answers[i] if i == failed else _HALTED for i in range(len(subrequests))]


async def _run_in_order(
    api: Api, call: ApiCall, subrequests: Sequence[Subrequest], *, is_shared: bool = False
) -> list[Answer]:
    """Return the answers in order; in a shared transaction, stop after the first failure."""
    known: dict[str, object] = {}
    answers: list[Answer] = []
    until_s = api.clock.monotonic_s() + MAX_SECONDS
    for each in subrequests:
        if is_shared and api.clock.monotonic_s() > until_s:
            late = LimitExceeded(f"The transaction took longer than {MAX_SECONDS:.0f} seconds", limit="time")
            answer = _render_failure(late, each.method)
        else:
            answer = await _run(api, call, each, known, is_shared=is_shared)
        answers.append(answer)
        if answer.status < 400:
            known[each.reference_id] = answer.body
        if is_shared and answer.has_failed:
            break
    return answers


async def _run(
    api: Api, call: ApiCall, each: Subrequest, known: Mapping[str, object], *, is_shared: bool
) -> Answer:
    expressions = count_expressions([each.url, each.body])
    url, body = each.url, each.body
    if expressions:
        try:
            values = resolve(expressions, known, allows_null=call.version >= _STRICT_VERSION)
        except RequestError as error:
            return _render_failure(error, each.method)
        if isinstance(values, str):
            return halted_answer(values)
        url, body = fill_url(url, values), fill(body, values)
    return await _ask(api, call, Subrequest(each.method, url, "", body, each.headers), is_shared=is_shared)


async def _ask(api: Api, call: ApiCall, each: Subrequest, *, is_shared: bool = False) -> Answer:
    """Run one subrequest without references. In a shared transaction, errors of ours are raised."""
    headers = {"host": call.request.headers.get("host", "localhost")}
    if options := call.request.headers.get("sforce-call-options"):
        headers["sforce-call-options"] = options
    headers |= each.headers
    url, body = each.url, each.body
    request = HttpRequest(each.method, url, headers, b"", call.request.scheme, call.request.peer)
    try:
        version, segments = _parse_path(request, is_tooling=_TOOLING in call.request.raw_path)
        if is_shared and segments[0] == "composite":
            # A failed row must roll back the whole transaction, so the collection is all or none too.
            url, body = _all_or_none(each.method, url, body)
        content = b"" if body is None else orjson.dumps(body)
        request = replace(request, target=url, body=content)
        _, response = await api.run(request, version, segments, call.principal)
    except PlatformError as error:
        if is_shared and not isinstance(error, RequestError):
            raise
        return _read_answer(render_error(request, error))
    return _read_answer(response)


def _parse_path(request: HttpRequest, *, is_tooling: bool) -> tuple[int, tuple[str, ...]]:
    segments = parse_segments(request.raw_path) or ()
    if segments[:2] != ("services", "data") or len(segments) < 4:
        raise ResourceUnknown("The requested resource does not exist")
    version, rest = parse_version(segments[2]), segments[3:]
    if is_tooling:
        is_allowed = rest[:2] in (("tooling", "sobjects"), ("tooling", "query"))
    else:
        is_allowed = rest[0] in _RESOURCES or rest[:2] == ("composite", "sobjects")
    if not is_allowed:
        raise ResourceUnknown("The requested resource does not exist")
    return version, rest


def _all_or_none(method: str, url: str, body: object) -> tuple[str, object]:
    if method == "DELETE":
        return url + ("&" if "?" in url else "?") + "allOrNone=true", body
    return url, {**body, "allOrNone": True} if isinstance(body, dict) and "records" in body else body


def _read_answer(response: HttpResponse) -> Answer:
    headers = {name: text for name, text in response.headers if name in _SHOWN_HEADERS}
    has_failed = response.status >= 400 or response.status == 300
    if not response.body:
        return Answer(response.status, None, headers, has_failed)
    if not response.content_type.startswith("application/json"):
        refusal = [{"message": "This resource answers with binary data", "errorCode": "NOT_ACCEPTABLE"}]
        return Answer(406, refusal, has_failed=True)
    body = orjson.loads(response.body)
    if isinstance(body, list) and any(isinstance(e, dict) and e.get("success") is False for e in body):
        has_failed = True
    return Answer(response.status, body, headers, has_failed)


def _render_failure(error: RequestError, method: str) -> Answer:
    response = render_error(HttpRequest(method, "/", {}), error)
    return Answer(response.status, [render_error_entry(error, method)], has_failed=True)


async def run_batch(api: Api, call: ApiCall) -> HttpResponse:
    """Run independent subrequests in order; with `haltOnError`, none after the first failure."""
    body = parse_json_object(call.request)
    listed = _check_list(body.get("batchRequests"), "batchRequests", _MAX_SUBREQUESTS)
    requests = [_parse_batch_request(each) for each in listed]
    halts = parse_flag(body, "haltOnError")
    answers: list[Answer] = []
    is_halted = False
    for index, each in enumerate(requests):
        if is_halted:
            answers.append(_BATCH_HALTED)
            continue
        if index:  # the batch request itself counted as the first
            api.gate.usage.count()
        answers.append(await _ask(api, call, each))
        is_halted = halts and answers[-1].status >= 400
    results = [{"statusCode": answer.status, "result": answer.body} for answer in answers]
    has_errors = any(answer.status >= 400 for answer in answers)
    return render_answer(api, call, 200, {"hasErrors": has_errors, "results": results})


def _parse_batch_request(value: object) -> Subrequest:
    if not isinstance(value, dict):
        raise BodyMalformed("subrequests must be JSON objects")
    method, url = _parse_target(value)
    path = url.removeprefix(_DATA).lstrip("/")
    if not path.startswith("v"):
        raise BodyMalformed("The url of a subrequest must start with a version, such as v59.0/")
    return Subrequest(method, _DATA + path, "", _parse_body(value, "richInput"))


ROUTES: tuple[Route[Api], ...] = (
    Route(("composite",), {"GET": list_composites, "POST": run_composite}, since=34),
    Route(("composite", "batch"), {"POST": run_batch}, since=34),
    Route(("tooling", "composite"), {"POST": run_tooling_composite}),
)
