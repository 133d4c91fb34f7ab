"""What was uploaded, row by row: CSV as rows of text under a header, JSON and XML as records. No I/O of its own.

JSON and XML come only in batches of the older API, which are small enough to be parsed at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from tidewire.access.jobs.csv_rows import CsvRow, iter_csv
from tidewire.access.jobs.model import MAX_BATCH_ROWS, JobKind, JobRequest
from tidewire.errors import BodyMalformed, JobInvalid

Values = dict[str, object]
InputRow = CsvRow | Values
_MAX_ELEMENTS = 500_000
_MAX_DEPTH = 8
_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def iter_input(request: JobRequest, blocks: Iterable[bytes]) -> Iterator[InputRow]:
    """The rows of an upload; the first one of CSV is its header. Reads nothing before it is asked for a row.

    Raises JobInvalid.
    """
    rows: Iterable[InputRow]
    if request.content_type == "CSV":
        # The older API has no such setting: its clients send either ending.
        line_ending = "" if request.kind is JobKind.CLASSIC else request.line_ending
        rows = iter_csv(blocks, request.delimiter, line_ending)
    elif request.content_type == "JSON":
        rows = parse_json_rows(b"".join(blocks))
    else:
        rows = parse_xml_rows(b"".join(blocks))
    if request.kind is JobKind.CLASSIC:
        rows = _bounded(rows, MAX_BATCH_ROWS + (request.content_type == "CSV"))
    yield from rows


def parse_json_rows(data: bytes) -> list[Values]:
    """The records of a JSON batch."""
    try:
        records = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JobInvalid("Failed to parse JSON", reason="InvalidBatch") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise JobInvalid("The batch must be a JSON array of records", reason="InvalidBatch")
    return [{name: value for name, value in record.items() if name != "attributes"} for record in records]


def parse_xml_rows(data: bytes) -> list[Values]:
    """The records of an XML batch: a nil element empties its field, an empty one says nothing."""
    try:
        root = parse_tree(data)
    except BodyMalformed as error:
        raise JobInvalid(error.message, reason="InvalidBatch") from error
    return [_parse_record(element) for element in root if local_name(element) == "sObject"]


def parse_tree(data: bytes) -> Element:
    """The tree of an XML document without a document type, of bounded size. Raises BodyMalformed."""
    if data.startswith(_UTF_16_MARKS) or b"\0" in data:
        raise BodyMalformed("The data must be UTF-8")
    parser = DefusedXMLParser(target=_BoundedTree(), encoding="utf-8", forbid_dtd=True)
    try:
        parser.feed(data)
        root: Element = parser.close()
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise BodyMalformed("Failed to parse XML") from error
    return root


def local_name(element: Element) -> str:
    """A tag without its namespace."""
    return element.tag.rpartition("}")[2]


class _BoundedTree(TreeBuilder):
    """Builds a batch's tree, and gives up on one that is too deep or too large."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > _MAX_DEPTH or self._count > _MAX_ELEMENTS:
            raise BodyMalformed("The batch has too many elements, or nests them too deep")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def _parse_record(element: Element) -> Values:
    values: Values = {}
    for child in element:
        name = local_name(child)
        if child.get(_NIL) in ("true", "1"):
            values[name] = None
        elif len(child):
            inner = child[0] if local_name(child[0]) == "sObject" else child
            values[name] = _parse_reference(inner)
        elif (child.text or "").strip() and name != "type":
            values[name] = child.text
    return values


def _parse_reference(element: Element) -> Values:
    reference: Values = {}
    for child in element:
        if local_name(child) == "type":
            reference["attributes"] = {"type": (child.text or "").strip()}
        elif child.text:
            reference[local_name(child)] = child.text
    return reference


def _bounded(rows: Iterable[InputRow], limit: int) -> Iterator[InputRow]:
    for count, row in enumerate(rows, 1):
        if count > limit:
            raise JobInvalid(
                f"Too many records in one batch, at most {MAX_BATCH_ROWS}", reason="InvalidBatch"
            )
        yield row
