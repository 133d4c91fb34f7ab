"""Reads uploads row by row: CSV as rows of text under a header, JSON and XML as records.

JSON and XML exist only in batches of the older API, which are small enough to parse at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from xml.etree.ElementTree import Element

from tidewire.errors import BodyMalformed, BodyTooLarge, InternalError, JobInvalid
from tidewire.jobs import store
from tidewire.jobs.csv_rows import CsvRow, iter_csv
from tidewire.jobs.model import MAX_BATCH_ROWS, JobKind, JobRequest
from tidewire.storage.store import Reader
from tidewire.transport.xml_trees import is_nil, local_name, parse_tree

Values = dict[str, object]
InputRow = CsvRow | Values
_MAX_ELEMENTS = 500_000
_MAX_DEPTH = 8
_MAX_LENGTH = 4 << 20  # characters of the rows read at once; JSON and XML records are in memory anyway


class UploadReader:
    """Reads the rows of a stored upload, a bounded number per read transaction, on the caller's thread."""

    def __init__(self, request: JobRequest, batch_id: str) -> None:
        self._reader: Reader | None = None
        self._rows: Iterator[InputRow] = iter_input(request, store.iter_parts(self._current, batch_id))

    def take(self, reader: Reader, count: int) -> list[InputRow]:
        """Return the next rows, at most `count` and fewer if they are long; none at the end. Raises JobInvalid."""
        self._reader = reader
        taken: list[InputRow] = []
        length = 0
        try:
            for row in islice(self._rows, count):
                taken.append(row)
                length += sum(map(len, row)) if isinstance(row, list) else 0
                if length > _MAX_LENGTH:
                    break
        finally:
            self._reader = None
        return taken

    def _current(self) -> Reader:
        if self._reader is None:
            raise InternalError("rows are read outside a transaction")
        return self._reader


def iter_input(request: JobRequest, blocks: Iterable[bytes]) -> Iterator[InputRow]:
    """Yield the rows of an upload, for CSV the header first. Reads nothing in advance. Raises JobInvalid."""
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
    """Parse the records of a JSON batch."""
    try:
        records = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JobInvalid("Failed to parse JSON", reason="InvalidBatch") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise JobInvalid("The batch must be a JSON array of records", reason="InvalidBatch")
    return [{name: value for name, value in record.items() if name != "attributes"} for record in records]


def parse_xml_rows(data: bytes) -> list[Values]:
    """Parse the records of an XML batch. A nil element clears its field, an empty one leaves it unchanged."""
    try:
        root = parse_tree(data, max_depth=_MAX_DEPTH, max_elements=_MAX_ELEMENTS)
    except (BodyMalformed, BodyTooLarge) as error:
        raise JobInvalid(error.message, reason="InvalidBatch") from error
    return [_parse_record(element) for element in root if local_name(element) == "sObject"]


def _parse_record(element: Element) -> Values:
    values: Values = {}
    for child in element:
        name = local_name(child)
        if is_nil(child):
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
