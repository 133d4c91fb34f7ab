"""XML instead of JSON, in answers and request bodies. Pure.

An answer's JSON value becomes elements: a record's `attributes` are attributes of its element, the items of a list
repeat the list's element, null is `xsi:nil`, and an empty list is omitted. The outermost element is the record's type,
or the name of the resource.

A request body is UTF-8 without a document type, limited in depth and size. Sibling elements of one name are a list.
All values are text, which fields convert to numbers and booleans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import orjson

from tidewire.errors import BodyMalformed
from tidewire.frontends.rest.wire import MAX_JSON_DEPTH, decode_body, parse_json_object
from tidewire.transport.http import HttpRequest, HttpResponse, cached_by_head
from tidewire.transport.xml_trees import UNPRINTABLE, XSI_NS, is_nil, local_name, parse_tree

CONTENT_TYPE = "application/xml;charset=UTF-8"
_MEDIA_TYPES = frozenset({"application/xml", "text/xml"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# The element of an item, for answers that are a list.
_ITEMS = {"Errors": "Error", "Versions": "Version"}


@cached_by_head
def wants_xml(request: HttpRequest) -> bool:
    """Whether the Accept header prefers XML, by weight and then by order; `*/*` means JSON."""
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
    """Convert a JSON answer to XML; other answers stay unchanged."""
    if not response.body or not response.content_type.startswith("application/json"):
        return response
    body = render_xml(orjson.loads(response.body), root)
    return HttpResponse(response.status, body, CONTENT_TYPE, response.headers)


def render_xml(value: object, root: str) -> bytes:
    """Render a JSON value as a document whose outermost element is `root`, or a record's type."""
    out = ['<?xml version="1.0" encoding="UTF-8"?>']
    space = f' xmlns:xsi="{XSI_NS}"'
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
    """Append one element, or one for each item of a list. Recursion is as deep as our own answers."""
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
    return UNPRINTABLE.sub("\ufffd", text)


def parse_body(request: HttpRequest) -> dict[str, object]:
    """Parse a request body in JSON or XML. Raises MediaTypeUnsupported, BodyTooLarge or BodyMalformed."""
    if request.media_type not in _MEDIA_TYPES:
        return parse_json_object(request)
    value = _value(parse_tree(decode_body(request), max_depth=MAX_JSON_DEPTH))
    if isinstance(value, dict):
        return value
    if value in (None, ""):
        return {}
    raise BodyMalformed("The request body must be an element with fields inside")


def _value(element: Element) -> object:
    if is_nil(element):
        return None
    if not len(element):
        return element.text or ""
    values: dict[str, object] = {}
    seen: set[str] = set()
    for child in element:
        name, value = local_name(child), _value(child)
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
