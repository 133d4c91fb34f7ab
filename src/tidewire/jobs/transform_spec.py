"""Transformation specs: map the columns of a foreign CSV file to fields. Pure.

A spec has a line for each field: its source column, a default for empty cells, and a hint. The hint is a Java date
format for dates and datetimes, and for checkboxes a pattern of the words that mean true. Columns without a line are
omitted. A person's full name is split into first and last name.

Clients supply the patterns, so only alternatives of plain words are accepted: other regular expressions could take
exponential time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidewire.errors import JobInvalid
from tidewire.jobs.csv_rows import CsvRow
from tidewire.jobs.model import MAX_COLUMNS
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType

SpecLine = tuple[str, str, str, str]
_HEADER = ["salesforce field", "csv header", "value", "hint"]
_MAX_HINT = 200
_WORDS = re.compile(r"\^?(\(?(?:\?i:|\?:)?)([\w .\-]+(?:\|[\w .\-]*)*)\)?\$?")
_LETTERS = re.compile(r"'[^']*'|([A-Za-z])\1*|[^A-Za-z']+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PARTS = {
    "y": r"(?P<y>[0-9]{1,4})",
    "Y": r"(?P<y>[0-9]{1,4})",
    "M": r"(?P<M>[0-9]{1,2}|[A-Za-z]{3,9})",
    "d": r"(?P<d>[0-9]{1,2})",
    "H": r"(?P<H>[0-9]{1,2})",
    "h": r"(?P<h>[0-9]{1,2})",
    "m": r"(?P<m>[0-9]{1,2})",
    "s": r"(?P<s>[0-9]{1,2})",
    "S": r"(?P<S>[0-9]{1,3})",
    "a": r"(?P<a>[AaPp][Mm])",
    "E": r"(?P<E>[A-Za-z]{3,9})",
    "Z": r"(?P<Z>Z|[+-][0-9]{2}:?[0-9]{2})",
    "X": r"(?P<Z>Z|[+-][0-9]{2}:?[0-9]{2})",
}
_LAST_SHORT_YEAR = 39  # of this century; `40` was 1940


def parse_spec(rows: Iterable[CsvRow]) -> tuple[SpecLine, ...]:
    """Parse the lines of a spec. Raises JobInvalid."""
    lines: list[SpecLine] = []
    for place, row in enumerate(rows):
        cells = [cell.strip() for cell in row]
        if place == 0:
            if [cell.lower() for cell in cells] != _HEADER:
                raise _invalid("The first line must be: Salesforce Field,Csv Header,Value,Hint")
            continue
        if len(cells) != len(_HEADER) or not cells[0]:
            raise _invalid(f"line {place + 1} must name a field and have four columns")
        field, column, value, hint = cells
        if len(hint) > _MAX_HINT or len(lines) >= MAX_COLUMNS:
            raise _invalid(
                f"line {place + 1} exceeds the limit of {_MAX_HINT} characters or {MAX_COLUMNS} fields"
            )
        lines.append((field, column, value, hint))
    if not lines:
        raise _invalid("it has no field")
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class _Taken:
    """The source of one line's cells. A negative `place` means that no column is named."""

    place: int
    default: str
    read: Callable[[str], list[str]]


class Transform:
    """Converts rows of a file to rows under `header`. Raises JobInvalid for a column that the file lacks."""

    def __init__(self, spec: Sequence[SpecLine], obj: ObjectType, given: Sequence[str]) -> None:
        places = {name.strip().lower(): place for place, name in enumerate(given)}
        self.header: list[str] = []
        self._taken: list[_Taken] = []
        for name, column, default, hint in spec:
            place = places.get(column.lower(), -1) if column else -1
            if column and place < 0:
                raise JobInvalid(f"Field name not found : {column[:80]}", reason="InvalidBatch")
            field = obj.try_field(name)
            kind = None if field is None else field.type
            if kind is FieldType.PERSON_NAME:
                self.header += ["LastName", "FirstName"]
                self._taken.append(_Taken(place, default, _split_name))
                continue
            self.header.append(name)
            self._taken.append(_Taken(place, default, _reader_of(kind, hint)))

    def row(self, cells: Sequence[str]) -> CsvRow:
        """Convert a row. A cell that does not match its hint stays as it is, and fails when it is written."""
        out: CsvRow = []
        for taken in self._taken:
            text = cells[taken.place] if 0 <= taken.place < len(cells) else ""
            out += taken.read(text or taken.default)
        return out


def _reader_of(kind: FieldType | None, hint: str) -> Callable[[str], list[str]]:
    if hint and kind is FieldType.CHECKBOX:
        return _truth_reader(hint)
    if hint and kind in (FieldType.DATE, FieldType.DATETIME):
        return _date_reader(hint, is_day=kind is FieldType.DATE)
    return lambda text: [text]


def _truth_reader(hint: str) -> Callable[[str], list[str]]:
    found = _WORDS.fullmatch(hint)
    if found is None:
        raise _invalid(f"The hint {hint[:40]!r} must be words with | between them")
    words = {word.strip().lower() for word in found[2].split("|")}
    return lambda text: [text if not text else "true" if text.strip().lower() in words else "false"]


def _date_reader(hint: str, *, is_day: bool) -> Callable[[str], list[str]]:
    pieces: list[str] = []
    seen: set[str] = set()
    for found in _LETTERS.finditer(hint):
        letter = found[1]
        if letter is None:
            literal = found[0][1:-1] if found[0].startswith("'") else found[0]
            pieces.append(re.escape(literal))
            continue
        part = _PARTS.get(letter)
        if part is None or part in seen:
            raise _invalid(f"The date format {hint[:40]!r} is not understood at {letter!r}")
        seen.add(part)
        pieces.append(part)
    pattern = re.compile("".join(pieces))

    def read(text: str) -> list[str]:
        found = pattern.fullmatch(text.strip())
        return [text if found is None else _render(found.groupdict(), is_day=is_day) or text]

    return read


def _render(parts: dict[str, str | None], *, is_day: bool) -> str:
    """Render a date or datetime in the API's form; empty if a part is missing or the month is unknown."""
    year, month, day = parts.get("y"), parts.get("M"), parts.get("d")
    if year is None or month is None or day is None:
        return ""
    if not month.isdigit():
        if month[:3].lower() not in _MONTHS:
            return ""
        month = str(_MONTHS.index(month[:3].lower()) + 1)
    number = int(year)
    if len(year) <= 2:
        number += 2000 if number <= _LAST_SHORT_YEAR else 1900
    shown = f"{number:04}-{int(month):02}-{int(day):02}"
    if is_day:
        return shown
    hour = int(parts.get("H") or 0)
    if (clock := parts.get("h")) is not None:
        hour = int(clock) % 12 + (12 if (parts.get("a") or "am").lower() == "pm" else 0)
    minute, second, part = (int(parts.get(name) or 0) for name in ("m", "s", "S"))
    zone = parts.get("Z") or "Z"
    return f"{shown}T{hour:02}:{minute:02}:{second:02}.{part:03}{zone}"


def _split_name(text: str) -> list[str]:
    """Split a name into last and first: `Cat, Tom` and `Tom Cat` are the same person."""
    last, comma, first = text.partition(",")
    if not comma:
        first, _, last = text.strip().rpartition(" ")
    return [last.strip(), first.strip()]


def _invalid(what: str) -> JobInvalid:
    return JobInvalid(f"The transformation spec cannot be used: {what}", reason="ClientInputError")
