"""Body shapes: which fields of a change event's body are set, as a regular expression over its Avro bytes.

Applications create and update records in a few ways, so the bytes of their events differ only in the values: some
nulls, a text, some nulls, a timestamp. One match of a shape finds every value at once (see `json_templates`). A shape
covers short texts that need no JSON escape, doubles and timestamps; any other body is read field by field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from tidewire.schema.compiler import Reader

TEXT, DOUBLE, MOMENT, COMPOUND, OTHER = range(5)
"""How a field is read: text, double, timestamp, compound (by its parts), or by the schema's own reader."""

_VALUES = {
    TEXT: rb"([\x00-\x7e][ !#-\[\]-~]*)",  # length prefix, then characters that JSON does not escape
    DOUBLE: rb"(.{8})",
    MOMENT: rb"([\x80-\xff]{5}[\x00-\x7f])",  # zigzag milliseconds of this era take six bytes
    COMPOUND: rb"",
}
count_nulls = re.compile(rb"\0*").match


class BodyField(NamedTuple):
    """A field of a body, or a part of a compound.

    `name` is None if the field is hidden from the receiver; `convert` renders its number; `seen` names the visible
    parts of a compound.
    """

    kind: int
    name: str | None
    read: Reader
    convert: Callable[[int], str] | None
    parts: tuple[BodyField, ...]
    seen: frozenset[str]


@dataclass(frozen=True, slots=True)
class BodyShape:
    """Bodies with values in the same fields.

    `pattern` has one group per value and matches to the end of the payload. `labels` holds, per value, its kind and the
    JSON before it (empty if the value is hidden). `tail` is the JSON after the last value.
    """

    pattern: bytes
    labels: tuple[tuple[int, bytes], ...]
    tail: bytes


def try_shape(
    fields: Sequence[BodyField], payload: bytes, p: int, changed: Iterable[str]
) -> BodyShape | None:
    """Return the shape of the body at `p`, or None if it has a value that shapes do not cover.

    Visible fields in `changed` are rendered as null if the body does not set them.
    """
    draft = _Draft()
    if not draft.add(fields, payload, p, b",", is_rendered=True):
        return None
    nulled = b"".join(b",%b:null" % orjson.dumps(name) for name in changed if name not in draft.rendered)
    nulls = [rb"\x00{%d}" % gap for gap in (*draft.gaps, draft.nulls)]
    values = [rb"\x02" + _VALUES[kind] for kind in draft.kinds]
    pattern = b"".join(gap + value for gap, value in zip(nulls, [*values, rb"\Z"], strict=True))
    return BodyShape(pattern, tuple(draft.labels), draft.closing + nulled + b"}")


class _Draft:
    """Collects a shape: the nulls before each value, the kinds, and the labels.

    A label closes the value before it, because only then is it known that another one follows.
    """

    def __init__(self) -> None:
        self.gaps: list[int] = []
        self.kinds: list[int] = []
        self.labels: list[tuple[int, bytes]] = []
        self.rendered: set[str] = set()
        self.nulls = 0
        self.closing = b""
        self._end = 0

    def add(
        self, fields: Sequence[BodyField], payload: bytes, p: int, comma: bytes, *, is_rendered: bool
    ) -> bool:
        """Add the fields at `p`; return False if a shape cannot cover one of them."""
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
            is_shown = is_rendered and name is not None
            label = b"%b%b%b:" % (self.closing, comma, orjson.dumps(name)) if is_shown else b""
            if kind == COMPOUND:
                before, closing = len(self.labels), self.closing
                if is_shown:
                    self.closing = label + b"{"
                if not self.add(parts, payload, p + 1, b"", is_rendered=is_shown):
                    return False
                p = self._end
                if is_shown and not any(text for _, text in self.labels[before:]):
                    return (
                        False  # every set part is hidden; the slow path decides whether the compound appears
                    )
                self.closing = self.closing + b"}" if is_shown else closing
            else:
                opening = b"" if kind == DOUBLE else b'"'
                self.labels.append((kind, label and label + opening))
                if is_shown:
                    self.closing = opening
                _, p = read(payload, p)
            if is_shown:
                comma = b","
                self.rendered.add(str(name))
        self._end = p
        return True
