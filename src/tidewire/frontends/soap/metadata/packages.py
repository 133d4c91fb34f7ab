"""Packages by SOAP: deploy and retrieve, each answered with an id under which the result is asked for."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from xml.etree.ElementTree import Element

from tidewire.errors import BodyMalformed
from tidewire.frontends.soap.calls import SoapCall
from tidewire.gate.metadata.deploy import DeployOptions, Deploys
from tidewire.gate.metadata.properties import Properties, flag_of, items_of, refuse, text_of, texts_of
from tidewire.gate.metadata.retrieve import RetrieveOptions, Retrieves
from tidewire.gate.metadata.service import Metadata
from tidewire.gate.metadata.xml import properties_of, render_properties


def _argument(call: SoapCall, *names: str) -> Properties:
    """The properties of the first argument of these names."""
    element: Element | None = next(call.request.all(*names), None)
    found = None if element is None else properties_of(element)
    return found if isinstance(found, dict) else {}


async def deploy(call: SoapCall) -> str:
    """Deploy an archive."""
    options = _argument(call, "DeployOptions", "deployOptions")
    try:
        archive = base64.b64decode("".join(call.request.text("ZipFile").split()), validate=True)
    except (binascii.Error, ValueError) as err:
        raise BodyMalformed("ZipFile is not base64") from err
    wanted = DeployOptions(
        is_check_only=flag_of(options, "checkOnly"),
        is_single_package=flag_of(options, "singlePackage"),
        ignores_warnings=flag_of(options, "ignoreWarnings"),
        rollback_on_error=flag_of(options, "rollbackOnError"),
    )
    request_id = await Deploys(Metadata(call.gate), call.services.clock).deploy(call.context, archive, wanted)
    return _queued(request_id)


async def deploy_recent_validation(call: SoapCall) -> str:
    """Deploy what a check found nothing wrong with."""
    deploys = Deploys(Metadata(call.gate), call.services.clock)
    request_id = await deploys.deploy_checked(call.context, call.request.text("validationId").strip())
    return f"<result>{request_id}</result>"


def _queued(request_id: str) -> str:
    # What clients wait for; the next question about it gets the result.
    return f"<result>{render_properties({'done': False, 'id': request_id, 'state': 'Queued'})}</result>"


async def check_deploy_status(call: SoapCall) -> str:
    """What became of a deploy."""
    deploys = Deploys(Metadata(call.gate), call.services.clock)
    result = await deploys.result(call.principal, call.request.text("asyncProcessId"))
    if not flag_of({"flag": call.request.text("includeDetails")}, "flag"):
        result.pop("details", None)
    return f"<result>{render_properties(result)}</result>"


async def cancel_deploy(call: SoapCall) -> str:
    """Refused: a deploy has ended before anybody knows its id."""
    deploys = Deploys(Metadata(call.gate), call.services.clock)
    await deploys.result(call.principal, call.request.text("String") or call.request.text("id"))
    refuse("Deployment already completed", "INVALID_ID_FIELD")


async def retrieve(call: SoapCall) -> str:
    """Make an archive of components."""
    request = _argument(call, "retrieveRequest", "request")
    package = request.get("unpackaged")
    members: dict[str, list[str]] = {}
    for item in items_of(package if isinstance(package, Mapping) else {}, "types"):
        members.setdefault(text_of(item, "name").strip(), []).extend(texts_of(item, "members"))
    version = text_of(request, "apiVersion") or f"{call.endpoint.version}.0"
    options = RetrieveOptions(members, version, flag_of(request, "singlePackage"))
    return _queued(await Retrieves(Metadata(call.gate)).retrieve(call.context, options))


async def check_retrieve_status(call: SoapCall) -> str:
    """What became of a retrieve, with its archive unless that is not wanted."""
    retrieves = Retrieves(Metadata(call.gate))
    result, archive = await retrieves.result(call.principal, call.request.text("asyncProcessId"))
    if flag_of({"flag": call.request.text("includeZip")}, "flag", default=True):
        result = result | {"zipFile": base64.b64encode(archive).decode("ascii")}
    return f"<result>{render_properties(result)}</result>"
