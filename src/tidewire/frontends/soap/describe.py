"""Calls that describe objects: describeGlobal and describeSObject(s).

`gate.describe_for_user` provides the descriptions; here they get the order of the WSDL. Optional elements without a
value are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.wire import render_element
from tidewire.frontends.soap.wsdl.shapes import TYPES, element_names
from tidewire.gate.describe_for_user import describe_entity, list_entries

MAX_DESCRIBED = 100
MAX_BATCH_SIZE = 200
_NILLABLE = frozenset({"keyPrefix"})
_GLOBAL_ELEMENTS = element_names(TYPES["DescribeGlobalSObjectResult"])
_NOT_IN_WSDL = frozenset(
    {"urls", "sobjectDescribeOption", "listviewable", "lookupLayoutable", "aiPredictionField"}
)


async def describe_global(call: SoapCall) -> str:
    """List every object, change event and platform event that the caller may know."""
    return f"<result>{await render_global(call)}</result>"


async def render_global(call: SoapCall) -> str:
    """Render the inside of a DescribeGlobalResult."""
    entries = await list_entries(call.gate, call.principal, call.endpoint.version)
    inner = "".join(
        f"<sobjects>{_render_named({**entry, 'idEnabled': True}, _GLOBAL_ELEMENTS)}</sobjects>"
        for entry in entries
    )
    return f"<encoding>UTF-8</encoding><maxBatchSize>{MAX_BATCH_SIZE}</maxBatchSize>{inner}"


async def describe_sobject(call: SoapCall) -> str:
    """Describe one object as far as the caller may know it."""
    return await _describe(call, call.request.text("sObjectType"))


async def describe_sobjects(call: SoapCall) -> str:
    """Describe up to a hundred objects."""
    names = call.request.texts("sObjectType")
    check_count(names, MAX_DESCRIBED)
    return "".join([await _describe(call, name) for name in names])


async def _describe(call: SoapCall, name: str) -> str:
    described = await describe_entity(call.gate, call.principal, name, call.endpoint.version)
    return f"<result>{_render_mapping({**described, 'idEnabled': True})}</result>"


def _render_mapping(values: Mapping[str, object]) -> str:
    """Render a description in alphabetical order, which is the WSDL's."""
    return _render_named(values, sorted(name for name in values if name not in _NOT_IN_WSDL))


def _render_named(values: Mapping[str, object], names: Iterable[str]) -> str:
    return "".join(
        _render_default(values)
        if name == "defaultValue" and "soapType" in values
        else _render_entry(name, values[name])
        for name in names
    )


def _render_default(field: Mapping[str, object]) -> str:
    """Render a field's default value, whose type the schema leaves open, with an `xsi:type`."""
    return _render_entry("defaultValue", field["defaultValue"]).replace(
        ">", f' xsi:type="{field["soapType"]}">', 1
    )


def _render_entry(name: str, value: object) -> str:
    match value:
        case None:
            return render_element(name, None) if name in _NILLABLE else ""
        case Mapping():
            return f"<{name}>{_render_mapping(value)}</{name}>"
        case str() if name == "soapType":
            return render_element(name, value.replace("urn:", "tns:"))  # the schema's spelling, unlike REST's
        case str() | bool() | int() | float():
            return render_element(name, value)
        case Sequence():
            return "".join(_render_entry(name, item) for item in value)
        case _:
            return render_element(name, str(value))
