"""Deploy packages over REST with `metadata/deployRequest`, the counterpart of the Metadata API's deploy."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidewire.errors import BodyMalformed, MediaTypeUnsupported, RequiredFieldMissing
from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer
from tidewire.frontends.rest.collections import parse_flag
from tidewire.frontends.rest.wire import parse_json, parse_json_object
from tidewire.gate.metadata.deploy import DeployOptions, Deploys
from tidewire.gate.metadata.service import Metadata
from tidewire.transport.http import HttpRequest, HttpResponse

_BOUNDARY = re.compile(r';\s*boundary="?([^";]{1,70})"?', re.IGNORECASE)
_NAME = re.compile(rb'\bname="?([^";\r\n]*)"?', re.IGNORECASE)
_MAX_PARTS = 16
_OPTION_PARTS = ("json", "entity_content")


def parse_parts(request: HttpRequest) -> dict[str, bytes]:
    """Parse the parts of a multipart body, by name. Raises MediaTypeUnsupported or BodyMalformed."""
    found = _BOUNDARY.search(request.headers.get("content-type", ""))
    if not request.media_type.startswith("multipart/") or found is None:
        raise MediaTypeUnsupported("The body must be multipart/form-data with a boundary")
    mark = b"\r\n--" + found[1].encode("latin-1", "replace")
    pieces = (b"\r\n" + request.body).split(mark, _MAX_PARTS + 2)
    if len(pieces) > _MAX_PARTS + 2 or len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise BodyMalformed("The multipart body is not complete, or has too many parts")
    parts: dict[str, bytes] = {}
    for piece in pieces[1:-1]:
        head, separator, content = piece.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if not separator or name is None:
            raise BodyMalformed("A part of the multipart body has no name")
        parts[name[1].decode("utf-8", "replace")] = content
    return parts


async def deploy(api: Api, call: ApiCall) -> HttpResponse:
    """Deploy the archive in the part `file` with the options in the part `json`, or a validated archive by id."""
    if call.request.media_type == "application/json":
        return await _deploy_validated(api, call)
    parts = parse_parts(call.request)
    options = _parse_options(next((parts[name] for name in _OPTION_PARTS if name in parts), b"{}"))
    if "file" not in parts:
        raise RequiredFieldMissing("Required fields are missing: [file]", fields=["file"])
    wanted = DeployOptions(
        is_check_only=parse_flag(options, "checkOnly"),
        is_single_package=parse_flag(options, "singlePackage"),
        ignores_warnings=parse_flag(options, "ignoreWarnings"),
        rollback_on_error=parse_flag(options, "rollbackOnError"),
    )
    deploys = Deploys(Metadata(api.gate), api.clock)
    request_id = await deploys.deploy(call.context, parts["file"], wanted)
    return _render_pending(api, call, request_id, None, dict(options))


async def _deploy_validated(api: Api, call: ApiCall) -> HttpResponse:
    validation_id = parse_json_object(call.request).get("validatedDeployRequestId")
    if not isinstance(validation_id, str) or not validation_id:
        name = "validatedDeployRequestId"
        raise RequiredFieldMissing(f"Required fields are missing: [{name}]", fields=[name])
    request_id = await Deploys(Metadata(api.gate), api.clock).deploy_checked(call.context, validation_id)
    return _render_pending(api, call, request_id, validation_id, None)


def _render_pending(
    api: Api, call: ApiCall, request_id: str, validation_id: str | None, options: dict[str, object] | None
) -> HttpResponse:
    # Clients poll for the result, which is ready at their first request for it.
    body = {
        "id": request_id,
        "validatedDeployRequestId": validation_id,
        "deployOptions": options,
        "deployResult": {"id": request_id, "done": False, "status": "Pending", "success": False},
    }
    return render_answer(api, call, 201, body)


def _parse_options(data: bytes) -> Mapping[str, object]:
    value = parse_json(data)
    options = value.get("deployOptions", {}) if isinstance(value, dict) else None
    if not isinstance(options, dict):
        raise BodyMalformed("deployOptions must be a JSON object")
    return options


async def read_result(api: Api, call: ApiCall) -> HttpResponse:
    """Return the result of a deploy."""
    (request_id,) = call.arguments
    result = await Deploys(Metadata(api.gate), api.clock).result(call.principal, request_id)
    if call.request.query.get("includeDetails", "").lower() != "true":
        result.pop("details", None)
    body = {"id": result["id"], "deployResult": result}
    return render_answer(api, call, 200, body)


ROUTES: tuple[Route[Api], ...] = (
    Route(("metadata", "deployRequest"), {"POST": deploy}),
    Route(("metadata", "deployRequest", "*"), {"GET": read_result}),
)
