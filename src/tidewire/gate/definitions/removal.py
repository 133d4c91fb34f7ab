"""The section `remove`: the only way in which a definition takes something away.

What is gone already is no step, so the section may stay in the document. What something else still needs is
refused: a lookup its object, a formula, roll-up or push topic its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidewire.capture.event_filters import compile_event_filter
from tidewire.errors import DefinitionInvalid
from tidewire.gate.definitions.custom_fields import check_keys, mapping
from tidewire.gate.definitions.document import refuse, text_list
from tidewire.gate.definitions.removed_records import delete_where
from tidewire.records.conversion import ConversionNote
from tidewire.records.table import read_all_rows
from tidewire.records.types import Types, read_sharing_rules
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType

# Lists of names that stand for records or rows, each with the section that defines them.
_NAMED = (
    "push_topics",
    "permission_sets",
    "profiles",
    "roles",
    "groups",
    "queues",
    "connected_apps",
    "sharing_rules",
    "channels",
    "channel_members",
    "managed_subscriptions",
)
_KEYS = ("objects", "events", "fields", *_NAMED)


@dataclass(frozen=True, slots=True)
class Removal:
    """What there is to remove, by its exact name. Fields are by object or event; `named` is by section."""

    objects: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    event_fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_removal(unit: UnitOfWork, document: Mapping[str, object]) -> Removal:
    """What the section names and the org still has."""
    spec = mapping(document.get("remove"), "remove")
    check_keys(spec, _KEYS, "remove")
    for section in ("objects", "events", *_NAMED):
        kept = mapping(document.get(section), section)
        for name in text_list(spec.get(section), f"remove.{section}"):
            if name in kept:
                refuse(f"remove.{section}", f"{name} is both defined and removed")
    for key in text_list(spec.get("sharing_rules"), "remove.sharing_rules"):
        entity, _, name = key.partition(".")
        kept = mapping(mapping(document.get("objects"), "objects").get(entity), f"objects.{entity}")
        if name in mapping(kept.get("sharing_rules"), f"objects.{entity}.sharing_rules"):
            refuse("remove.sharing_rules", f"{key} is both defined and removed")
    objects = []
    for name in text_list(spec.get("objects"), "remove.objects"):
        obj = unit.catalog.try_object(name)
        if obj is not None and not obj.custom:
            refuse("remove.objects", f"{obj.name} is a standard object")
        if obj is not None and obj.name not in objects:
            objects.append(obj.name)
    known = [unit.catalog.try_event(name) for name in text_list(spec.get("events"), "remove.events")]
    events = tuple(dict.fromkeys(event.name for event in known if event is not None))
    listed = text_list(spec.get("fields"), "remove.fields")
    fields = _fields(unit.catalog, document, [n for n in listed if not _is_of_event(n)])
    event_fields = _event_fields(unit.catalog, document, [n for n in listed if _is_of_event(n)])
    return Removal(
        tuple(objects),
        events,
        {name: names for name, names in fields.items() if name not in objects},
        {name: names for name, names in event_fields.items() if name not in events},
        {s: tuple(dict.fromkeys(text_list(spec.get(s), f"remove.{s}"))) for s in _NAMED},
    )


def _is_of_event(name: str) -> bool:
    return name.partition(".")[0].lower().endswith("__e")


def _event_fields(
    catalog: Catalog, document: Mapping[str, object], names: Iterable[str]
) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    defined = mapping(document.get("events"), "events")
    for full in names:
        event_name, _, name = full.partition(".")
        event = catalog.try_event(event_name)
        stored = (
            next((f.name for f in event.fields if f.name.lower() == name.lower()), None) if event else None
        )
        if event is None or stored is None:
            continue
        path = f"events.{event.name}"
        if stored in mapping(mapping(defined.get(event.name), path).get("fields"), f"{path}.fields"):
            refuse("remove.fields", f"{full} is both defined and removed")
        found[event.name] = found.get(event.name, frozenset()) | {stored}
    return found


def _fields(
    catalog: Catalog, document: Mapping[str, object], names: Iterable[str]
) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    defined = mapping(document.get("objects"), "objects")
    for full in names:
        entity, dot, name = full.partition(".")
        if not dot or not name:
            refuse("remove.fields", f"{full} is not of the form Object.Field__c")
        obj = catalog.try_object(entity)
        stored = obj.try_field(name) if obj is not None else None
        if obj is None or stored is None:
            continue
        path = f"objects.{obj.name}"
        if stored.name in mapping(mapping(defined.get(obj.name), path).get("fields"), f"{path}.fields"):
            refuse("remove.fields", f"{full} is both defined and removed")
        if not stored.custom or stored.compound:
            refuse("remove.fields", f"{full} is not a custom field of its own")
        found[obj.name] = found.get(obj.name, frozenset()) | {stored.name}
    return found


def forget_records(unit: UnitOfWork, types: Types, objects: Sequence[str]) -> None:
    """Delete the record types, queue memberships and sharing rules of objects that are going away."""
    for entity in ("RecordType", "QueueSobject"):
        obj = unit.catalog.object(entity)
        for row in read_all_rows(unit.tx, obj):
            if row["SobjectType"] in objects and not row["IsDeleted"]:
                unit.delete(obj, str(row["Id"]))
    rules = [rule.key for rule in read_sharing_rules(unit.tx) if rule.entity in objects]
    if rules:
        types.change_sharing_rules(unit.tx, removed=rules)


def forget_permissions(unit: UnitOfWork, objects: Sequence[str], fields: Sequence[tuple[str, str]]) -> None:
    """Delete the permissions on what is going away, so that a later type of the same name starts without."""
    catalog = unit.catalog
    delete_where(unit, catalog.object("ObjectPermissions"), "SobjectType", objects)
    delete_where(unit, catalog.object("FieldPermissions"), "SobjectType", objects)
    delete_where(unit, catalog.object("FieldPermissions"), "Field", [f"{e}.{n}" for e, n in fields])


def check_unused(
    unit: UnitOfWork,
    catalog: Catalog,
    removal: Removal,
    notes: Sequence[ConversionNote],
    document: Mapping[str, object],
) -> None:
    """Refuse to remove what the new catalog or a push topic still names, or to convert a field under one."""
    _check_filters(catalog)
    gone = set(removal.objects)
    touched = [(e, n) for e, names in removal.fields.items() for n in sorted(names)]
    touched += [(note.entity, note.field) for note in notes]
    _check_fields(catalog, gone, touched)
    _check_sharing_rules(unit, touched)
    if gone or touched:
        _check_topics(_queries(unit, removal, document), (*gone, *(name for _, name in touched)))


def _check_fields(catalog: Catalog, gone: set[str], touched: Sequence[tuple[str, str]]) -> None:
    """Refuse what a lookup, a roll-up or a formula of the new catalog needs."""
    for obj in catalog.objects:
        for f in obj.fields:
            if gone.intersection(f.reference_to):
                refuse("remove.objects", f"{obj.name}.{f.name} references {f.reference_to[0]}")
            if f.roll_up is not None and f.roll_up.child in gone:
                refuse("remove.objects", f"{obj.name}.{f.name} adds up {f.roll_up.child}")
            for entity, name in touched:
                if _uses(obj, f, entity, name):
                    refuse(f"objects.{entity}.fields.{name}", f"{obj.name}.{f.name} is computed from it")


def _check_sharing_rules(unit: UnitOfWork, touched: Sequence[tuple[str, str]]) -> None:
    for rule in read_sharing_rules(unit.tx):
        for name in (n for e, n in touched if e == rule.entity):
            if name.lower() in {part[0].lower() for part in rule.criteria}:
                refuse(f"objects.{rule.entity}.fields.{name}", f"the sharing rule {rule.name} uses it")


def _check_topics(queries: Iterable[tuple[str, str]], words: Sequence[str]) -> None:
    for topic, query in queries:
        for word in words:
            # A field is also reached by its relationship, X__r for X__c; a word in a text literal only makes
            # us too careful.
            stem = word.removesuffix("__c")
            if re.search(rf"\b{re.escape(stem)}__[cr]\b", query, re.IGNORECASE):
                refuse("push_topics", f"{topic} uses {word}; change or remove it first")


def _uses(obj: ObjectType, f: Field, entity: str, name: str) -> bool:
    if f.roll_up is not None and f.roll_up.child == entity:
        named = (f.roll_up.child_field, f.roll_up.summed_field, *(part[0] for part in f.roll_up.filters))
        return name.lower() in {n.lower() for n in named}
    if not f.formula or obj.name != entity:
        return False
    return re.search(rf"\b{re.escape(name)}\b", f.formula, re.IGNORECASE) is not None


def _queries(unit: UnitOfWork, removal: Removal, document: Mapping[str, object]) -> list[tuple[str, str]]:
    """The push topics as they will be after this definition."""
    planned = mapping(document.get("push_topics"), "push_topics")
    rows = read_all_rows(unit.tx, unit.catalog.object("PushTopic"))
    queries = {str(r["Name"]): str(r["Query"]) for r in rows if not r["IsDeleted"]}
    for name, spec in planned.items():
        given = mapping(spec, f"push_topics.{name}")
        queries[name] = str(
            next((v for k, v in given.items() if k.lower() == "query"), queries.get(name, ""))
        )
    return [(name, query) for name, query in queries.items() if name not in removal.named["push_topics"]]


def _check_filters(catalog: Catalog) -> None:
    """Refuse what would leave a channel member with a filter that names nothing any more."""
    for member in catalog.selection.members if catalog.objects else ():
        kind = catalog.try_object(member.entity) if member.entity else catalog.try_any_event(member.event)
        if member.filter_text and kind is not None:
            try:
                compile_event_filter(member.filter_text, kind)
            except DefinitionInvalid:
                refuse("remove.fields", f"the channel member {member.full_name} filters by it")
