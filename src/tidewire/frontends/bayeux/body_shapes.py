"""Bodies of change events that hold the same fields as others before them.

Records are mostly made and updated in the same few ways, and then the bytes of their events differ in the values only:
so many nulls, a text, so many nulls, a moment. One match of such a shape finds all values at once (see `stencils`).
Only short texts that need no escape in JSON are looked for; a body with any other value is read field by field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from tidewire.schema.compiler import Reader

TEXT, DOUBLE, MOMENT, COMPOUND, OTHER = range(5)
"""How a field is read: as a text, a double, a moment that is told as such, by its parts, or by the schema's reader."""

_VALUES = {
    TEXT: rb"([\x00-\x7e][ !#-\[\]-~]*)",  # its length, then what stands in a JSON string as it is
    DOUBLE: rb"(.{8})",
    MOMENT: rb"([\x80-\xff]{5}[\x00-\x7f])",  # of our time: six bytes
    COMPOUND: rb"",
}
count_nulls = re.compile(rb"\0*").match


class BodyField(NamedTuple):
    """A field of a body, or a part of a compound: how it is read, its name unless it is hidden, its reader, how its
    number is told, its parts, and the names of those that are not hidden.
    """

    kind: int
    name: str | None
    read: Reader
    convert: Callable[[int], str] | None
    parts: tuple[BodyField, ...]
    seen: frozenset[str]


@dataclass(frozen=True, slots=True)
class BodyShape:
    """Bodies that hold values where another one did: a pattern that has a group for each value and ends with the
    payload; for each value its kind and what stands before it in JSON, if it is told; and what stands behind the last.
    """

    pattern: bytes
    labels: tuple[tuple[int, bytes], ...]
    tail: bytes


def try_shape(
    fields: Sequence[BodyField], payload: bytes, p: int, changed: Iterable[str]
) -> BodyShape | None:
    """The shape of the body at `p`, of whose visible fields those `changed` are told even if they are null; None for
    one with values that no shape is made of.
    """
    draft = _Draft()
    if not draft.add(fields, payload, p, b",", is_told=True):
        return None
    nulled = b"".join(b",%b:null" % orjson.dumps(name) for name in changed if name not in draft.told)
    nulls = [rb"\x00{%d}" % gap for gap in (*draft.gaps, draft.nulls)]
    values = [rb"\x02" + _VALUES[kind] for kind in draft.kinds]
    pattern = b"".join(gap + value for gap, value in zip(nulls, [*values, rb"\Z"], strict=True))
    return BodyShape(pattern, tuple(draft.labels), draft.closing + nulled + b"}")


class _Draft:
    """A shape on its way: the nulls before each value, their kinds, and labels, each of which ends the value before
    its own.
    """

    def __init__(self) -> None:
        self.gaps: list[int] = []
        self.kinds: list[int] = []
        self.labels: list[tuple[int, bytes]] = []
        self.told: set[str] = set()
        self.nulls = 0
        self.closing = b""
        self._end = 0

    def add(
        self, fields: Sequence[BodyField], payload: bytes, p: int, comma: bytes, *, is_told: bool
    ) -> bool:
        """Take in the fields at `p`; False if one of them is of no use."""
        for kind, name, read, _, parts, _ in fields:
            if payload[p] == 0:
                self.nulls += 1
                p += 1
                continue
            if kind == OTHER or payload[p] != 2:
                return False
            self.gaps.append(self.nulls)
            self.kinds.append(kind)
            self.nulls = 0
            is_shown = is_told and name is not None
            label = b"%b%b%b:" % (self.closing, comma, orjson.dumps(name)) if is_shown else b""
            if kind == COMPOUND:
                before, closing = len(self.labels), self.closing
                if is_shown:
                    self.closing = label + b"{"
                if not self.add(parts, payload, p + 1, b"", is_told=is_shown):
                    return False
                p = self._end
                if is_shown and not any(text for _, text in self.labels[before:]):
                    return False  # nothing of it is to be seen
                self.closing = self.closing + b"}" if is_shown else closing
            else:
                opening = b"" if kind == DOUBLE else b'"'
                self.labels.append((kind, label and label + opening))
                if is_shown:
                    self.closing = opening
                _, p = read(payload, p)
            if is_shown:
                comma = b","
                self.told.add(str(name))
        self._end = p
        return True
