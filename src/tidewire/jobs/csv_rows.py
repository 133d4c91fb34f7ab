"""CSV of bulk jobs: parses blocks of bytes into rows of text, and renders rows. Pure.

A file that does not parse to its end is rejected whole, because after an unclosed quote the rows are unknown. Memory is
bounded: fields by the csv module (131,072 characters), lines and rows here.
"""

from __future__ import annotations

import csv
import io
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence

from tidewire.errors import JobInvalid
from tidewire.jobs.model import DELIMITERS, LINE_ENDINGS, MAX_COLUMNS, MAX_ROW_LENGTH

CsvRow = list[str]
_MAX_LINE_LENGTH = 4 * MAX_ROW_LENGTH


def iter_csv(blocks: Iterable[bytes], delimiter: str, line_ending: str) -> Iterator[CsvRow]:
    """Yield the rows, header first, without empty lines. An empty `line_ending` accepts any. Raises JobInvalid."""
    lines = _iter_lines(blocks)
    if line_ending:
        lines = _check_ending(lines, line_ending)
    rows = csv.reader(lines, delimiter=DELIMITERS[delimiter], strict=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise _malformed(f"line {rows.line_num}: {error}") from error
        if len(row) > MAX_COLUMNS:
            raise _malformed(f"line {rows.line_num}: more than {MAX_COLUMNS} columns")
        if sum(map(len, row)) > MAX_ROW_LENGTH:
            raise _malformed(f"line {rows.line_num}: more than {MAX_ROW_LENGTH} characters in one record")
        if row:
            yield row


def render_csv(rows: Iterable[Sequence[str]], delimiter: str, line_ending: str) -> bytes:
    """Render rows as CSV with every value quoted."""
    out = io.StringIO()
    writer = csv.writer(
        out,
        delimiter=DELIMITERS[delimiter],
        lineterminator=LINE_ENDINGS[line_ending],
        quoting=csv.QUOTE_ALL,
    )
    writer.writerows(rows)
    return out.getvalue().encode()


def _iter_lines(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield decoded lines with their endings, holding at most one block and one line."""
    decoder = getincrementaldecoder("utf-8-sig")()
    rest = ""
    try:
        for block in blocks:
            text = rest + decoder.decode(block)
            *lines, rest = text.split("\n")
            for line in lines:
                yield _checked(line) + "\n"
            if len(rest) > _MAX_LINE_LENGTH:
                raise _malformed(f"a line of more than {_MAX_LINE_LENGTH} characters")
        rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _malformed("the data is not UTF-8") from error
    if rest:
        yield _checked(rest)


def _checked(line: str) -> str:
    if "\0" in line:
        raise _malformed("the data holds a null character")
    if len(line) > _MAX_LINE_LENGTH:
        raise _malformed(f"a line of more than {_MAX_LINE_LENGTH} characters")
    return line


def _check_ending(lines: Iterator[str], line_ending: str) -> Iterator[str]:
    """Raise JobInvalid if the header has another line ending than the job declares."""
    first = next(lines, None)
    if first is None:
        return
    if first.endswith("\n") and first.endswith("\r\n") is not (line_ending == "CRLF"):
        raise JobInvalid(
            f"LineEnding is invalid on user data. Current LineEnding setting is {line_ending}",
            reason="ClientInputError",
        )
    yield first
    yield from lines


def _malformed(what: str) -> JobInvalid:
    return JobInvalid(f"Failed to parse CSV: {what}", reason="InvalidBatch")
