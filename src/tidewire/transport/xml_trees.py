"""Parse untrusted XML: UTF-8 only, no DTD, no entities, limited depth and size. Pure."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from tidewire.errors import BodyMalformed, BodyTooLarge

XSI_NS = "http://www.w3.org/2001/XMLSchema-instance"
UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 forbids, even escaped."""
_DECLARED_ENCODING = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([^"']*)["']""")
_ENCODINGS = frozenset({b"utf-8", b"utf8", b"us-ascii", b"ascii"})
_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class _BoundedTree(TreeBuilder):
    """Builds a tree and raises if it becomes too deep or too large."""

    def __init__(self, max_depth: int, max_elements: int) -> None:
        super().__init__()
        self._max_depth = max_depth
        self._max_elements = max_elements
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > self._max_depth:
            raise BodyMalformed(f"The request nests elements more than {self._max_depth} deep")
        if self._count > self._max_elements:
            raise BodyTooLarge(f"The request has more than {self._max_elements} elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse_tree(body: bytes, *, max_depth: int = 32, max_elements: int = 100_000) -> Element:
    """Return the root element of a document. Raises BodyMalformed, or BodyTooLarge for too many elements."""
    declared = _DECLARED_ENCODING.match(body.removeprefix(_UTF_8_MARK))
    # The parser switches to UTF-16 on a byte order mark or zero bytes, whatever encoding it is given.
    is_odd = body.startswith(_UTF_16_MARKS) or b"\0" in body
    if is_odd or (declared is not None and declared[1].lower() not in _ENCODINGS):
        raise BodyMalformed("The request must be UTF-8")
    builder = _BoundedTree(max_depth, max_elements)
    parser = DefusedXMLParser(target=builder, encoding="utf-8", forbid_dtd=True)
    try:
        parser.feed(body)
        tree: Element = parser.close()
    except DefusedXmlException as err:
        raise BodyMalformed("DTD and entity declarations are not allowed") from err
    except (ParseError, ValueError, LookupError) as err:  # the latter two for encodings that expat refuses
        raise BodyMalformed(f"The request is not well-formed XML: {err}") from err
    return tree


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def is_nil(element: Element) -> bool:
    """Whether an element is marked as xsi:nil."""
    return element.get(f"{{{XSI_NS}}}nil") in ("true", "1")
