"""Change events as the Streaming API spells them, written straight from their stored bytes.

An event is taken apart once. What the headers of many events have in common (entity, kind of change, origin, changed
fields) is spelled once for all of them; of the rest, the fields that are null cost next to nothing.

What is told: of CREATE and UNDELETE every field that is set; of UPDATE what the event holds, which is what
changed and what its channel adds, and null for what was changed to nothing; of DELETE what its channel adds.
Gap events, and events for all records, have a header only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from tidewire.events import Event
from tidewire.frontends.bayeux.body_shapes import (
    COMPOUND,
    DOUBLE,
    MOMENT,
    OTHER,
    TEXT,
    BodyField,
    count_nulls,
    try_shape,
)
from tidewire.frontends.bayeux.stencils import Stencil, make_stencil
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.compiler import refuse
from tidewire.schema.field_types import ValueKind, doc_kind
from tidewire.schema.header_matching import (
    has_usual_header,
    header_pattern,
    match_header,
    read_number,
    render_number,
    try_common_header,
)
from tidewire.schema.redaction import component_field
from tidewire.schema.sparse_reader import FieldReader
from tidewire.schema.values import render_date, render_datetime, render_time

# In wire order; the bitmaps are not for this protocol, which names the changed fields instead.
_HEADER_FIELDS = (
    "entityName",
    "recordIds",
    "changeType",
    "changeOrigin",
    "transactionKey",
    "sequenceNumber",
    "commitTimestamp",
    "commitNumber",
    "commitUser",
)
_HEADER = "ChangeEventHeader"
_WITH_BODY = frozenset({"CREATE", "UNDELETE", "UPDATE", "DELETE"})
_ALL_RECORDS = "*"  # in place of an id: a field lost its values, and no record's own are told
_SPELLINGS_KEPT = 256  # per writer
_STENCILS_KEPT = 32  # of them: each takes some kilobytes, and there may be many writers
_SHAPED_AFTER = (
    64  # bodies that were read field by field: finding out about a shape takes as long as some hundred
)
_NO_NAMES: frozenset[str] = frozenset()
_read_double = struct.Struct("<d").unpack_from

Convert = Callable[[int], str]


# Events of one run were mostly made in the same few seconds.
@lru_cache(maxsize=4096)
def _render_moment(value: int) -> str:
    return render_datetime(value, "Z")


_CONVERSIONS: dict[ValueKind | None, Convert] = {
    ValueKind.DATETIME: _render_moment,
    ValueKind.DATE: render_date,
    ValueKind.TIME: render_time,
}


def is_hidden(name: str, hidden: frozenset[str]) -> bool:
    """Whether a field, or a part such as `BillingAddress.City`, falls under the hidden field names."""
    compound, dot, part = name.partition(".")
    if compound in hidden:
        return True
    return bool(dot) and component_field(compound, part) in hidden


def conversion_of(doc: str) -> Convert | None:
    """How a field's long integer is told, by the second word of its doc, as in `Data:DateOnly:00N...`."""
    return _CONVERSIONS.get(doc_kind(doc))


@dataclass(frozen=True, slots=True)
class _Told:
    """Of an event's body, the visible fields and parts that are told even if they are null, and those fields of which
    a difference is.
    """

    changed: frozenset[str] = frozenset()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    different: frozenset[str] = frozenset()


_SET_FIELDS = _Told()


@dataclass(slots=True)
class _Spelling:
    """What events of one kind share: what finds their headers, pieces of their JSON, what is told of their bodies, if
    anything, and what writes those of the shape that most of them have.
    """

    header: bytes
    before_id: bytes
    before_key: bytes
    after_user: bytes
    told: _Told | None
    stencil: Stencil | None = None
    walks: int = 0


class ChangeWriter:
    """Writes the change events of one schema on one channel, without the hidden fields; keep it, for making one takes a
    while.
    """

    def __init__(
        self, schema: EventSchema, channel: str, hidden: frozenset[str], *, names_changed: bool
    ) -> None:
        self._schema = schema
        self._hidden = hidden
        self._names_changed = names_changed
        self._channel = orjson.dumps(channel)
        self._spellings: dict[tuple[bytes, bytes, bytes], _Spelling] = {}
        self._stencil: Stencil | None = None  # of the last event that had one: the next is mostly like it
        self._stencils = 0
        self._read_header = schema.field_readers[0].read
        self._match = match_header if has_usual_header(schema) else _match_none
        self._fields = tuple(
            _body_field(field, field.name, hidden, schema.component_names(field.name))
            for field in schema.field_readers[1:]
        )

    def write(self, event: Event) -> bytes:
        """The whole Bayeux message of an event."""
        payload = event.payload
        last = self._stencil
        if last is not None and (written := last(payload, event.position)) is not None:
            return written
        found = self._match(payload)
        if found is None:
            return self._write_any(event)
        entity, record_id, kind, key, sequence, commit_ms, number, user, bitmaps = found.groups()
        shared = entity, kind, bitmaps
        spelling = self._spellings.get(shared) or self._try_spell(shared)
        if spelling is None or not (record_id.isalnum() and user.isalnum()):
            return self._write_any(event)
        stencil = spelling.stencil
        if stencil is not None and stencil is not last:
            written = stencil(payload, event.position)
            if written is not None:
                self._stencil = stencil
                return written
        return b"".join(
            (
                spelling.before_id,
                record_id,
                spelling.before_key,
                key,
                b'","sequenceNumber":',
                render_number(sequence),
                b',"commitTimestamp":',
                render_number(commit_ms),
                b',"commitNumber":%d,"commitUser":"' % read_number(number),
                user,
                spelling.after_user,
                self._walk(payload, found.end(), spelling),
                b',"event":{"replayId":%d}},"channel":' % event.position,
                self._channel,
                b"}",
            )
        )

    def _walk(self, payload: bytes, p: int, spelling: _Spelling) -> bytes:
        """The rest of the payload's JSON, behind the header, of a body that is read field by field."""
        told = spelling.told
        if told is None:
            return b"}"
        spelling.walks += 1
        # Looked for more and more seldom: the shape that was found may not be the usual one.
        is_time = spelling.walks >= _SHAPED_AFTER and not spelling.walks & spelling.walks - 1
        if is_time and self._stencils < _STENCILS_KEPT and not (told.parts or told.different):
            shape = try_shape(self._fields, payload, p, told.changed)
            if shape is not None:
                frame = (spelling.before_id, spelling.before_key, spelling.after_user)
                end = b'}},"channel":%b}' % self._channel
                self._stencils += spelling.stencil is None
                spelling.stencil = make_stencil(spelling.header, shape, (*frame, end))
        body = self._read_body(payload, p, told)
        return b"," + orjson.dumps(body)[1:] if body else b"}"

    def _write_any(self, event: Event) -> bytes:
        """The message of an event whose header is not of the usual shape."""
        stored, end = self._read_header(event.payload, 0)
        header = {name: stored[name] for name in _HEADER_FIELDS}
        changed = self._seen(stored["changedFields"])
        if self._names_changed:
            header["changedFields"] = changed
        payload: dict[str, Any] = {_HEADER: header}
        told = None
        if not stored["recordIds"][0].endswith(_ALL_RECORDS):
            told = self._try_told(header["changeType"], changed, stored["diffFields"])
        if told is not None:
            payload |= self._read_body(event.payload, end, told)
        data = {"schema": event.schema_id, "payload": payload, "event": {"replayId": event.position}}
        return orjson.dumps({"data": data, "channel": orjson.Fragment(self._channel)})

    def _try_spell(self, shared: tuple[bytes, bytes, bytes]) -> _Spelling | None:
        part = try_common_header(*shared)
        if part is None:
            return None
        changed = self._seen(part.changed)
        schema_id, entity, kind, origin, names = map(
            orjson.dumps,
            (self._schema.schema_id, part.entity_name, part.change_type, part.change_origin, changed),
        )
        spelling = _Spelling(
            header_pattern(*shared),
            b'{"data":{"schema":%b,"payload":{"ChangeEventHeader":{"entityName":%b,"recordIds":["'
            % (schema_id, entity),
            b'"],"changeType":%b,"changeOrigin":%b,"transactionKey":"' % (kind, origin),
            b'","changedFields":%b}' % names if self._names_changed else b'"}',
            self._try_told(part.change_type, changed, part.diffed),
        )
        if len(self._spellings) >= _SPELLINGS_KEPT:
            self._spellings.clear()
            self._stencils = 0
        self._spellings[shared] = spelling
        return spelling

    def _seen(self, bitmap: Iterable[str]) -> list[str]:
        names = decode_bitmap(self._schema, bitmap)
        return [name for name in names if not is_hidden(name, self._hidden)] if self._hidden else names

    def _try_told(self, change_type: str, changed: list[str], diff_bitmap: Iterable[str]) -> _Told | None:
        """What is told of a body of this kind; None if no more is than the header."""
        if change_type != "UPDATE":
            return _SET_FIELDS if change_type in _WITH_BODY else None
        whole = frozenset(path for path in changed if "." not in path)
        parts: dict[str, tuple[str, ...]] = {}
        for path in changed:
            name, dot, part = path.partition(".")
            if dot:
                parts[name] = (*parts.get(name, ()), part)
        return _Told(whole, parts, whole.intersection(decode_bitmap(self._schema, diff_bitmap)))

    def _read_body(self, payload: bytes, p: int, told: _Told) -> dict[str, Any]:
        """The fields behind a header, which ends at `p`, as JSON has them."""
        body, end = _read_fields(self._fields, payload, p, told.changed)
        if end != len(payload):
            refuse("it is longer or shorter")
        if not told.changed <= body.keys():
            body |= dict.fromkeys(told.changed.difference(body))
        for name, parts in told.parts.items():
            value = body.setdefault(name, {})
            if type(value) is dict:
                body[name] = dict.fromkeys(parts) | value
        for name in told.different:
            body[name] = {"diff": body[name]}
        return body


def _read_fields(
    fields: Sequence[BodyField], payload: bytes, p: int, changed: frozenset[str]
) -> tuple[dict[str, Any], int]:
    """The visible fields of a record at `p` that are set, and where it ends. A compound of which nothing is to be seen
    is left out unless it is among the `changed`.
    """
    body: dict[str, Any] = {}
    count = len(fields)
    place = 0
    while True:
        # A null is one byte of zero, so a run of such bytes is as many fields to pass over.
        nulls = count_nulls(payload, p).end() - p  # type: ignore[union-attr]  # it matches everywhere
        if nulls >= count - place:
            return body, p + count - place
        place += nulls
        p += nulls
        kind, name, read, convert, parts, seen = fields[place]
        place += 1
        value: Any
        if kind == TEXT and not payload[p + 1] & 129 and payload[p] == 2:
            start = p + 2
            p = start + (payload[p + 1] >> 1)
            value = payload[start:p].decode()
        elif kind == DOUBLE and payload[p] == 2:
            (value,) = _read_double(payload, p + 1)
            p += 9
        elif kind == COMPOUND and payload[p] == 2:
            value, p = _read_fields(parts, payload, p + 1, _NO_NAMES)
        else:
            value, p = read(payload, p)
            if convert is not None:
                value = convert(value)
            elif type(value) is dict:  # of the Name of an account, which may be a text instead
                value = {part: held for part, held in value.items() if held is not None and part in seen}
        if name is not None and (value != {} or name in changed):
            body[name] = value


def _match_none(payload: bytes) -> re.Match[bytes] | None:
    """No header of this schema is of the usual shape."""
    return None


def _body_field(
    field: FieldReader, path: str, hidden: frozenset[str], components: tuple[str, ...] = ()
) -> BodyField:
    convert = conversion_of(field.doc)
    parts = tuple(_body_field(part, f"{path}.{part.name}", hidden) for part in field.parts)
    kind = OTHER
    if parts:
        kind = COMPOUND
    elif field.spelled == '["null", "string"]':
        kind = TEXT
    elif field.spelled == '["null", "double"]':
        kind = DOUBLE
    elif field.spelled == '["null", "long"]' and convert is _render_moment:
        kind = MOMENT
    seen = frozenset(part for part in components if not is_hidden(f"{path}.{part}", hidden))
    name = None if is_hidden(path, hidden) else field.name
    return BodyField(kind, name, field.read, convert, parts, seen)
