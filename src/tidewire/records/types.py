"""The org's types as the store keeps them: load at start, change inside a transaction.

`Types.catalog` is what everyone reads. It is replaced after a commit and never before, so nobody acts on a
type that may yet be undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from tidewire.eventlog.log import EventLog
from tidewire.records.table import create_table
from tidewire.schema.avro import change_event_schema, platform_event_schema
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.documents import (
    parse_event,
    parse_fields,
    parse_object,
    render_event,
    render_fields,
    render_object,
)
from tidewire.schema.layout import add_fields
from tidewire.schema.model import EventType, ObjectType
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.storage.store import Reader, Transaction


class Types:
    """The current catalog of one org, and the schema of each kind of event in it, by topic."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.catalog = Catalog(version=0, objects=STANDARD_OBJECTS)
        self.schemas: dict[str, EventSchema] = {}

    def load(self, reader: Reader) -> None:
        """Read what the org has added to the standard types."""
        objects = {o.name: o for o in STANDARD_OBJECTS}
        events: list[EventType] = []
        captured: list[str] = []
        for kind, name, definition in reader.execute(
            "SELECT kind, name, definition FROM types ORDER BY kind, name"
        ):
            if kind == "object":
                objects[name] = parse_object(definition)
            elif kind == "fields":
                objects[name] = add_fields(objects[name], parse_fields(definition))
            elif kind == "event":
                events.append(parse_event(definition))
            elif kind == "captured":
                captured = json.loads(definition)
        ((version,),) = reader.execute("SELECT catalog_version FROM progress")
        self._set(Catalog(version, tuple(objects.values()), tuple(events), frozenset(captured)))

    def ensure_stored(self, tx: Transaction) -> None:
        """Make or widen every object's table and keep every event schema: a new release may have brought
        standard fields.
        """
        for obj in self.catalog.objects:
            create_table(tx, obj)
        for topic, schema in self.schemas.items():
            self._log.append_schema(tx, schema.schema_id, topic, schema.json)

    def change(
        self,
        tx: Transaction,
        *,
        objects: Iterable[ObjectType] = (),
        events: Iterable[EventType] = (),
        captured: Iterable[str] | None = None,
    ) -> Catalog:
        """Add or replace types, tables included. Returns the new catalog, which becomes current at commit."""
        standard = {o.name: o for o in STANDARD_OBJECTS}
        objects, events = tuple(objects), tuple(events)
        for obj in objects:
            create_table(tx, obj)
            if obj.name in standard:
                own = {f.name for f in standard[obj.name].fields}
                _store(
                    tx, "fields", obj.name, render_fields(tuple(f for f in obj.fields if f.name not in own))
                )
            else:
                _store(tx, "object", obj.name, render_object(obj))
        for event in events:
            _store(tx, "event", event.name, render_event(event))
        catalog = self.catalog.with_objects(objects).with_events(events)
        if captured is not None:
            catalog = catalog.with_captured(captured)
            _store(tx, "captured", "ChangeEvents", json.dumps(sorted(catalog.captured)))
        tx.progress.catalog_version += 1
        catalog = replace(catalog, version=tx.progress.catalog_version)
        for topic, schema in _event_schemas(catalog).items():
            self._log.append_schema(tx, schema.schema_id, topic, schema.json)
        tx.after_commit(lambda: self._set(catalog))
        return catalog

    def _set(self, catalog: Catalog) -> None:
        self.schemas = _event_schemas(catalog)
        self.catalog = catalog


def _event_schemas(catalog: Catalog) -> dict[str, EventSchema]:
    definitions = [platform_event_schema(event) for event in catalog.events]
    definitions += [change_event_schema(catalog.object(name)) for name in sorted(catalog.captured)]
    return {str(d["name"]): EventSchema(json.dumps(d)) for d in definitions}


def _store(tx: Transaction, kind: str, name: str, definition: str) -> None:
    tx.execute(
        "INSERT INTO types (kind, name, definition) VALUES (?, ?, ?)"
        " ON CONFLICT (kind, name) DO UPDATE SET definition = excluded.definition",
        (kind, name, definition),
    )
