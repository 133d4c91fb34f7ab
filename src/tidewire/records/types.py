"""The types and settings of an org: loaded at start, changed inside a transaction.

`Types.catalog` is what everyone reads. It is replaced only after a commit, so nobody acts on a type that may
be rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from tidewire.eventlog.log import EventLog
from tidewire.names import change_event_name
from tidewire.records.numbers import take_record_id
from tidewire.records.object_rules import RecordRules
from tidewire.records.settings import OrgSettings, read_settings, write_settings
from tidewire.records.table import create_table, write_definition
from tidewire.schema.avro import change_event_schema, platform_event_schema, schema_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import (
    NO_LIMITS,
    STANDARD_CHANNEL,
    CaptureLimits,
    Selection,
    can_capture,
    check_limits,
    parse_selection,
    render_selection,
)
from tidewire.schema.codec import EventSchema, compiled_schema
from tidewire.schema.layout import add_fields
from tidewire.schema.model import EventType, ObjectType
from tidewire.schema.share_objects import share_name, with_shares
from tidewire.schema.sharing_rules import SharingRule, parse_sharing_rule, render_sharing_rule
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.type_json import (
    parse_event,
    parse_fields,
    parse_object,
    render_changes,
    render_event,
    render_fields,
    render_object,
    with_changes,
)
from tidewire.storage.store import Reader, Transaction

T = TypeVar("T", ObjectType, EventType)


class Types:
    """The current catalog and settings of one org, and its event schemas by topic.

    `rules` are those of the org's objects. `limits` bound what may be selected for capture.
    """

    def __init__(self, log: EventLog, rules: RecordRules, limits: CaptureLimits = NO_LIMITS) -> None:
        self._log = log
        self._limits = limits
        self.rules = rules
        self.catalog = Catalog(version=0, objects=with_shares(STANDARD_OBJECTS))
        self.schemas: dict[str, EventSchema] = {}
        self.settings = OrgSettings()

    def load(self, reader: Reader) -> None:
        """Read what the org has added to the standard types."""
        self.settings = read_settings(reader)
        objects = {o.name: o for o in STANDARD_OBJECTS}
        if self.rules.types.enabled(self.settings):
            objects |= {o.name: o for o in self.rules.types.optional_objects}
        events: list[EventType] = []
        selection = Selection()
        removed: list[tuple[str, str]] = []
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
                selection = parse_selection(definition)
            elif kind == "removed":
                removed += [(name, field_name) for field_name in json.loads(definition)]
            elif kind == "standard":
                objects[name] = with_changes(objects[name], definition)
        ((version,),) = reader.execute("SELECT catalog_version FROM progress")
        self._set(
            Catalog(
                version,
                with_shares(objects.values()),
                tuple(events),
                selection,
                frozenset(removed),
            )
        )

    def ensure_stored(self, tx: Transaction) -> None:
        """Create or widen every object's table and store every event schema.

        A new release may add standard fields.
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
        selection: Selection | None = None,
        removed_objects: Iterable[str] = (),
        removed_fields: Iterable[tuple[str, str]] = (),
        removed_events: Iterable[str] = (),
        base: Catalog | None = None,
    ) -> Catalog:
        """Add, replace or remove types, including tables; return the catalog that becomes current at commit.

        An object that loses a field is among `objects`, without it. `captured` are the objects on the
        standard channel, `selection` is all channels. `base` is the catalog that an earlier change of the
        same transaction returned.
        """
        base = base or self.catalog
        removed_objects, removed_events = tuple(removed_objects), tuple(removed_events)
        standard = {o.name: o for o in (*STANDARD_OBJECTS, *self.rules.types.optional_objects)}
        objects = self.rules.types.with_dependents(
            tx, base, tuple(_with_field_ids(tx, o, base.try_object(o.name)) for o in objects)
        )
        events = [_with_field_ids(tx, event, base.try_event(event.name)) for event in events]
        removed_fields = (*removed_fields, *self.rules.types.lost_fields(base, objects))
        for obj in objects:
            create_table(tx, obj)
            if obj.name in standard:
                own = {f.name for f in standard[obj.name].fields}
                _store(
                    tx, "fields", obj.name, render_fields(tuple(f for f in obj.fields if f.name not in own))
                )
                _store(tx, "standard", obj.name, render_changes(standard[obj.name], obj))
            else:
                _store(tx, "object", obj.name, render_object(obj))
        for event in events:
            _store(tx, "event", event.name, render_event(event))
        catalog = base.with_objects(objects).with_events(events)
        for obj in catalog.objects:
            if obj.shares and base.try_object(obj.name) is None:
                create_table(tx, obj)
        catalog = self._without(tx, catalog, removed_objects, removed_fields)
        head = tx.progress.next_position - 1
        if removed_events:
            catalog = catalog.without_events(removed_events)
            for name in removed_events:
                _store(tx, "event", name, "")
        gone = [*removed_events, *(change_event_name(name) for name in removed_objects)]
        for topic in gone:
            self._log.retire_topic(tx, topic)
        selection = (catalog.selection if selection is None else selection).with_ended_events(gone, head)
        catalog = catalog.with_selection(selection)
        if captured is not None:
            catalog = catalog.with_captured(captured)
        if catalog.selection != base.selection:
            check_limits(catalog.selection, base.selection, self._limits)
            catalog = replace(catalog, selection=catalog.selection.with_start_positions(head))
            _store(tx, "captured", STANDARD_CHANNEL, render_selection(catalog.selection))
        tx.progress.catalog_version += 1
        catalog = replace(catalog, version=tx.progress.catalog_version)
        for topic, schema in _event_schemas(catalog).items():
            self._log.append_schema(tx, schema.schema_id, topic, schema.json)
        tx.after_commit(lambda: self._set(catalog))
        return catalog

    def rename_object(
        self, tx: Transaction, old: ObjectType, new: ObjectType, others: Iterable[ObjectType], base: Catalog
    ) -> Catalog:
        """Rename an object; its records stay where they are.

        `others` are the objects that refer to it, with the new name. Returns the new catalog, like `change`.
        """
        for before, after in ((old.name, new.name), (share_name(old.name), share_name(new.name))):
            tx.execute("UPDATE recycle_bin SET entity = ? WHERE entity = ?", (after, before))
        tx.execute("UPDATE types SET name = ? WHERE kind = 'removed' AND name = ?", (new.name, old.name))
        _store(tx, "object", old.name, "")
        kept = tuple(o for o in base.objects if old.name not in (o.name, o.shares))
        removed = frozenset((new.name if e == old.name else e, n) for e, n in base.removed_fields)
        events = change_event_name(old.name), change_event_name(new.name)
        selection = base.selection.with_renamed(*events).with_ended_events(
            events[:1], tx.progress.next_position - 1
        )
        self._log.retire_topic(tx, events[0])
        base = replace(base, objects=kept, removed_fields=removed)
        return self.change(tx, objects=[new, *others], selection=selection, base=base)

    def change_settings(self, tx: Transaction, settings: OrgSettings) -> None:
        """Store settings, which become current at commit."""
        write_settings(tx, settings)
        tx.progress.access_generation += 1  # some decide what there is to see
        tx.after_commit(lambda: setattr(self, "settings", settings))

    def change_sharing_rules(
        self, tx: Transaction, rules: Iterable[SharingRule] = (), removed: Iterable[str] = ()
    ) -> None:
        """Add, replace or remove sharing rules, the latter by key."""
        for rule in rules:
            _store(tx, "sharing rule", rule.key, render_sharing_rule(rule))
        for key in removed:
            _store(tx, "sharing rule", key, "")
        tx.progress.access_generation += 1  # what people see was worked out from the rules

    def schemas_of(self, catalog: Catalog) -> dict[str, EventSchema]:
        """Return the schemas of a catalog, which may be that of the running transaction."""
        return self.schemas if catalog.version == self.catalog.version else _event_schemas(catalog)

    def try_schema(self, name: str) -> EventSchema | None:
        """Return the newest schema of an event, whose name may have any letter case, or None.

        Includes change events that are not selected.
        """
        for topic, schema in self.schemas.items():
            if topic.lower() == name.lower():
                return schema
        for obj in self.catalog.objects:
            if change_event_name(obj.name).lower() == name.lower() and can_capture(obj):
                return compiled_schema(json.dumps(change_event_schema(obj)))
        return None

    def try_possible_schema(self, wanted_id: str) -> str | None:
        """Return the text of a change event schema with this id that is or could be in use now, or None."""
        for obj in self.catalog.objects:
            if can_capture(obj) and _change_schema_id(obj) == wanted_id:
                return json.dumps(change_event_schema(obj))
        return None

    def _without(
        self,
        tx: Transaction,
        catalog: Catalog,
        objects: tuple[str, ...],
        fields: Iterable[tuple[str, str]],
    ) -> Catalog:
        """Return the catalog without these types; their records are dropped with the objects."""
        shares = [o.name for o in catalog.objects if o.shares in objects]
        for name in (*objects, *shares):
            table = catalog.object(name).table
            tx.execute(f"DROP TABLE {table}")
            tx.execute("DELETE FROM types WHERE kind IN ('object', 'removed') AND name = ?", (name,))
            tx.execute("DELETE FROM types WHERE kind = 'layout' AND name = ?", (table,))
            tx.execute("DELETE FROM recycle_bin WHERE entity = ?", (name,))
        fields = tuple(fields)
        for entity, name in fields:  # an undelete must not set them again
            tx.execute("DELETE FROM recycle_bin WHERE entity = ? AND field = ?", (entity, name))
        kept = catalog.without(objects) if objects else catalog
        present = {(o.name, f.name) for o in kept.objects for f in o.fields}
        names = {o.name for o in kept.objects}
        removed = frozenset((e, n) for e, n in {*kept.removed_fields, *fields} - present if e in names)
        for entity in {e for e, _ in removed ^ kept.removed_fields if e in names}:
            gone = sorted(n for e, n in removed if e == entity)
            _store(tx, "removed", entity, json.dumps(gone))
        return replace(kept, removed_fields=removed)

    def _set(self, catalog: Catalog) -> None:
        self.schemas = _event_schemas(catalog)
        self.catalog = catalog


def _with_field_ids(tx: Transaction, each: T, stored: T | None) -> T:
    """Return the type with an id for every custom field that it did not have before."""
    known = {f.name for f in stored.fields} if stored is not None else set()
    if all(f.name in known or f.field_id or not f.custom for f in each.fields):
        return each
    fields = tuple(
        replace(f, field_id=take_record_id(tx, "00N"))
        if f.custom and not f.field_id and f.name not in known
        else f
        for f in each.fields
    )
    return replace(each, fields=fields)


def _event_schemas(catalog: Catalog) -> dict[str, EventSchema]:
    definitions = [platform_event_schema(event) for event in catalog.all_events]
    definitions += [change_event_schema(catalog.object(name)) for name in sorted(catalog.captured)]
    return {str(d["name"]): compiled_schema(json.dumps(d)) for d in definitions}


@lru_cache(maxsize=1024)
def _change_schema_id(obj: ObjectType) -> str:
    return schema_id(change_event_schema(obj))


def read_sharing_rules(reader: Reader | Transaction) -> list[SharingRule]:
    """Return every sharing rule, as of this reader or the running transaction."""
    rows = reader.execute("SELECT definition FROM types WHERE kind = 'sharing rule' ORDER BY name")
    return [parse_sharing_rule(definition) for (definition,) in rows]


def _store(tx: Transaction, kind: str, name: str, definition: str) -> None:
    """Store a definition; an empty one is removed."""
    if definition:
        write_definition(tx, kind, name, definition)
    else:
        tx.execute("DELETE FROM types WHERE kind = ? AND name = ?", (kind, name))
