"""LIKE patterns: taken apart once, then matched in Python or written for a database.

Patterns work on folded keys, so `_` stands for one character of the key, not of the text it came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from tidewire.schema.text_keys import fold_key
from tidewire.soql.ast import StringLiteral

_LAST_BEFORE_SURROGATES = 0xD7FF
_FIRST_AFTER_SURROGATES = 0xE000
_LAST_CODE_POINT = 0x10FFFF


class Wildcard(Enum):
    """The two characters that stand for others."""

    ANY = "%"
    ONE = "_"


LikePart = str | Wildcard


def parse_pattern(literal: StringLiteral, *, case_sensitive: bool) -> tuple[LikePart, ...]:
    """The wildcards of a pattern and the runs of text between them, folded; neighbouring `%` count once."""
    parts: list[LikePart] = []
    run: list[str] = []

    def end_run() -> None:
        if run:
            parts.append(fold_key("".join(run), case_sensitive=case_sensitive))
            run.clear()

    escaped = frozenset(literal.escaped_wildcards)
    for place, char in enumerate(literal.value):
        if char not in "%_" or place in escaped:
            run.append(char)
            continue
        end_run()
        wildcard = Wildcard(char)
        if not (wildcard is Wildcard.ANY and parts and parts[-1] is Wildcard.ANY):
            parts.append(wildcard)
    end_run()
    return tuple(parts)


def try_exact(parts: tuple[LikePart, ...]) -> str | None:
    """Return the one key that a pattern without wildcards matches, or None."""
    match parts:
        case ():
            return ""
        case (str() as text,):
            return text
        case _:
            return None


def try_prefix(parts: tuple[LikePart, ...]) -> str | None:
    """What every match of a pattern like `abc%` begins with, or None for other patterns."""
    match parts:
        case (Wildcard.ANY,):
            return ""
        case (str() as text, Wildcard.ANY):
            return text
        case _:
            return None


def successor(prefix: str) -> str | None:
    """Return the first key after all that begin with `prefix`, in code point order; None if there is none.

    Code point order is the byte order of UTF-8, which is how all stores compare keys.
    """
    chars = list(prefix)
    while chars:
        code = ord(chars.pop())
        if code == _LAST_CODE_POINT:
            continue
        following = _FIRST_AFTER_SURROGATES if code == _LAST_BEFORE_SURROGATES else code + 1
        return "".join([*chars, chr(following)])
    return None


def render_sql_pattern(parts: Iterable[LikePart]) -> str:
    """Render the pattern for SQL's LIKE with backslash as its escape character."""
    return "".join(
        part.value if isinstance(part, Wildcard) else re.sub(r"([\\%_])", r"\\\1", part) for part in parts
    )


@dataclass(frozen=True, slots=True)
class _Segment:
    """What stands between two `%`: its length is known, so it is found without ever going back."""

    length: int
    text: str
    pattern: re.Pattern[str] | None  # only if the segment holds `_`

    def is_at(self, key: str, place: int) -> bool:
        if self.pattern is None:
            return key.startswith(self.text, place)
        return self.pattern.match(key, place) is not None

    def find(self, key: str, start: int, end: int) -> int:
        if self.pattern is None:
            return key.find(self.text, start, end)
        found = self.pattern.search(key, start, end)
        return -1 if found is None else found.start()


def _segment(parts: list[LikePart]) -> _Segment:
    length = sum(1 if isinstance(part, Wildcard) else len(part) for part in parts)
    if Wildcard.ONE not in parts:
        return _Segment(length, "".join(part for part in parts if isinstance(part, str)), None)
    source = "".join("." if isinstance(part, Wildcard) else re.escape(part) for part in parts)
    return _Segment(length, "", re.compile(source, re.DOTALL))


def compile_matcher(parts: tuple[LikePart, ...]) -> Callable[[str], bool]:
    """Compile a test of one folded key. Its time grows with the key's length times the pattern's, at worst."""
    groups: list[list[LikePart]] = [[]]
    for part in parts:
        if part is Wildcard.ANY:
            groups.append([])
        else:
            groups[-1].append(part)
    head, *others = (_segment(group) for group in groups)
    if not others:
        return lambda key: len(key) == head.length and head.is_at(key, 0)
    *middle, tail = others
    shortest = head.length + tail.length + sum(segment.length for segment in middle)

    def matches(key: str) -> bool:
        end = len(key) - tail.length
        if len(key) < shortest or not head.is_at(key, 0) or not tail.is_at(key, end):
            return False
        place = head.length
        for segment in middle:
            found = segment.find(key, place, end)
            if found < 0:
                return False
            place = found + segment.length
        return True

    return matches
