"""Metadata as XML, in SOAP messages and files: elements to plain mappings and back. Pure.

An element without children is text; a repeated one is a list. Files are UTF-8 without a document type, and limited in
depth and size.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from tidewire.errors import BodyMalformed, BodyTooLarge
from tidewire.transport.xml_trees import UNPRINTABLE, is_nil, local_name, parse_tree

NAMESPACE = "http://soap.sforce.com/2006/04/metadata"
_MAX_DEPTH = 16
_MAX_ELEMENTS = 200_000


def parse_file(data: bytes, root: str) -> dict[str, object]:
    """Parse a metadata file with the outermost element `root`. Raises BodyMalformed."""
    try:
        tree = parse_tree(data, max_depth=_MAX_DEPTH, max_elements=_MAX_ELEMENTS)
    except (BodyMalformed, BodyTooLarge) as err:
        raise BodyMalformed(f"Error parsing file: {err.message}") from err
    if tree.tag != f"{{{NAMESPACE}}}{root}":
        raise BodyMalformed(f"The file's outermost element is not {root} of {NAMESPACE}")
    found = properties_of(tree)
    return found if isinstance(found, dict) else {}


def properties_of(element: Element) -> dict[str, object] | str | None:
    """Return the content of an element: a mapping of its children, or its text."""
    if is_nil(element):
        return None
    if not len(element):
        return element.text or ""
    found: dict[str, object] = {}
    lists: set[str] = set()
    for child in element:
        name = local_name(child)
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
    # XML parsers turn a bare carriage return into a line feed.
    return escape(UNPRINTABLE.sub("\ufffd", text), {"\r": "&#13;"})


def render_properties(properties: Mapping[str, object], indent: str | None = None) -> str:
    """Render elements in the order of the mapping, each on its own line if there is an indent."""
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
    """Render a metadata file; `parse_file` returns the same properties, with numbers and booleans as text."""
    inner = render_properties(properties, "    ")
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<{root} xmlns="{NAMESPACE}">\n{inner}</{root}>\n'.encode()
