"""How the Streaming API spells an event: one JSON message per event, as its API version knows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import orjson

from tidewire.events import Event, Family
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.values import render_date, render_datetime, render_time

_SINCE_DELETES = 29.0
_SINCE_REPLAY = 37.0
_SINCE_CHANGED_FIELDS = 47.0
_SINCE_EVENT_UUID = 52.0

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
_WHOLE_RECORD = frozenset({"CREATE", "UNDELETE"})
_ENRICHED = frozenset({"UPDATE", "DELETE"})
_ALL_RECORDS = "*"  # in place of an id: a field lost its values, and no record's own are told

_Convert = Callable[[int], str]


# Events of one run were mostly made in the same few seconds.
@lru_cache(maxsize=4096)
def _render_moment(value: int) -> str:
    return render_datetime(value, "Z")


_CONVERSIONS: dict[str, _Convert] = {
    "DateTime": _render_moment,
    "DateOnly": render_date,
    "TimeOnly": render_time,
}


class BayeuxForm:
    """The `WireForm` of one range of API versions; use `bayeux_form` to share them."""

    def __init__(self, *, deletes: bool, replay: bool, changed_fields: bool, event_uuid: bool) -> None:
        self.name = f"bayeux-{deletes:d}{replay:d}{changed_fields:d}{event_uuid:d}"
        self._has_deletes = deletes
        self._has_replay = replay
        self._has_changed_fields = changed_fields
        self._has_event_uuid = event_uuid
        self._conversions: dict[str, dict[str, _Convert]] = {}

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """The whole Bayeux message of an event; see `WireForm`."""
        if event.family is Family.PUSH_TOPIC:
            data = self._push_topic_data(event, hidden)
        elif event.family is Family.GENERIC:
            data = self._generic_data(event)
        elif schema is None:
            return b""
        elif event.family is Family.CHANGE:
            data = self._change_data(event, hidden, schema)
        else:
            data = self._platform_data(event, schema)
        return orjson.dumps({"data": data, "channel": channel}) if data else b""

    def _push_topic_data(self, event: Event, hidden: frozenset[str]) -> dict[str, Any]:
        stored = orjson.loads(event.payload)
        if not self._has_deletes and stored["type"] in ("deleted", "undeleted"):
            return {}
        sobject = stored["sobject"]
        if hidden:
            sobject = {
                name: _parts_seen(name, value, hidden) if isinstance(value, dict) else value
                for name, value in sobject.items()
                if name not in hidden
            }
        created = stored["createdDate"]
        if self._has_replay:
            head = {"createdDate": created, "replayId": event.position, "type": stored["type"]}
        else:
            head = {"createdDate": created.removesuffix("Z") + "+0000", "type": stored["type"]}
        return {"event": head, "sobject": sobject}

    def _generic_data(self, event: Event) -> dict[str, Any]:
        if self._has_replay:
            head = {"createdDate": render_datetime(event.created_ms, "Z"), "replayId": event.position}
        else:
            head = {"createdDate": render_datetime(event.created_ms, "+0000")}
        return {"payload": orjson.loads(event.payload)["payload"], "event": head}

    def _platform_data(self, event: Event, schema: EventSchema) -> dict[str, Any]:
        conversions = self._conversions_of(schema, event.schema_id)
        payload = {
            name: _converted(value, conversions.get(name))
            for name, value in schema.decode(event.payload).items()
        }
        head: dict[str, Any] = {"replayId": event.position}
        if self._has_event_uuid and event.event_uuid:
            head["EventUuid"] = event.event_uuid
        return {"schema": event.schema_id, "payload": payload, "event": head}

    def _change_data(self, event: Event, hidden: frozenset[str], schema: EventSchema) -> dict[str, Any]:
        stored = schema.decode_set(event.payload)
        stored_header = stored[_HEADER]
        header = {name: stored_header[name] for name in _HEADER_FIELDS}
        changed = [
            name
            for name in decode_bitmap(schema, stored_header["changedFields"])
            if not (hidden and is_hidden(name, hidden))
        ]
        if self._has_changed_fields:
            header["changedFields"] = changed
        payload: dict[str, Any] = {_HEADER: header}
        conversions = self._conversions_of(schema, event.schema_id)
        change_type = header["changeType"]
        if change_type in _WHOLE_RECORD:
            payload |= _whole_record(stored, hidden, conversions)
        elif change_type == "UPDATE" and not stored_header["recordIds"][0].endswith(_ALL_RECORDS):
            payload |= _changed_part(stored, changed, hidden, conversions)
            for name in decode_bitmap(schema, stored_header["diffFields"]):
                if name in payload:
                    payload[name] = {"diff": payload[name]}
        if change_type in _ENRICHED and not stored_header["recordIds"][0].endswith(_ALL_RECORDS):
            _add_enriched(payload, stored, hidden, conversions)
        return {"schema": event.schema_id, "payload": payload, "event": {"replayId": event.position}}

    def _conversions_of(self, schema: EventSchema, schema_id: str) -> dict[str, _Convert]:
        found = self._conversions.get(schema_id)
        if found is None:
            found = {}
            for field in orjson.loads(schema.json)["fields"]:
                # `Data:DateOnly:00N...`: the second word is what the field's long integer means.
                word = field.get("doc", "").split(":")[1:2]
                if word and word[0] in _CONVERSIONS:
                    found[field["name"]] = _CONVERSIONS[word[0]]
            self._conversions[schema_id] = found
        return found


_FORMS: dict[tuple[bool, bool, bool, bool], BayeuxForm] = {}


def bayeux_form(api_version: float) -> BayeuxForm:
    """The form of an API version; versions that spell events alike share one."""
    traits = (
        api_version >= _SINCE_DELETES,
        api_version >= _SINCE_REPLAY,
        api_version >= _SINCE_CHANGED_FIELDS,
        api_version >= _SINCE_EVENT_UUID,
    )
    form = _FORMS.get(traits)
    if form is None:
        deletes, replay, changed_fields, event_uuid = traits
        form = BayeuxForm(
            deletes=deletes, replay=replay, changed_fields=changed_fields, event_uuid=event_uuid
        )
        _FORMS[traits] = form
    return form


def is_hidden(name: str, hidden: frozenset[str]) -> bool:
    """Whether a field, or a part such as `BillingAddress.City`, falls under the hidden field names."""
    compound, dot, part = name.partition(".")
    if compound in hidden:
        return True
    # BillingCity is the City of BillingAddress; a person's LastName keeps its own name inside Name.
    return bool(dot) and compound.removesuffix("Address") * compound.endswith("Address") + part in hidden


def _parts_seen(compound: str, parts: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    """A notification's address or place, whose parts begin with small letters, cut to what may be seen."""
    return {
        name: value
        for name, value in parts.items()
        if not is_hidden(f"{compound}.{name[:1].upper()}{name[1:]}", hidden)
    }


def _whole_record(
    stored: dict[str, Any], hidden: frozenset[str], conversions: dict[str, _Convert]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in stored.items():
        if value is None or name == _HEADER or name in hidden:
            continue
        if isinstance(value, dict):
            value = _parts(name, value, hidden)
            if not value:
                continue
        out[name] = _converted(value, conversions.get(name))
    return out


def _changed_part(
    stored: dict[str, Any], changed: list[str], hidden: frozenset[str], conversions: dict[str, _Convert]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path in changed:
        name, dot, part = path.partition(".")
        value = stored.get(name)
        if dot:
            out.setdefault(name, {})[part] = value.get(part) if isinstance(value, dict) else None
        elif isinstance(value, dict):
            out[name] = _parts(name, value, hidden)
        else:
            out[name] = _converted(value, conversions.get(name))
    modified = stored.get("LastModifiedDate")
    if modified is not None and "LastModifiedDate" not in hidden:
        out["LastModifiedDate"] = _converted(modified, conversions.get("LastModifiedDate"))
    return out


def _add_enriched(
    payload: dict[str, Any], stored: dict[str, Any], hidden: frozenset[str], conversions: dict[str, _Convert]
) -> None:
    """Add what the event holds though it did not change: fields by which its channel enriches events."""
    for name, value in stored.items():
        if value is None or name in hidden:
            continue
        if isinstance(value, dict) and name != _HEADER:
            parts = _parts(name, value, hidden) | payload.get(name, {})
            if parts:
                payload[name] = parts
        elif name not in payload:
            payload[name] = _converted(value, conversions.get(name))


def _parts(compound: str, value: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    return {
        part: item
        for part, item in value.items()
        if item is not None and not (hidden and is_hidden(f"{compound}.{part}", hidden))
    }


def _converted(value: Any, convert: _Convert | None) -> Any:
    return convert(value) if convert is not None and value is not None else value
