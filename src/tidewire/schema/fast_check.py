"""Payloads of flat schemas that fit as one look tells: a pattern that matches most of those that do, and no others.

What it does not match may fit all the same and is for the checker to say: a text of many characters or of other than
ASCII ones, a number of more bytes than its kind mostly has. Every group is atomic, and no two branches begin alike,
so that a look takes time in proportion to the payload.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

FastCheck = Callable[[bytes], re.Match[bytes] | None]

_PATTERNS = {
    "null": rb"",
    "boolean": rb"[\x00\x01]",
    "int": rb"[\x80-\xff]{0,3}+[\x00-\x7f]",
    "long": rb"[\x80-\xff]{0,8}+[\x00-\x7f]",
    "float": rb".{4}",
    "double": rb".{8}",
}
_LENGTHS = 64  # those of one byte
_MOST_LENGTHS = 1000  # of all texts together: compiling them takes some thirty milliseconds
_FEWEST_LENGTHS = 20
_MOST_BRANCHES = 63


def try_compile_fast_check(schema: Any) -> FastCheck | None:
    """The pattern of a record; None for one with other than plain values, or with too many texts."""
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
    ways = (re.escape(bytes([2 * size])) + rb"[\x00-\x7f]{%d}" % size for size in range(lengths))
    return b"(?>" + b"|".join(ways) + b")"
