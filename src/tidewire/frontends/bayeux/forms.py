"""The Streaming API's wire forms: one JSON message per event, in the form of each API version."""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson

from tidewire.events import Event, Family
from tidewire.frontends.bayeux.change_forms import ChangeWriter, Convert, conversion_of, is_hidden
from tidewire.schema.codec import EventSchema
from tidewire.schema.values import render_datetime

_SINCE_DELETES = 29.0
_SINCE_REPLAY = 37.0
_SINCE_CHANGED_FIELDS = 47.0
_SINCE_EVENT_UUID = 52.0

_MAX_WRITERS = 128  # per form
_CHANGE = Family.CHANGE  # looked up once; compared for every event


class BayeuxForm:
    """The `WireForm` of a range of API versions. Use `bayeux_form` to share instances."""

    def __init__(self, *, deletes: bool, replay: bool, changed_fields: bool, event_uuid: bool) -> None:
        self.name = f"bayeux-{deletes:d}{replay:d}{changed_fields:d}{event_uuid:d}"
        self._has_deletes = deletes
        self._has_replay = replay
        self._has_changed_fields = changed_fields
        self._has_event_uuid = event_uuid
        self._conversions: dict[EventSchema, dict[str, Convert]] = {}
        self._writers: dict[tuple[EventSchema, str, frozenset[str]], ChangeWriter] = {}

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """Return the Bayeux message of an event; see `WireForm`."""
        if event.family is _CHANGE:
            if schema is None:
                return b""
            writer = self._writers.get((schema, channel, hidden)) or self._add_writer(schema, channel, hidden)
            return writer.write(event)
        if event.family is Family.PUSH_TOPIC:
            data = self._push_topic_data(event, hidden)
        elif event.family is Family.GENERIC:
            data = self._generic_data(event)
        elif schema is None:
            return b""
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
                name: _visible_parts(name, value, hidden) if isinstance(value, dict) else value
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
        conversions = self._conversions_of(schema)
        payload = {
            name: _converted(value, conversions.get(name))
            for name, value in schema.decode(event.payload).items()
        }
        head: dict[str, Any] = {"replayId": event.position}
        if self._has_event_uuid and event.event_uuid:
            head["EventUuid"] = event.event_uuid
        return {"schema": event.schema_id, "payload": payload, "event": head}

    def _add_writer(self, schema: EventSchema, channel: str, hidden: frozenset[str]) -> ChangeWriter:
        if len(self._writers) >= _MAX_WRITERS:
            self._writers.clear()
        writer = ChangeWriter(schema, channel, hidden, names_changed=self._has_changed_fields)
        self._writers[schema, channel, hidden] = writer
        return writer

    def _conversions_of(self, schema: EventSchema) -> dict[str, Convert]:
        found = self._conversions.get(schema)
        if found is None:
            converts = {field.name: conversion_of(field.doc) for field in schema.field_readers}
            found = {name: convert for name, convert in converts.items() if convert is not None}
            if len(self._conversions) >= _MAX_WRITERS:
                self._conversions.clear()
            self._conversions[schema] = found
        return found


@cache
def _shared_form(deletes: bool, replay: bool, changed_fields: bool, event_uuid: bool) -> BayeuxForm:
    return BayeuxForm(deletes=deletes, replay=replay, changed_fields=changed_fields, event_uuid=event_uuid)


def bayeux_form(api_version: float) -> BayeuxForm:
    """Return the form of an API version; versions with the same JSON share one."""
    return _shared_form(
        api_version >= _SINCE_DELETES,
        api_version >= _SINCE_REPLAY,
        api_version >= _SINCE_CHANGED_FIELDS,
        api_version >= _SINCE_EVENT_UUID,
    )


def _visible_parts(compound: str, parts: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    """Redact an address or geolocation of a notification, whose part names start in lower case."""
    return {
        name: value
        for name, value in parts.items()
        if not is_hidden(f"{compound}.{name[:1].upper()}{name[1:]}", hidden)
    }


def _converted(value: Any, convert: Convert | None) -> Any:
    return convert(value) if convert is not None and value is not None else value
