"""The section `remove`: the only way in which a definition takes something away.

What is gone already is no step, so the section may stay in the document. What something else still needs is
refused: a lookup its object, a formula, roll-up or push topic its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidewire.access.definition import check_keys, mapping
from tidewire.access.definitions.document import refuse, text_list
from tidewire.access.definitions.plan import Step
from tidewire.records.conversion import ConversionNote
from tidewire.records.table import read_all_rows, read_rows, try_find_by_value
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType

_KEYS = ("objects", "fields", "push_topics", "permission_sets")


@dataclass(frozen=True, slots=True)
class Removal:
    """What there is to remove, by its exact name. `fields` is by object."""

    objects: tuple[str, ...] = ()
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    push_topics: tuple[str, ...] = ()
    permission_sets: tuple[str, ...] = ()


def read_removal(unit: UnitOfWork, document: Mapping[str, object]) -> Removal:
    """What the section names and the org still has."""
    spec = mapping(document.get("remove"), "remove")
    check_keys(spec, _KEYS, "remove")
    for section in ("objects", "push_topics", "permission_sets"):
        kept = mapping(document.get(section), section)
        for name in text_list(spec.get(section), f"remove.{section}"):
            if name in kept:
                refuse(f"remove.{section}", f"{name} is both defined and removed")
    objects = []
    for name in text_list(spec.get("objects"), "remove.objects"):
        obj = unit.catalog.try_object(name)
        if obj is not None and not obj.custom:
            refuse("remove.objects", f"{obj.name} is a standard object")
        if obj is not None and obj.name not in objects:
            objects.append(obj.name)
    fields = _fields(unit.catalog, document, text_list(spec.get("fields"), "remove.fields"))
    return Removal(
        tuple(objects),
        {name: names for name, names in fields.items() if name not in objects},
        tuple(dict.fromkeys(text_list(spec.get("push_topics"), "remove.push_topics"))),
        tuple(dict.fromkeys(text_list(spec.get("permission_sets"), "remove.permission_sets"))),
    )


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


def removal_steps(unit: UnitOfWork, removal: Removal) -> list[Step]:
    """Removing records of setup objects: push topics and permission sets."""
    steps: list[Step] = []
    topics, sets = unit.catalog.object("PushTopic"), unit.catalog.object("PermissionSet")
    for name in removal.push_topics:
        topic_id = try_find_by_value(unit.tx, topics, topics.by_name["name"], name)
        if topic_id is not None:
            steps.append(Step(f"remove push topic {name}", partial(unit.delete, topics, topic_id)))
    for name in removal.permission_sets:
        set_id = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
        if set_id is not None:
            steps.append(Step(f"remove permission set {name}", partial(_remove_set, unit, set_id)))
    return steps


def _remove_set(unit: UnitOfWork, set_id: str) -> None:
    catalog = unit.catalog
    for entity, name in (
        ("PermissionSetAssignment", "PermissionSetId"),
        ("ObjectPermissions", "ParentId"),
        ("FieldPermissions", "ParentId"),
        ("PermissionSet", "Id"),
    ):
        _delete_where(unit, catalog.object(entity), name, [set_id])


def _delete_where(unit: UnitOfWork, obj: ObjectType, name: str, values: Sequence[str]) -> None:
    for row in read_rows(unit.tx, obj, name, values):
        unit.delete(obj, str(row["Id"]))


def forget_permissions(unit: UnitOfWork, objects: Sequence[str], fields: Sequence[tuple[str, str]]) -> None:
    """Delete the permissions on what is going away, so that a later type of the same name starts without."""
    catalog = unit.catalog
    _delete_where(unit, catalog.object("ObjectPermissions"), "SobjectType", objects)
    _delete_where(unit, catalog.object("FieldPermissions"), "SobjectType", objects)
    _delete_where(unit, catalog.object("FieldPermissions"), "Field", [f"{e}.{n}" for e, n in fields])


def check_unused(
    unit: UnitOfWork,
    catalog: Catalog,
    removal: Removal,
    notes: Sequence[ConversionNote],
    document: Mapping[str, object],
) -> None:
    """Refuse to remove what the new catalog or a push topic still names, or to convert a field under one."""
    gone = set(removal.objects)
    touched = [(e, n) for e, names in removal.fields.items() for n in sorted(names)]
    touched += [(note.entity, note.field) for note in notes]
    for obj in catalog.objects:
        for f in obj.fields:
            if gone.intersection(f.reference_to):
                refuse("remove.objects", f"{obj.name}.{f.name} references {f.reference_to[0]}")
            if f.roll_up is not None and f.roll_up.child in gone:
                refuse("remove.objects", f"{obj.name}.{f.name} adds up {f.roll_up.child}")
            for entity, name in touched:
                if _uses(obj, f.name, entity, name):
                    refuse(f"objects.{entity}.fields.{name}", f"{obj.name}.{f.name} is computed from it")
    if not (gone or touched):
        return
    for topic, query in _queries(unit, removal, document):
        for word in (*gone, *(name for _, name in touched)):
            # A field is also reached by its relationship, X__r for X__c; a word in a text literal only makes
            # us too careful.
            stem = word.removesuffix("__c")
            if re.search(rf"\b{re.escape(stem)}__[cr]\b", query, re.IGNORECASE):
                refuse("push_topics", f"{topic} uses {word}; change or remove it first")


def _uses(obj: ObjectType, computed: str, entity: str, name: str) -> bool:
    f = obj.by_name[computed.lower()]
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
    return [(name, query) for name, query in queries.items() if name not in removal.push_topics]
