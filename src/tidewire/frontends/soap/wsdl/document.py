"""Render the WSDL document of one API: schemas, messages, operations and address. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from tidewire.frontends.soap.wire import Dialect
from tidewire.frontends.soap.wire_errors import exception_codes, status_codes
from tidewire.frontends.soap.wsdl.shapes import (
    ADDRESS,
    CALLS,
    FAULTS,
    HEADERS,
    MENUS,
    TYPES,
    render_word,
    render_words,
)
from tidewire.gate.describe import FIELD_KINDS, SOAP_TYPES

_WSDL_NS = "http://schemas.xmlsoap.org/wsdl/"
_SOAP_NS = "http://schemas.xmlsoap.org/wsdl/soap/"
_XSD_NS = "http://www.w3.org/2001/XMLSchema"
_TRANSPORT = "http://schemas.xmlsoap.org/soap/http"


@dataclass(frozen=True, slots=True)
class RecordShape:
    """A record type of the enterprise API: its name, and its elements in the notation of `shapes`."""

    name: str
    words: tuple[str, ...]


def render_wsdl(dialect: Dialect, address: str, records: Sequence[RecordShape] = ()) -> bytes:
    """Render the document. `records` are the types of the enterprise API; the partner API has one for all."""
    calls = sorted(CALLS)
    messages = "".join(_message(f"{name}Request", f"tns:{name}") for name in calls)
    messages += "".join(_message(f"{name}Response", f"tns:{name}Response") for name in calls)
    messages += "".join(_message(name, f"fns:{name}", "fault") for name in sorted(FAULTS))
    parts = "".join(f'<part element="tns:{name}" name="{name}"/>' for name in sorted(HEADERS))
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<definitions targetNamespace="{dialect.namespace}" xmlns="{_WSDL_NS}" xmlns:soap="{_SOAP_NS}"'
        f' xmlns:xsd="{_XSD_NS}" xmlns:fns="{dialect.fault_namespace}" xmlns:tns="{dialect.namespace}"'
        f' xmlns:ens="{dialect.object_namespace}"><types>{_object_schema(dialect, records)}'
        f'{_api_schema(dialect)}{_fault_schema(dialect)}</types><message name="Header">{parts}</message>{messages}'
        f'<portType name="Soap">{"".join(map(_operation, calls))}</portType>'
        '<binding name="SoapBinding" type="tns:Soap">'
        f'<soap:binding style="document" transport="{_TRANSPORT}"/>{"".join(map(_binding, calls))}</binding>'
        '<service name="SforceService"><port binding="tns:SoapBinding" name="Soap">'
        f"<soap:address location={quoteattr(address)}/></port></service></definitions>\n"
    )
    return text.encode()


def _schema(namespace: str, imports: Iterable[str], content: str) -> str:
    imported = "".join(f'<import namespace="{each}"/>' for each in imports)
    return (
        f'<schema elementFormDefault="qualified" xmlns="{_XSD_NS}" targetNamespace="{namespace}">'
        f"{imported}{content}</schema>"
    )


def _complex(name: str, content: str, base: str = "") -> str:
    sequence = f"<sequence>{content}</sequence>"
    if base:
        sequence = f'<complexContent><extension base="{base}">{sequence}</extension></complexContent>'
    return f'<complexType name="{name}">{sequence}</complexType>'


def _simple(name: str, content: str) -> str:
    return f'<simpleType name="{name}"><restriction base="xsd:string">{content}</restriction></simpleType>'


def _enumeration(name: str, values: Iterable[str]) -> str:
    return _simple(name, "".join(f'<enumeration value="{value}"/>' for value in values))


def _object_schema(dialect: Dialect, records: Sequence[RecordShape]) -> str:
    anything = (
        '<any namespace="##targetNamespace" minOccurs="0" maxOccurs="unbounded" processContents="lax"/>'
    )
    if dialect.has_type_element:
        types = _complex("sObject", render_words("type fieldsToNull*~ Id:ID~") + anything)
    else:
        types = _complex("sObject", render_words("fieldsToNull*~ Id:ID?~"))
        types += _complex("AggregateResult", anything, "ens:sObject")
        types += "".join(
            _complex(record.name, "".join(map(render_word, record.words)), "ens:sObject")
            for record in records
        )
    return _schema(dialect.object_namespace, [dialect.namespace], types)


def _api_schema(dialect: Dialect) -> str:
    types = _simple("ID", '<length value="18"/><pattern value="[a-zA-Z0-9]{18}"/>')
    types += _simple("QueryLocator", "")
    types += _enumeration("AppMenuType", MENUS)
    types += _enumeration("StatusCode", status_codes())
    types += _enumeration("fieldType", FIELD_KINDS)
    types += _enumeration("soapType", (kind.replace("urn:", "tns:") for kind in SOAP_TYPES))
    types += "".join(_complex(name, render_words(words)) for name, words in TYPES.items())
    types += _complex("address", render_words(ADDRESS), "tns:location")
    for name, shape in sorted(CALLS.items()):
        types += _element(name, shape.takes) + _element(f"{name}Response", shape.answers)
    types += "".join(_element(name, words) for name, words in sorted(HEADERS.items()))
    return _schema(dialect.namespace, [dialect.object_namespace], types)


def _element(name: str, words: str) -> str:
    return f'<element name="{name}"><complexType><sequence>{render_words(words)}</sequence></complexType></element>'


def _fault_schema(dialect: Dialect) -> str:
    code = '<element name="exceptionCode" type="fns:ExceptionCode"/>'
    types = _enumeration("ExceptionCode", exception_codes())
    types += _complex("ApiFault", code + render_word("exceptionMessage"))
    types += '<element name="fault" type="fns:ApiFault"/>'
    types += _complex("ApiQueryFault", render_words("row:int column:int"), "fns:ApiFault")
    for name, base in sorted(FAULTS.items()):
        types += _complex(name, "", f"fns:{base}") + f'<element name="{name}" type="fns:{name}"/>'
    return _schema(dialect.fault_namespace, [dialect.namespace], types)


def _message(name: str, element: str, part: str = "parameters") -> str:
    return f'<message name="{name}"><part element="{element}" name="{part}"/></message>'


def _faults(name: str) -> list[str]:
    return [*CALLS[name].faults.split(), "UnexpectedErrorFault"]


def _operation(name: str) -> str:
    faults = "".join(f'<fault message="tns:{each}" name="{each}"/>' for each in _faults(name))
    return (
        f'<operation name="{name}"><input message="tns:{name}Request"/>'
        f'<output message="tns:{name}Response"/>{faults}</operation>'
    )


def _binding(name: str) -> str:
    is_login = name == "login"
    first = "LoginScopeHeader CallOptions" if is_login else "SessionHeader CallOptions"
    headers = "".join(map(_header, [*first.split(), *CALLS[name].headers.split()]))
    faults = "".join(
        f'<fault name="{each}"><soap:fault name="{each}" use="literal"/></fault>' for each in _faults(name)
    )
    return (
        f'<operation name="{name}"><soap:operation soapAction=""/>'
        f'<input>{headers}<soap:body parts="parameters" use="literal"/></input>'
        f'<output>{"" if is_login else _header("LimitInfoHeader")}<soap:body use="literal"/></output>'
        f"{faults}</operation>"
    )


def _header(name: str) -> str:
    return f'<soap:header use="literal" message="tns:Header" part="{name}"/>'
