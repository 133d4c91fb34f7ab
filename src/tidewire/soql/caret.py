"""Error messages that point at a place in a query.

The REST API answers most query errors with the piece of the query around the fault, a caret under the
fault, the row and column, and a reason. Row and column count from 1 in the query as it was sent. The piece
reaches thirty characters either way and then to the end of the word it would cut, but never leaves the row.
"""

from __future__ import annotations

from typing import TypeVar

from tidewire.errors import RequestError

_REACH = 30
_LONGEST_WORD = (
    255  # a string literal may be one word of thousands of characters; no message repeats all of it
)
_BREAKS = " \t,"

ErrorT = TypeVar("ErrorT", bound=RequestError)


def locate(text: str, position: int) -> tuple[int, int]:
    """Return row and column, both from 1, of a place in the query."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def render_caret_block(text: str, position: int, reason: str) -> str:
    """Return the message that shows where `reason` applies."""
    row_start = text.rfind("\n", 0, position) + 1
    row_end = text.find("\n", position)
    row = text[row_start : len(text) if row_end < 0 else row_end].rstrip("\r")
    place = position - row_start
    start = max(0, place - _REACH)
    while start > 0 and place - start < _LONGEST_WORD and row[start - 1] not in _BREAKS:
        start -= 1
    end = min(len(row), place + _REACH)
    while end < len(row) and end - place < _LONGEST_WORD and row[end] not in _BREAKS:
        end += 1
    row_number, column = locate(text, position)
    pointer = " " * (place - start) + "^"
    return f"\n{row[start:end]}\n{pointer}\nERROR at Row:{row_number}:Column:{column}\n{reason}"


def pointing_error(
    kind: type[ErrorT], text: str, position: int, reason: str, *, shows_place: bool = True, **details: object
) -> ErrorT:
    """Return an error with the details `row`, `column`, `query` and `reason`; its message points at the place.

    A few reasons come without the block on the wire; for them `shows_place` is False.
    """
    row, column = locate(text, position)
    message = render_caret_block(text, position, reason) if shows_place else reason
    return kind(message, row=row, column=column, query=text, reason=reason, **details)
