"""SOAP envelopes: requests parsed by namespace and local name, answers rendered as text. Pure.

Clients find values in answers by position, by regular expression and by literal tag, so the text is fixed: the
`soapenv` prefix for the envelope, the API's namespace as the default, `sf` for the fields of records, and scalar tags
without prefix and attributes.

A request is UTF-8 without a document type, limited in depth and size; the parser rejects any other before it builds a
tree in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from tidewire.errors import BodyMalformed, BodyTooLarge, ResourceUnknown, VersionUnsupported
from tidewire.ids import try_normalise_id
from tidewire.names import try_parse_api_version
from tidewire.transport.xml_trees import UNPRINTABLE, XSI_NS, is_nil, local_name, parse_tree

MAX_BODY_BYTES = 10 * 1024 * 1024
CONTENT_TYPE = "text/xml;charset=UTF-8"

_ENVELOPE_NS = "http://schemas.xmlsoap.org/soap/envelope/"
_MUST_UNDERSTAND = f"{{{_ENVELOPE_NS}}}mustUnderstand"
_ACTOR = f"{{{_ENVELOPE_NS}}}actor"
_NEXT_ACTOR = "http://schemas.xmlsoap.org/soap/actor/next"
XSI_TYPE = f"{{{XSI_NS}}}type"
_XSD_NS = "http://www.w3.org/2001/XMLSchema"
_PATH = re.compile(r"/services/Soap/([A-Za-z]+)(?:/([^/]*))?(?:/([^/]*))?(/.*)?")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the three APIs. Records of the enterprise one name their type in an attribute, not an element."""

    letter: str
    namespace: str
    fault_namespace: str
    object_namespace: str
    has_type_element: bool


PARTNER = Dialect(
    "u",
    "urn:partner.soap.sforce.com",
    "urn:fault.partner.soap.sforce.com",
    "urn:sobject.partner.soap.sforce.com",
    has_type_element=True,
)
ENTERPRISE = Dialect(
    "c",
    "urn:enterprise.soap.sforce.com",
    "urn:fault.enterprise.soap.sforce.com",
    "urn:sobject.enterprise.soap.sforce.com",
    has_type_element=False,
)
METADATA = Dialect(
    "m",
    "http://soap.sforce.com/2006/04/metadata",
    "http://soap.sforce.com/2006/04/metadata",
    "http://soap.sforce.com/2006/04/metadata",
    has_type_element=False,
)
_DIALECTS = {dialect.letter: dialect for dialect in (PARTNER, ENTERPRISE, METADATA)}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The API and version that a request was sent to, and the org if the path names one."""

    dialect: Dialect
    version: int
    org_id: str = ""

    def url(self, base_url: str, org_id: str) -> str:
        """Return the address for later calls of this API."""
        return f"{base_url}/services/Soap/{self.dialect.letter}/{self.version}.0/{org_id[:15]}"

    def metadata_url(self, base_url: str, org_id: str) -> str:
        """Return the address of the metadata API."""
        return f"{base_url}/services/Soap/m/{self.version}.0/{org_id[:15]}"


@dataclass(frozen=True, slots=True)
class SoapRequest:
    """One call: the operation's element with its arguments, and the header blocks by name."""

    operation: str
    body: Element = field(repr=False)  # holds a password at login
    headers: dict[str, Element] = field(default_factory=dict, repr=False)
    demanded: tuple[str, ...] = ()  # tags of header blocks marked mustUnderstand

    def text(self, name: str) -> str:
        """Return the stripped text of an argument, empty if absent."""
        return next((text_of(child) for child in self.all(name)), "")

    def texts(self, name: str) -> list[str]:
        """Return the stripped texts of all arguments of a name."""
        return [text_of(child) for child in self.all(name)]

    def all(self, *names: str) -> Iterator[Element]:
        """Return the arguments of these names, in order and in any namespace: clients use several."""
        return (child for child in self.body if local_name(child) in names and not is_nil(child))

    def header(self, block: str, name: str) -> str:
        """Return a value of the header, such as `sessionId` of `SessionHeader`; empty if absent."""
        element = self.headers.get(block)
        if element is None:
            return ""
        return next((text_of(child) for child in element if local_name(child) == name), "")

    def flag(self, block: str, name: str, *, default: bool) -> bool:
        """Return a boolean of the header."""
        return {"true": True, "1": True, "false": False, "0": False}.get(self.header(block, name), default)

    @property
    def session_id(self) -> str:
        """The session token, or empty."""
        return self.header("SessionHeader", "sessionId")

    @property
    def client(self) -> str:
        """The client's name in CallOptions."""
        return self.header("CallOptions", "client")


def parse_dialect(raw_path: str) -> Dialect:
    """Return the API that a path names. Raises ResourceUnknown."""
    found = _PATH.fullmatch(raw_path)
    dialect = _DIALECTS.get(found[1]) if found else None
    # Clients of the metadata API append further segments to its path.
    if dialect is None or (found and found[4] not in (None, "/") and dialect is not METADATA):
        raise ResourceUnknown("No SOAP service is at this path")
    return dialect


def parse_endpoint(raw_path: str) -> Endpoint:
    """Parse API, version and optional org id of a path. Raises ResourceUnknown or VersionUnsupported."""
    dialect = parse_dialect(raw_path)
    found = _PATH.fullmatch(raw_path)
    text = unquote(found[2] or "") if found else ""
    version = try_parse_api_version(text)
    if version is None:
        raise VersionUnsupported("Invalid Api version specified on URL", version=text[:16])
    org_id = try_normalise_id(unquote(found[3] or "")) if found else None
    return Endpoint(dialect, version, org_id or "")


def parse_request(body: bytes, dialect: Dialect) -> SoapRequest:
    """Parse an envelope. Raises BodyTooLarge, BodyMalformed, or ResourceUnknown for a wrong namespace."""
    if len(body) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"The request body is larger than {MAX_BODY_BYTES} bytes", limit_bytes=MAX_BODY_BYTES
        )
    envelope = parse_tree(body)
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
    blocks = [] if header is None else [block for block in header if _is_for_us(block)]
    own = {local_name(block): block for block in blocks if block.tag.startswith(prefix)}
    demanded = tuple(
        block.tag for block in blocks if block.get(_MUST_UNDERSTAND, "").strip() in ("1", "true")
    )
    return SoapRequest(operation.tag[len(prefix) :], operation, own, demanded)


def _is_for_us(block: Element) -> bool:
    """Whether a header block is addressed to the server, not to an intermediary."""
    return block.get(_ACTOR, "").strip() in ("", _NEXT_ACTOR)


def text_of(element: Element) -> str:
    """Return an element's stripped text."""
    return (element.text or "").strip()


def type_attribute(element: Element) -> str:
    """Return the name in an element's `xsi:type` without its prefix, or empty."""
    return element.get(XSI_TYPE, "").strip().rpartition(":")[2]


def clean(text: str) -> str:
    """Escape text for an element, and replace characters that XML does not allow."""
    return escape(UNPRINTABLE.sub("\ufffd", text))


def render_element(name: str, value: str | bool | int | float | None) -> str:
    """Render one element: booleans and numbers as XML Schema spells them, None as nil."""
    if value is None:
        return f'<{name} xsi:nil="true"/>'
    text = str(value).lower() if isinstance(value, bool) else clean(str(value))
    return f"<{name}>{text}</{name}>"


def render_elements(pairs: Iterable[tuple[str, str | bool | int | float | None]]) -> str:
    """Render elements in order."""
    return "".join(render_element(name, value) for name, value in pairs)


def render_answer(
    dialect: Dialect, operation: str, content: str, usage: tuple[int, int] | None = None
) -> bytes:
    """Render the envelope of a successful call; `content` is XML, empty for calls without a result.

    With `usage`, the counted API calls and their limit, the answer has a LimitInfoHeader.
    """
    header = ""
    if usage is not None:
        current, limit = usage
        header = (
            f"<soapenv:Header><LimitInfoHeader><limitInfo><current>{current}</current><limit>{limit}</limit>"
            "<type>API REQUESTS</type></limitInfo></LimitInfoHeader></soapenv:Header>"
        )
    spaces = f' xmlns:sf="{dialect.object_namespace}"' if "<sf:" in content else ""
    if spaces or 'xsi:type="xsd:' in content:
        spaces += f' xmlns:xsd="{_XSD_NS}"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<soapenv:Envelope xmlns:soapenv="{_ENVELOPE_NS}" xmlns="{dialect.namespace}" xmlns:xsi="{XSI_NS}"'
        f"{spaces}>{header}<soapenv:Body><{operation}Response>{content}</{operation}Response></soapenv:Body>"
        "</soapenv:Envelope>"
    ).encode()


def render_fault(
    dialect: Dialect, code: str, message: str, fault_type: str, place: tuple[int, int] | None = None
) -> bytes:
    """Render the envelope of a failed call.

    With a `fault_type`, the code is one of the API's exception codes and the detail element repeats it, under the
    prefix `sf` that clients search for literally. Without, the fault is SOAP's own and has no detail. The metadata
    API's schema has no type for a detail, so its faults have none. `place` is the row and column of a query at fault.
    """
    text = clean(message)
    if not fault_type:
        fault = f"<faultcode>soapenv:{code}</faultcode><faultstring>{text}</faultstring>"
    elif dialect is METADATA:
        fault = f"<faultcode>sf:{code}</faultcode><faultstring>{code}: {text}</faultstring>"
    else:
        where = "" if place is None else f"<sf:row>{place[0]}</sf:row><sf:column>{place[1]}</sf:column>"
        fault = (
            f"<faultcode>sf:{code}</faultcode><faultstring>{code}: {text}</faultstring>"
            f'<detail><sf:{fault_type} xsi:type="sf:{fault_type}">'
            f"<sf:exceptionCode>{code}</sf:exceptionCode><sf:exceptionMessage>{text}</sf:exceptionMessage>"
            f"{where}</sf:{fault_type}></detail>"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<soapenv:Envelope xmlns:soapenv="{_ENVELOPE_NS}" xmlns:sf="{dialect.fault_namespace}" '
        f'xmlns:xsi="{XSI_NS}"><soapenv:Body><soapenv:Fault>{fault}</soapenv:Fault></soapenv:Body>'
        "</soapenv:Envelope>"
    ).encode()
