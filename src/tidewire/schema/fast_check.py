"""A regular expression that accepts most valid payloads of a flat schema without decoding them.

It never accepts an invalid payload. What it does not match may be valid all the same, and the generated checker
decides: a long text or one that is not ASCII, a number of more bytes than its type mostly has. Every group is
atomic and no two branches begin alike, so nothing is tried twice: a match takes time in proportion to the
payload, whatever a client sends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

FastCheck = Callable[[bytes], re.Match[bytes] | None]

# Numbers one byte shorter than the longest that fit: those need no test of their value.
_PATTERNS = {
    "null": rb"",
    "boolean": rb"[\x00\x01]",
    "int": rb"[\x80-\xff]{0,3}+[\x00-\x7f]",
    "long": rb"[\x80-\xff]{0,8}+[\x00-\x7f]",
    "float": rb".{4}",
    "double": rb".{8}",
}
_LENGTHS = 64  # those of one byte
_MOST_LENGTHS = 1000  # alternatives of all texts together: compiling them takes some thirty milliseconds
_FEWEST_LENGTHS = 20  # with fewer for each text, too many payloads would fail to match
_MOST_BRANCHES = 63  # whose number is one byte


def try_compile_fast_check(schema: Any) -> FastCheck | None:
    """Compile the expression for a record; None if it holds other than plain values, or too many texts."""
    types = [field["type"] for field in schema["fields"]]
    branches = [branch for kind in types for branch in (kind if isinstance(kind, list) else [kind])]
    texts = branches.count("string")
    lengths = min(_LENGTHS, _MOST_LENGTHS // texts) if texts else _LENGTHS
    if lengths < _FEWEST_LENGTHS or not all(isinstance(kind, str) for kind in branches):
        return None
    known = {**_PATTERNS, "string": _text_pattern(lengths)}
    if not known.keys() >= set(branches) or any(
        isinstance(kind, list) and len(kind) > _MOST_BRANCHES for kind in types
    ):
        return None
    return re.compile(b"".join(_pattern(kind, known) for kind in types), re.DOTALL).fullmatch


def _pattern(kind: Any, known: dict[str, bytes]) -> bytes:
    if not isinstance(kind, list):
        return known[kind]
    branches = (re.escape(bytes([2 * place])) + known[branch] for place, branch in enumerate(kind))
    return b"(?>" + b"|".join(branches) + b")"


def _text_pattern(lengths: int) -> bytes:
    # A pattern cannot read a length, so each has an alternative: its byte, then as many ASCII characters.
    ways = (re.escape(bytes([2 * size])) + rb"[\x00-\x7f]{%d}" % size for size in range(lengths))
    return b"(?>" + b"|".join(ways) + b")"
