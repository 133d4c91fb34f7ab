"""Change events in the Streaming API's JSON, rendered straight from their stored Avro bytes.

Three ways, fastest first. A JSON template renders events whose header and body look like many before them. Otherwise
the parts of the header that many events share (entity, change type, origin, changed fields) are rendered once and
cached, and the body is read field by field, skipping runs of nulls. A header of any other shape is decoded whole.

Body rules: CREATE and UNDELETE carry every field that is set. UPDATE carries what changed, null for what was cleared,
and what the channel enriches. DELETE carries what the channel enriches. Gap events, and events for all records, carry
only a header.
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
from tidewire.frontends.bayeux.json_templates import JsonTemplate, make_template
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.compiler import reject
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

# In wire order. Bitmaps are left out: this protocol lists the names of changed fields instead.
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
_ALL_RECORDS = "*"  # in place of an id: a field lost its values on every record
_MAX_PARTS = 256  # per writer
_MAX_TEMPLATES = 32  # per writer; a template takes a few kilobytes and there may be many writers
_TEMPLATE_AFTER = 64  # bodies read field by field; making a template costs as much as reading some hundred
_NO_NAMES: frozenset[str] = frozenset()
_read_double = struct.Struct("<d").unpack_from

Convert = Callable[[int], str]


# Events delivered together were mostly committed within a few seconds, so timestamps repeat.
@lru_cache(maxsize=4096)
def _render_datetime(value: int) -> str:
    return render_datetime(value, "Z")


_CONVERSIONS: dict[ValueKind | None, Convert] = {
    ValueKind.DATETIME: _render_datetime,
    ValueKind.DATE: render_date,
    ValueKind.TIME: render_time,
}


def is_hidden(name: str, hidden: frozenset[str]) -> bool:
    """Return whether a field, or a part such as `BillingAddress.City`, is hidden."""
    compound, dot, part = name.partition(".")
    if compound in hidden:
        return True
    return bool(dot) and component_field(compound, part) in hidden


def conversion_of(doc: str) -> Convert | None:
    """Return how to render a field's long integer, from the second word of its doc (`Data:DateOnly:00N...`)."""
    return _CONVERSIONS.get(doc_kind(doc))


@dataclass(frozen=True, slots=True)
class _BodyRule:
    """Which fields of a body are rendered: those in `changed` and `parts` even if null, `different` as text diffs."""

    changed: frozenset[str] = frozenset()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    different: frozenset[str] = frozenset()


_SET_FIELDS = _BodyRule()  # render what is set, nothing else


@dataclass(slots=True)
class _SharedParts:
    """What events of one kind share: the header's pattern, pieces of JSON, the body rule, and perhaps a template."""

    header: bytes
    before_id: bytes
    before_key: bytes
    after_user: bytes
    rule: _BodyRule | None
    template: JsonTemplate | None = None
    walks: int = 0


class ChangeWriter:
    """Renders the change events of one schema on one channel without the hidden fields. Expensive to make: cache it."""

    def __init__(
        self, schema: EventSchema, channel: str, hidden: frozenset[str], *, names_changed: bool
    ) -> None:
        self._schema = schema
        self._hidden = hidden
        self._names_changed = names_changed
        self._channel = orjson.dumps(channel)
        self._parts: dict[tuple[bytes, bytes, bytes], _SharedParts] = {}
        self._last_template: JsonTemplate | None = None  # tried first: the next event is usually alike
        self._templates = 0
        self._read_header = schema.field_readers[0].read
        self._match = match_header if has_usual_header(schema) else _match_none
        self._fields = tuple(
            _body_field(field, field.name, hidden, schema.component_names(field.name))
            for field in schema.field_readers[1:]
        )

    def write(self, event: Event) -> bytes:
        """Return the Bayeux message of an event."""
        payload = event.payload
        last = self._last_template
        if last is not None and (written := last(payload, event.position)) is not None:
            return written
        found = self._match(payload)
        if found is None:
            return self._write_any(event)
        entity, record_id, kind, key, sequence, commit_ms, number, user, bitmaps = found.groups()
        shared = entity, kind, bitmaps
        parts = self._parts.get(shared) or self._try_parts(shared)
        if parts is None or not (record_id.isalnum() and user.isalnum()):
            return self._write_any(event)
        template = parts.template
        if template is not None and template is not last:
            written = template(payload, event.position)
            if written is not None:
                self._last_template = template
                return written
        return b"".join(
            (
                parts.before_id,
                record_id,
                parts.before_key,
                key,
                b'","sequenceNumber":',
                render_number(sequence),
                b',"commitTimestamp":',
                render_number(commit_ms),
                b',"commitNumber":%d,"commitUser":"' % read_number(number),
                user,
                parts.after_user,
                self._walk(payload, found.end(), parts),
                b',"event":{"replayId":%d}},"channel":' % event.position,
                self._channel,
                b"}",
            )
        )

    def _walk(self, payload: bytes, p: int, parts: _SharedParts) -> bytes:
        """Render the body after the header field by field; make a template when this keeps happening."""
        rule = parts.rule
        if rule is None:
            return b"}"
        parts.walks += 1
        # At 64, 128, 256, ... bodies: the shape sampled first may not be the common one, and sampling is costly.
        is_time = parts.walks >= _TEMPLATE_AFTER and not parts.walks & parts.walks - 1
        if is_time and self._templates < _MAX_TEMPLATES and not (rule.parts or rule.different):
            shape = try_shape(self._fields, payload, p, rule.changed)
            if shape is not None:
                frame = (parts.before_id, parts.before_key, parts.after_user)
                end = b'}},"channel":%b}' % self._channel
                self._templates += parts.template is None
                parts.template = make_template(parts.header, shape, (*frame, end))
        body = self._read_body(payload, p, rule)
        return b"," + orjson.dumps(body)[1:] if body else b"}"

    def _write_any(self, event: Event) -> bytes:
        """Render an event whose header is not of the common form, by decoding it whole."""
        stored, end = self._read_header(event.payload, 0)
        header = {name: stored[name] for name in _HEADER_FIELDS}
        changed = self._visible_names(stored["changedFields"])
        if self._names_changed:
            header["changedFields"] = changed
        payload: dict[str, Any] = {_HEADER: header}
        rule = None
        if not stored["recordIds"][0].endswith(_ALL_RECORDS):
            rule = self._try_body_rule(header["changeType"], changed, stored["diffFields"])
        if rule is not None:
            payload |= self._read_body(event.payload, end, rule)
        data = {"schema": event.schema_id, "payload": payload, "event": {"replayId": event.position}}
        return orjson.dumps({"data": data, "channel": orjson.Fragment(self._channel)})

    def _try_parts(self, shared: tuple[bytes, bytes, bytes]) -> _SharedParts | None:
        part = try_common_header(*shared)
        if part is None:
            return None
        changed = self._visible_names(part.changed)
        schema_id, entity, kind, origin, names = map(
            orjson.dumps,
            (self._schema.schema_id, part.entity_name, part.change_type, part.change_origin, changed),
        )
        parts = _SharedParts(
            header_pattern(*shared),
            b'{"data":{"schema":%b,"payload":{"ChangeEventHeader":{"entityName":%b,"recordIds":["'
            % (schema_id, entity),
            b'"],"changeType":%b,"changeOrigin":%b,"transactionKey":"' % (kind, origin),
            b'","changedFields":%b}' % names if self._names_changed else b'"}',
            self._try_body_rule(part.change_type, changed, part.diffed),
        )
        if len(self._parts) >= _MAX_PARTS:
            self._parts.clear()
            self._templates = 0
        self._parts[shared] = parts
        return parts

    def _visible_names(self, bitmap: Iterable[str]) -> list[str]:
        names = decode_bitmap(self._schema, bitmap)
        return [name for name in names if not is_hidden(name, self._hidden)] if self._hidden else names

    def _try_body_rule(
        self, change_type: str, changed: list[str], diff_bitmap: Iterable[str]
    ) -> _BodyRule | None:
        """Return which fields of the body to render; None if only the header is sent."""
        if change_type != "UPDATE":
            return _SET_FIELDS if change_type in _WITH_BODY else None
        whole = frozenset(path for path in changed if "." not in path)
        parts: dict[str, tuple[str, ...]] = {}
        for path in changed:
            name, dot, part = path.partition(".")
            if dot:
                parts[name] = (*parts.get(name, ()), part)
        return _BodyRule(whole, parts, whole.intersection(decode_bitmap(self._schema, diff_bitmap)))

    def _read_body(self, payload: bytes, p: int, rule: _BodyRule) -> dict[str, Any]:
        """Decode the body that starts at `p` into JSON values."""
        body, end = _read_fields(self._fields, payload, p, rule.changed)
        if end != len(payload):
            reject("it is longer or shorter")
        if not rule.changed <= body.keys():
            body |= dict.fromkeys(rule.changed.difference(body))
        for name, parts in rule.parts.items():
            value = body.setdefault(name, {})
            if type(value) is dict:
                body[name] = dict.fromkeys(parts) | value
        for name in rule.different:
            body[name] = {"diff": body[name]}
        return body


def _read_fields(
    fields: Sequence[BodyField], payload: bytes, p: int, changed: frozenset[str]
) -> tuple[dict[str, Any], int]:
    """Return the visible fields that are set in the record at `p`, and the offset of its end.

    A compound without a visible part is left out unless it is in `changed`.
    """
    body: dict[str, Any] = {}
    count = len(fields)
    place = 0
    while True:
        # A null is one zero byte, so a run of zero bytes is a run of fields to skip. Most fields of an event are null.
        nulls = count_nulls(payload, p).end() - p  # type: ignore[union-attr]  # the pattern matches any bytes
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
            elif type(value) is dict:  # Name of an account: a compound for persons, a text otherwise
                value = {part: held for part, held in value.items() if held is not None and part in seen}
        if name is not None and (value != {} or name in changed):
            body[name] = value


def _match_none(payload: bytes) -> re.Match[bytes] | None:
    """Match nothing: headers of this schema never have the common form."""
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
    elif field.spelled == '["null", "long"]' and convert is _render_datetime:
        kind = MOMENT
    seen = frozenset(part for part in components if not is_hidden(f"{path}.{part}", hidden))
    name = None if is_hidden(path, hidden) else field.name
    return BodyField(kind, name, field.read, convert, parts, seen)
