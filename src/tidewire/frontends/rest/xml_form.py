"""XML in place of JSON: answers for those who ask for them, and request bodies. Pure.

An answer's JSON value becomes elements: a record's `attributes` are its element's attributes, the items of a
list repeat the element of the list, null is `xsi:nil`, and an empty list is nothing. The outermost element is the
record's type, or what the resource is called.

A request body is UTF-8 without a document type, and neither deep nor large. Elements of one name beside each
other are a list; whatever else an element may mean, its text is text, which fields take in place of numbers
and truth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.sax.saxutils import escape, quoteattr

import orjson
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from tidewire.errors import BodyMalformed, BodyTooLarge
from tidewire.frontends.rest.wire import MAX_BODY_BYTES, MAX_JSON_DEPTH, decode_body, parse_json_object
from tidewire.transport.http import HttpRequest, HttpResponse

CONTENT_TYPE = "application/xml;charset=UTF-8"
MAX_ELEMENTS = 100_000
_MEDIA_TYPES = frozenset({"application/xml", "text/xml"})
_XSI_NS = "http://www.w3.org/2001/XMLSchema-instance"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DECLARED_ENCODING = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([^"']*)["']""")
_ENCODINGS = frozenset({b"utf-8", b"utf8", b"us-ascii", b"ascii"})
# Characters that no XML 1.0 text may hold, not even escaped.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What the items of a list are called where the list itself is the whole answer.
_ITEMS = {"Errors": "Error", "Versions": "Version"}


def wants_xml(request: HttpRequest) -> bool:
    """Whether the caller prefers XML, by weight and then by order; who takes anything gets JSON."""
    best_weight, is_xml = 0.0, False
    for offer in request.headers.get("accept", "").split(","):
        media, _, parameters = offer.partition(";")
        media = media.strip().lower()
        if media not in _MEDIA_TYPES and media not in ("application/json", "*/*", "application/*"):
            continue
        weight = _weight(parameters)
        if weight > best_weight:
            best_weight, is_xml = weight, media in _MEDIA_TYPES
    return is_xml


def _weight(parameters: str) -> float:
    found = re.search(r"(?:^|;)\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)", parameters)
    return float(found[1]) if found else 1.0


def as_xml(response: HttpResponse, root: str) -> HttpResponse:
    """A JSON answer as XML; any other stays as it is."""
    if not response.body or not response.content_type.startswith("application/json"):
        return response
    body = render_xml(orjson.loads(response.body), root)
    return HttpResponse(response.status, body, CONTENT_TYPE, response.headers)


def render_xml(value: object, root: str) -> bytes:
    """A JSON value as a document whose outermost element is `root`, or a record's type."""
    out = ['<?xml version="1.0" encoding="UTF-8"?>']
    space = f' xmlns:xsi="{_XSI_NS}"'
    if isinstance(value, Mapping):
        attributes = value.get("attributes")
        kind = attributes.get("type") if isinstance(attributes, Mapping) else None
        name = kind if isinstance(kind, str) and _NAME.fullmatch(kind) else root
        _write(out, name, value, space)
    else:
        out.append(f"<{root}{space}>")
        for item in value if isinstance(value, list) else [value]:
            _write(out, _ITEMS.get(root, "result"), item)
        out.append(f"</{root}>")
    return "".join(out).encode("utf-8", "replace")


def _write(out: list[str], name: str, value: object, extra: str = "") -> None:
    """Append one element, or one for each item of a list. Depth is that of our own answers."""
    if not _NAME.fullmatch(name):
        extra, name = f" name={_quoted(name)}{extra}", "entry"
    if isinstance(value, list):
        for item in value:
            _write(out, name, item, extra)
    elif value is None:
        out.append(f'<{name}{extra} xsi:nil="true"/>')
    elif isinstance(value, Mapping):
        out.append(f"<{name}{_attributes(value)}{extra}>")
        for key, item in value.items():
            if key != "attributes":
                _write(out, str(key), item)
        out.append(f"</{name}>")
    else:
        text = str(value).lower() if isinstance(value, bool) else escape(_clean(str(value)))
        out.append(f"<{name}{extra}>{text}</{name}>")


def _attributes(value: Mapping[str, object]) -> str:
    attributes = value.get("attributes")
    if not isinstance(attributes, Mapping):
        return ""
    return "".join(f" {key}={_quoted(str(text))}" for key, text in attributes.items())


def _quoted(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text)


def parse_body(request: HttpRequest) -> dict[str, object]:
    """The request's object, from JSON or XML. Raises MediaTypeUnsupported, BodyTooLarge or BodyMalformed."""
    if request.media_type not in _MEDIA_TYPES:
        return parse_json_object(request)
    value = _value(_parse_tree(decode_body(request)))
    if isinstance(value, dict):
        return value
    if value in (None, ""):
        return {}
    raise BodyMalformed("The request body must be an element with fields inside")


class _BoundedTree(TreeBuilder):
    """Builds the tree of a request, and gives up on one that is too deep or too large."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_JSON_DEPTH:
            raise BodyMalformed(f"The request nests elements more than {MAX_JSON_DEPTH} deep")
        if self._count > MAX_ELEMENTS:
            raise BodyTooLarge(
                f"The request has more than {MAX_ELEMENTS} elements", limit_bytes=MAX_BODY_BYTES
            )
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def _parse_tree(body: bytes) -> Element:
    declared = _DECLARED_ENCODING.match(body)
    # The parser would take a byte order mark, or zeros between letters, for UTF-16 whatever it is told.
    is_odd = body.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in body
    if is_odd or (declared is not None and declared[1].lower() not in _ENCODINGS):
        raise BodyMalformed("The request must be UTF-8")
    parser = DefusedXMLParser(target=_BoundedTree(), encoding="utf-8", forbid_dtd=True)
    try:
        parser.feed(body)
        tree: Element = parser.close()
    except DefusedXmlException as err:
        raise BodyMalformed("DTD and entity declarations are not allowed") from err
    except (ParseError, ValueError, LookupError) as err:  # the latter two for encodings that expat refuses
        raise BodyMalformed("The request is not well-formed XML") from err
    return tree


def _value(element: Element) -> object:
    if element.get(f"{{{_XSI_NS}}}nil") in ("true", "1"):
        return None
    if not len(element):
        return element.text or ""
    values: dict[str, object] = {}
    seen: set[str] = set()
    for child in element:
        name, value = child.tag.rpartition("}")[2], _value(child)
        if name not in values:
            values[name] = value
            continue
        first = values[name]
        if name in seen and isinstance(first, list):
            first.append(value)
        else:
            values[name] = [first, value]
            seen.add(name)
    kind = element.get("type")
    if kind is not None:
        values["attributes"] = {"type": kind}
    return values
