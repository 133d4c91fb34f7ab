"""The operations of the Metadata API: arguments taken out of the call, results written in the schema's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from tidewire.errors import BodyMalformed
from tidewire.frontends.soap.calls import Operation, SoapCall
from tidewire.frontends.soap.metadata import packages
from tidewire.frontends.soap.wire import render_element, text_of, type_attribute
from tidewire.frontends.soap.wire_errors import render_row_error, rolled_back_error
from tidewire.gate.metadata.properties import Component
from tidewire.gate.metadata.registry import METADATA_TYPES, MetadataType, metadata_type
from tidewire.gate.metadata.retrieve import render_listed
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
    """Make components."""
    saved = await Metadata(call.gate).create(call.context, _components(call), all_or_none=call.all_or_none)
    return "".join(_render_saved(each) for each in saved)


async def update_metadata(call: SoapCall) -> str:
    """Change components."""
    saved = await Metadata(call.gate).update(call.context, _components(call), all_or_none=call.all_or_none)
    return "".join(_render_saved(each) for each in saved)


async def upsert_metadata(call: SoapCall) -> str:
    """Make or change components, and tell which."""
    saved = await Metadata(call.gate).upsert(call.context, _components(call), all_or_none=call.all_or_none)
    return "".join(_render_saved(each, has_created=True) for each in saved)


async def delete_metadata(call: SoapCall) -> str:
    """Remove components of one type."""
    kind, names = call.request.text("type"), call.request.texts("fullNames")
    metadata_type(kind)
    saved = await Metadata(call.gate).delete(call.context, kind, names, all_or_none=call.all_or_none)
    return "".join(_render_saved(each) for each in saved)


async def rename_metadata(call: SoapCall) -> str:
    """Give a component another name."""
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
    """The properties of components; nil for one that is not there."""
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
    """The components of up to three types."""
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
    """The types of components."""
    await Metadata(call.gate).check(call.principal)
    objects = [_describe(each) for each in METADATA_TYPES.values() if not each.is_inside]
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
    """The properties of a type, by the type's qualified name."""
    await Metadata(call.gate).check(call.principal)
    type_ = metadata_type(call.request.text("type").rpartition(_NAMESPACE_END)[2])
    result: dict[str, object] = {
        "apiCreatable": True,
        "apiDeletable": True,
        "apiReadable": True,
        "apiUpdatable": True,
        "valueTypeFields": [_value_field(name, is_name=name == "fullName") for name in _names(type_)],
    }
    return f"<result>{render_properties(result)}</result>"


def _names(type_: MetadataType) -> Sequence[str]:
    return ("fullName", *sorted(type_.properties))


def _value_field(name: str, *, is_name: bool) -> dict[str, object]:
    return {
        "isForeignKey": False,
        "isNameField": is_name,
        "minOccurs": 0,
        "name": name,
        "soapType": "string",
        "valueRequired": is_name,
    }


METADATA_OPERATIONS: dict[str, Operation] = {
    "cancelDeploy": packages.cancel_deploy,
    "checkDeployStatus": packages.check_deploy_status,
    "checkRetrieveStatus": packages.check_retrieve_status,
    "createMetadata": create_metadata,
    "deleteMetadata": delete_metadata,
    "deploy": packages.deploy,
    "deployRecentValidation": packages.deploy_recent_validation,
    "describeMetadata": describe_metadata,
    "describeValueType": describe_value_type,
    "listMetadata": list_metadata,
    "readMetadata": read_metadata,
    "renameMetadata": rename_metadata,
    "retrieve": packages.retrieve,
    "updateMetadata": update_metadata,
    "upsertMetadata": upsert_metadata,
}
"""What each call does; all of them need a session."""
