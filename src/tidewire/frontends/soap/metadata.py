"""The Metadata API: single components, and packages of them by deploy and retrieve."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from xml.etree.ElementTree import Element

from tidewire.errors import BodyMalformed
from tidewire.frontends.soap.calls import Operation, SoapCall
from tidewire.frontends.soap.wire import render_element, text_of, type_attribute
from tidewire.frontends.soap.wire_errors import render_row_error, rolled_back_error
from tidewire.gate.metadata.deploy import DeployOptions, Deploys
from tidewire.gate.metadata.properties import Component, Properties, flag_of, items_of, reject, texts_of
from tidewire.gate.metadata.properties import text_of as property_text
from tidewire.gate.metadata.registry import METADATA_TYPES, MetadataType, metadata_type
from tidewire.gate.metadata.retrieve import RetrieveOptions, Retrieves, render_listed
from tidewire.gate.metadata.service import Metadata, SaveResult, check_count
from tidewire.gate.metadata.xml import properties_of, render_properties
from tidewire.transport.xml_trees import local_name

_MAX_QUERIES = 3
_NAMESPACE_END = "}"


def _components(call: SoapCall) -> list[Component]:
    return [_component(element) for element in call.request.all("metadata")]


def _component(element: Element) -> Component:
    kind = type_attribute(element)
    if not kind:
        raise BodyMalformed("Must specify a {http://www.w3.org/2001/XMLSchema-instance}type attribute value")
    properties = properties_of(element)
    found = properties if isinstance(properties, dict) else {}
    return Component(kind, str(found.get("fullName", "")).strip(), found)


async def create_metadata(call: SoapCall) -> str:
    """Create components."""
    saved = await Metadata(call.gate).create(call.context, _components(call), all_or_none=call.all_or_none)
    return "".join(_render_saved(each) for each in saved)


async def update_metadata(call: SoapCall) -> str:
    """Update components."""
    saved = await Metadata(call.gate).update(call.context, _components(call), all_or_none=call.all_or_none)
    return "".join(_render_saved(each) for each in saved)


async def upsert_metadata(call: SoapCall) -> str:
    """Create or update components, and report which."""
    saved = await Metadata(call.gate).upsert(call.context, _components(call), all_or_none=call.all_or_none)
    return "".join(_render_saved(each, has_created=True) for each in saved)


async def delete_metadata(call: SoapCall) -> str:
    """Delete components of one type."""
    kind, names = call.request.text("type"), call.request.texts("fullNames")
    metadata_type(kind)
    saved = await Metadata(call.gate).delete(call.context, kind, names, all_or_none=call.all_or_none)
    return "".join(_render_saved(each) for each in saved)


async def rename_metadata(call: SoapCall) -> str:
    """Rename a component."""
    request = call.request
    kind, old, new = (request.text(name) for name in ("type", "oldFullName", "newFullName"))
    metadata_type(kind)
    return _render_saved(await Metadata(call.gate).rename(call.context, kind, old, new))


def _render_saved(saved: SaveResult, *, has_created: bool = False) -> str:
    created = render_element("created", saved.is_created) if has_created else ""
    errors = ""
    if saved.error is not None:
        errors = render_row_error(saved.error)
    elif saved.is_undone:
        errors = rolled_back_error()
    rest = render_element("fullName", saved.full_name) + render_element("success", not errors)
    return f"<result>{created}{errors}{rest}</result>"


async def read_metadata(call: SoapCall) -> str:
    """Return the properties of components; nil for one not found."""
    kind, names = call.request.text("type"), call.request.texts("fullNames")
    found = await Metadata(call.gate).read(call.principal, kind, names, api_version=call.endpoint.version)
    records = "".join(
        '<records xsi:nil="true"/>'
        if properties is None
        else f'<records xsi:type="{kind}">{render_properties({"fullName": name} | properties)}</records>'
        for name, properties in zip(names, found, strict=True)
    )
    return f"<result>{records}</result>"


async def list_metadata(call: SoapCall) -> str:
    """List the components of up to three types."""
    kinds = [
        text_of(child)
        for query in call.request.all("queries")
        for child in query
        if local_name(child) == "type"
    ]
    check_count(kinds, _MAX_QUERIES)
    listed = await Metadata(call.gate).entries(call.principal, kinds, api_version=call.endpoint.version)
    return "".join(f"<result>{render_properties(render_listed(each))}</result>" for each in listed)


async def describe_metadata(call: SoapCall) -> str:
    """List the types of components."""
    await Metadata(call.gate).check(call.principal)
    objects = [_describe(each) for each in METADATA_TYPES.values() if not each.is_nested]
    result: Mapping[str, object] = {
        "metadataObjects": objects,
        "organizationNamespace": "",
        "partialSaveAllowed": False,
        "testRequired": False,
    }
    return f"<result>{render_properties(result)}</result>"


def _describe(each: MetadataType) -> dict[str, object]:
    found: dict[str, object] = {
        "directoryName": each.directory,
        "inFolder": False,
        "metaFile": False,
        "suffix": each.suffix,
        "xmlName": each.name,
    }
    return {"childXmlNames": list(each.children)} | found if each.children else found


async def describe_value_type(call: SoapCall) -> str:
    """List the properties of a type, by its qualified name."""
    await Metadata(call.gate).check(call.principal)
    type_ = metadata_type(call.request.text("type").rpartition(_NAMESPACE_END)[2])
    result: dict[str, object] = {
        "apiCreatable": True,
        "apiDeletable": True,
        "apiReadable": True,
        "apiUpdatable": True,
        "valueTypeFields": [
            _value_field(name, is_name=name == "fullName") for name in ("fullName", *sorted(type_.properties))
        ],
    }
    return f"<result>{render_properties(result)}</result>"


def _value_field(name: str, *, is_name: bool) -> dict[str, object]:
    return {
        "isForeignKey": False,
        "isNameField": is_name,
        "minOccurs": 0,
        "name": name,
        "soapType": "string",
        "valueRequired": is_name,
    }


def _argument(call: SoapCall, *names: str) -> Properties:
    """Return the properties of the first argument with one of these names."""
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
    """Deploy an archive that was validated without errors."""
    deploys = Deploys(Metadata(call.gate), call.services.clock)
    request_id = await deploys.deploy_checked(call.context, call.request.text("validationId").strip())
    return f"<result>{request_id}</result>"


def _queued(request_id: str) -> str:
    # Clients poll for the result, which is ready at their first request for it.
    return f"<result>{render_properties({'done': False, 'id': request_id, 'state': 'Queued'})}</result>"


async def check_deploy_status(call: SoapCall) -> str:
    """Return the result of a deploy."""
    deploys = Deploys(Metadata(call.gate), call.services.clock)
    result = await deploys.result(call.principal, call.request.text("asyncProcessId"))
    if not flag_of({"flag": call.request.text("includeDetails")}, "flag"):
        result.pop("details", None)
    return f"<result>{render_properties(result)}</result>"


async def cancel_deploy(call: SoapCall) -> str:
    """Fail: a deploy has ended before its id is returned."""
    deploys = Deploys(Metadata(call.gate), call.services.clock)
    await deploys.result(call.principal, call.request.text("String") or call.request.text("id"))
    reject("Deployment already completed", "INVALID_ID_FIELD")


async def retrieve(call: SoapCall) -> str:
    """Build an archive of components."""
    request = _argument(call, "retrieveRequest", "request")
    package = request.get("unpackaged")
    members: dict[str, list[str]] = {}
    for item in items_of(package if isinstance(package, Mapping) else {}, "types"):
        members.setdefault(property_text(item, "name").strip(), []).extend(texts_of(item, "members"))
    version = property_text(request, "apiVersion") or f"{call.endpoint.version}.0"
    options = RetrieveOptions(members, version, flag_of(request, "singlePackage"))
    return _queued(await Retrieves(Metadata(call.gate)).retrieve(call.context, options))


async def check_retrieve_status(call: SoapCall) -> str:
    """Return the result of a retrieve, with its archive unless `includeZip` is false."""
    retrieves = Retrieves(Metadata(call.gate))
    result, archive = await retrieves.result(call.principal, call.request.text("asyncProcessId"))
    if flag_of({"flag": call.request.text("includeZip")}, "flag", default=True):
        result = result | {"zipFile": base64.b64encode(archive).decode("ascii")}
    return f"<result>{render_properties(result)}</result>"


OPERATIONS: dict[str, Operation] = {
    "cancelDeploy": cancel_deploy,
    "checkDeployStatus": check_deploy_status,
    "checkRetrieveStatus": check_retrieve_status,
    "createMetadata": create_metadata,
    "deleteMetadata": delete_metadata,
    "deploy": deploy,
    "deployRecentValidation": deploy_recent_validation,
    "describeMetadata": describe_metadata,
    "describeValueType": describe_value_type,
    "listMetadata": list_metadata,
    "readMetadata": read_metadata,
    "renameMetadata": rename_metadata,
    "retrieve": retrieve,
    "updateMetadata": update_metadata,
    "upsertMetadata": upsert_metadata,
}
"""The handler of each call; all of them need a session."""
