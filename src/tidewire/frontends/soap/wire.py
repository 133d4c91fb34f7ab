"""SOAP envelopes: requests taken apart by namespace and local name, answers written out by hand. Pure.

Clients find values in answers by position, by regular expression and by literal tag, so the text is fixed:
the `soapenv` prefix for the envelope, the API's namespace as the default, scalar tags bare and without
attributes, and no header in an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import escape

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from tidewire.errors import BodyMalformed, BodyTooLarge, ResourceUnknown, VersionUnsupported

MIN_VERSION = 20
MAX_VERSION = 67
MAX_BODY_BYTES = 10 * 1024 * 1024
CONTENT_TYPE = "text/xml;charset=UTF-8"

_ENVELOPE_NS = "http://schemas.xmlsoap.org/soap/envelope/"
_XSI_NS = "http://www.w3.org/2001/XMLSchema-instance"
_PATH = re.compile(r"/services/Soap/([A-Za-z]+)(?:/([^/]*))?(?:/([^/]*))?/?")
_VERSION = re.compile(r"([1-9][0-9])\.0")
# Characters that no XML 1.0 text may hold, not even escaped.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the two APIs: they differ in path letter and namespaces only."""

    letter: str
    namespace: str
    fault_namespace: str


PARTNER = Dialect("u", "urn:partner.soap.sforce.com", "urn:fault.partner.soap.sforce.com")
ENTERPRISE = Dialect("c", "urn:enterprise.soap.sforce.com", "urn:fault.enterprise.soap.sforce.com")
_DIALECTS = {dialect.letter: dialect for dialect in (PARTNER, ENTERPRISE)}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a request was sent: the API and its version."""

    dialect: Dialect
    version: int

    def url(self, base_url: str, org_id: str) -> str:
        """The address for later calls of this API."""
        return f"{base_url}/services/Soap/{self.dialect.letter}/{self.version}.0/{org_id[:15]}"

    def metadata_url(self, base_url: str, org_id: str) -> str:
        """The address that belongs to the metadata API."""
        return f"{base_url}/services/Soap/m/{self.version}.0/{org_id[:15]}"


@dataclass(frozen=True, slots=True)
class SoapRequest:
    """One call: the operation's name, its scalar arguments, and what the header brought along."""

    operation: str
    arguments: dict[str, str] = field(repr=False)  # holds a password at login
    session_id: str = field(default="", repr=False)
    client: str = ""


def parse_dialect(raw_path: str) -> Dialect:
    """The API that a path names; raises ResourceUnknown."""
    found = _PATH.fullmatch(raw_path)
    dialect = _DIALECTS.get(found[1]) if found else None
    if dialect is None:
        raise ResourceUnknown("No SOAP service is at this path")
    return dialect


def parse_endpoint(raw_path: str) -> Endpoint:
    """API and version of a path, with or without org id and trailing slash; raises VersionUnsupported."""
    dialect = parse_dialect(raw_path)
    found = _PATH.fullmatch(raw_path)
    text = unquote(found[2] or "") if found else ""
    version = _VERSION.fullmatch(text)
    if version is None or not MIN_VERSION <= int(version[1]) <= MAX_VERSION:
        raise VersionUnsupported("Invalid Api version specified on URL", version=text[:16])
    return Endpoint(dialect, int(version[1]))


def parse_request(body: bytes, dialect: Dialect) -> SoapRequest:
    """Take an envelope apart. Raises BodyTooLarge, BodyMalformed, ResourceUnknown for a wrong namespace."""
    if len(body) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"The request body is larger than {MAX_BODY_BYTES} bytes", limit_bytes=MAX_BODY_BYTES
        )
    try:
        envelope = fromstring(body, forbid_dtd=True)
    except DefusedXmlException as err:
        raise BodyMalformed("DTD and entity declarations are not allowed in a SOAP message") from err
    except (ParseError, ValueError, LookupError) as err:  # the latter two for encodings that expat refuses
        raise BodyMalformed("The request is not well-formed XML") from err
    if envelope.tag != f"{{{_ENVELOPE_NS}}}Envelope":
        raise BodyMalformed("The request is not a SOAP 1.1 envelope")
    body_element = envelope.find(f"{{{_ENVELOPE_NS}}}Body")
    if body_element is None or len(body_element) != 1:
        raise BodyMalformed("The SOAP body must hold exactly one operation")
    operation = body_element[0]
    prefix = f"{{{dialect.namespace}}}"
    if not operation.tag.startswith(prefix):
        raise ResourceUnknown(f"No operation available for request {operation.tag[:200]}")
    header = envelope.find(f"{{{_ENVELOPE_NS}}}Header")
    return SoapRequest(
        operation.tag[len(prefix) :],
        {_local_name(child): _text(child) for child in operation},
        _header_value(header, prefix, "SessionHeader", "sessionId"),
        _header_value(header, prefix, "CallOptions", "client"),
    )


def _local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: Element) -> str:
    return (element.text or "").strip()


def _header_value(header: Element | None, prefix: str, block: str, name: str) -> str:
    element = None if header is None else header.find(f"{prefix}{block}/{prefix}{name}")
    return "" if element is None else _text(element)


def _clean(text: str) -> str:
    return escape(_UNPRINTABLE.sub("\ufffd", text))


def render_elements(pairs: Iterable[tuple[str, str | bool | int | None]]) -> str:
    """Elements in order: booleans and numbers in XML's own spelling, None as nil."""
    out = []
    for name, value in pairs:
        if value is None:
            out.append(f'<{name} xsi:nil="true"/>')
        else:
            text = str(value).lower() if isinstance(value, bool) else _clean(str(value))
            out.append(f"<{name}>{text}</{name}>")
    return "".join(out)


def render_answer(dialect: Dialect, operation: str, result: str) -> bytes:
    """The envelope of a successful call; `result` is ready XML, empty for calls that answer nothing."""
    inner = f"<result>{result}</result>" if result else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<soapenv:Envelope xmlns:soapenv="{_ENVELOPE_NS}" xmlns="{dialect.namespace}" xmlns:xsi="{_XSI_NS}">'
        f"<soapenv:Body><{operation}Response>{inner}</{operation}Response></soapenv:Body></soapenv:Envelope>"
    ).encode()


def render_fault(dialect: Dialect, code: str, message: str, fault_type: str) -> bytes:
    """The envelope of a failed call.

    With a `fault_type` the code is one of the API's exception codes and the detail element repeats it, under
    the prefix `sf` that clients search for literally. Without, the fault is SOAP's own and has no detail.
    """
    text = _clean(message)
    if not fault_type:
        fault = f"<faultcode>soapenv:{code}</faultcode><faultstring>{text}</faultstring>"
    else:
        fault = (
            f"<faultcode>sf:{code}</faultcode><faultstring>{code}: {text}</faultstring>"
            f'<detail><sf:{fault_type} xsi:type="sf:{fault_type}">'
            f"<sf:exceptionCode>{code}</sf:exceptionCode><sf:exceptionMessage>{text}</sf:exceptionMessage>"
            f"</sf:{fault_type}></detail>"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<soapenv:Envelope xmlns:soapenv="{_ENVELOPE_NS}" xmlns:sf="{dialect.fault_namespace}" '
        f'xmlns:xsi="{_XSI_NS}"><soapenv:Body><soapenv:Fault>{fault}</soapenv:Fault></soapenv:Body>'
        "</soapenv:Envelope>"
    ).encode()
