"""Metadata as XML, in SOAP messages and in files alike: elements to plain mappings and back. Pure.

An element without children is text; one that comes several times is a list. Files are UTF-8 without a document
type, neither deep nor large.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.sax.saxutils import escape

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from tidewire.errors import BodyMalformed

NAMESPACE = "http://soap.sforce.com/2006/04/metadata"
_XSI_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_MAX_DEPTH = 16
_MAX_ELEMENTS = 200_000
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _BoundedTree(TreeBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > _MAX_DEPTH or self._count > _MAX_ELEMENTS:
            raise BodyMalformed("The file nests too deeply or has too many elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse_file(data: bytes, root: str) -> dict[str, object]:
    """The properties in a metadata file whose outermost element is `root`. Raises BodyMalformed."""
    parser = DefusedXMLParser(target=_BoundedTree(), forbid_dtd=True)
    try:
        parser.feed(data)
        tree: Element = parser.close()
    except DefusedXmlException as err:
        raise BodyMalformed("DTD and entity declarations are not allowed") from err
    except (ParseError, ValueError, LookupError) as err:
        raise BodyMalformed(f"Error parsing file: {err}") from err
    if tree.tag != f"{{{NAMESPACE}}}{root}":
        raise BodyMalformed(f"The file's outermost element is not {root} of {NAMESPACE}")
    found = properties_of(tree)
    return found if isinstance(found, dict) else {}


def properties_of(element: Element) -> dict[str, object] | str | None:
    """An element's content: a mapping of its children, or its text."""
    if element.get(_XSI_NIL) in ("true", "1"):
        return None
    if not len(element):
        return element.text or ""
    found: dict[str, object] = {}
    lists: set[str] = set()
    for child in element:
        name = child.tag.rpartition("}")[2]
        value = properties_of(child)
        if value is None:
            continue
        if name in lists:
            several = found[name]
            assert isinstance(several, list)  # noqa: S101  # lists says so
            several.append(value)
        elif name in found:
            found[name] = [found[name], value]
            lists.add(name)
        else:
            found[name] = value
    return found


def _clean(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # A bare carriage return would be read back as a line feed.
    return escape(_UNPRINTABLE.sub("\ufffd", text), {"\r": "&#13;"})


def render_properties(properties: Mapping[str, object], indent: str | None = None) -> str:
    """Elements in the order of the mapping, each on its own line if there is an indent."""
    return "".join(_render(name, value, indent) for name, value in properties.items())


def _render(name: str, value: object, indent: str | None) -> str:
    start, end = ("", "") if indent is None else (indent, "\n")
    if isinstance(value, list | tuple):
        return "".join(_render(name, item, indent) for item in value)
    if isinstance(value, Mapping):
        inner = render_properties(value, None if indent is None else indent + "    ")
        return f"{start}<{name}>{end}{inner}{start}</{name}>{end}"
    return f"{start}<{name}>{_clean(value)}</{name}>{end}"


def render_file(root: str, properties: Mapping[str, object]) -> bytes:
    """A metadata file; `parse_file` gives the properties back, numbers and truths as text."""
    inner = render_properties(properties, "    ")
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<{root} xmlns="{NAMESPACE}">\n{inner}</{root}>\n'.encode()
