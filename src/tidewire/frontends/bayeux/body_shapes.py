"""Bodies of change events that hold the same fields as others before them.

Records are mostly made and updated in the same few ways, and then the bytes of their events differ in the values only:
so many nulls, a text, so many nulls, a moment. One match of such a shape finds all values at once. Only short texts
that need no escape in JSON are looked for; a body with any other value is read field by field.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import orjson

from tidewire.schema.compiler import Reader, read_long
from tidewire.schema.values import render_datetime

TEXT, DOUBLE, MOMENT, COMPOUND, OTHER = range(5)
"""How a field is read: as a text, a double, a moment that is told as such, by its parts, or by the schema's reader."""

Match = Callable[[bytes, int], re.Match[bytes] | None]

_VALUES = {
    TEXT: rb"([\x00-\x7e][ !#-\[\]-~]*)",  # its length, then what stands in a JSON string as it is
    DOUBLE: rb"(.{8})",
    MOMENT: rb"([\x80-\xff]{5}[\x00-\x7f])",  # of our time: six bytes
    COMPOUND: rb"",
}
_read_double = struct.Struct("<d").unpack
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


class BodyShape:
    """Writes bodies that hold values where another one did. Made by `try_shape`."""

    __slots__ = ("_labels", "_match", "_tail")

    def __init__(self, match: Match, labels: tuple[tuple[int, bytes], ...], tail: bytes) -> None:
        self._match = match
        self._labels = labels
        self._tail = tail

    def try_write(self, payload: bytes, p: int) -> bytes | None:
        """The rest of a JSON object, behind its first member, with the values of the body at `p`; None if that has
        another shape.
        """
        found = self._match(payload, p)
        if found is None:
            return None
        body = b""
        for (kind, label), raw in zip(self._labels, found.groups()):  # noqa: B905  # a group for each label
            if kind == TEXT:
                # What looks like the end of a text is one only if the length says so.
                if raw[0] != 2 * len(raw) - 2:
                    return None
                if label:
                    body += label + raw[1:]
            elif label:
                body += label + (_moment_of(raw) if kind == MOMENT else orjson.dumps(_read_double(raw)[0]))
        return body + self._tail


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
    match = _compiled((*draft.gaps, draft.nulls), tuple(draft.kinds))
    return BodyShape(match, tuple(draft.labels), draft.closing + nulled + b"}")


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


# Events of one run were mostly made in the same few seconds.
@lru_cache(maxsize=4096)
def _moment_of(raw: bytes) -> bytes:
    """The text of a moment, by the bytes of its milliseconds."""
    return render_datetime(read_long(raw, 0)[0], "Z").encode()


@lru_cache(maxsize=1024)
def _compiled(gaps: tuple[int, ...], kinds: tuple[int, ...]) -> Match:
    """What finds the values: for each gap so many nulls, then a value of its kind, but for the last, which ends it."""
    nulls = [rb"\x00{%d}" % gap for gap in gaps]
    values = [rb"\x02" + _VALUES[kind] for kind in kinds]
    pattern = b"".join(gap + value for gap, value in zip(nulls, [*values, rb"\Z"], strict=True))
    return re.compile(pattern, re.DOTALL).match
