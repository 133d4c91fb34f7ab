"""The section `remove`: the only way to remove something with a definition.

Something that does not exist gives no step, so the section may stay in the document. Something still in use is
rejected: an object by lookups, a field by formulas, roll-ups, filters, sharing rules and push topics, a profile or role
by users, a role by lower roles, a group by sharing rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidewire.access.apps import delete_app, try_read_app
from tidewire.capture.event_filters import compile_event_filter
from tidewire.errors import DefinitionInvalid
from tidewire.gate.definitions.document import check_keys, keys_in, mapping, reject, text_list
from tidewire.gate.definitions.groups import try_group_id
from tidewire.gate.definitions.plan import Step, try_find
from tidewire.gate.definitions.roles import read_roles
from tidewire.records.conversion import ConversionNote
from tidewire.records.table import read_all_rows, read_rows
from tidewire.records.types import Types, read_sharing_rules
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType

# Lists of names of records or rows; the section that defines them has the same name.
_NAMED = keys_in(
    "push_topics permission_sets profiles roles groups queues connected_apps sharing_rules channels"
    " channel_members managed_subscriptions"
)
_STANDARD_PROFILES = ("System Administrator", "Standard User")
_KEYS = ("objects", "events", "fields", *_NAMED)


@dataclass(frozen=True, slots=True)
class Removal:
    """What to remove, by exact names. Fields are by object or event; `named` is by section."""

    objects: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    event_fields: Mapping[str, frozenset[str]] = field(default_factory=dict)
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_removal(unit: UnitOfWork, document: Mapping[str, object]) -> Removal:
    """Read what the section names and the org still has."""
    spec = mapping(document.get("remove"), "remove")
    check_keys(spec, _KEYS, "remove")
    listed = {s: tuple(dict.fromkeys(text_list(spec.get(s), f"remove.{s}"))) for s in _KEYS}
    for section in ("objects", "events", *_NAMED):
        kept = mapping(document.get(section), section)
        for name in listed[section]:
            if name in kept:
                reject(f"remove.{section}", f"{name} is both defined and removed")
    for key in listed["sharing_rules"]:
        entity, _, name = key.partition(".")
        kept = mapping(mapping(document.get("objects"), "objects").get(entity), f"objects.{entity}")
        if name in mapping(kept.get("sharing_rules"), f"objects.{entity}.sharing_rules"):
            reject("remove.sharing_rules", f"{key} is both defined and removed")
    objects = []
    for name in listed["objects"]:
        obj = unit.catalog.try_object(name)
        if obj is not None and not obj.custom:
            reject("remove.objects", f"{obj.name} is a standard object and cannot be removed")
        if obj is not None and obj.name not in objects:
            objects.append(obj.name)
    known = [unit.catalog.try_event(name) for name in listed["events"]]
    events = tuple(dict.fromkeys(event.name for event in known if event is not None))
    fields, event_fields = _read_fields(unit.catalog, document, listed["fields"])
    return Removal(
        tuple(objects),
        events,
        {name: names for name, names in fields.items() if name not in objects},
        {name: names for name, names in event_fields.items() if name not in events},
        {section: listed[section] for section in _NAMED},
    )


def _existing_field(
    document: Mapping[str, object], section: str, full_name: str, names: Sequence[str], entity: str, name: str
) -> str | None:
    """Return the exact name of a field that exists. Rejects one that the document also defines."""
    stored = next((each for each in names if each.lower() == name.lower()), None)
    spec = mapping(mapping(document.get(section), section).get(entity), f"{section}.{entity}")
    if stored is not None and stored in mapping(spec.get("fields"), f"{section}.{entity}.fields"):
        reject("remove.fields", f"{full_name} is both defined and removed")
    return stored


def _read_fields(
    catalog: Catalog, document: Mapping[str, object], listed: Iterable[str]
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """Return the fields to remove, by object and by platform event."""
    objects: dict[str, frozenset[str]] = {}
    events: dict[str, frozenset[str]] = {}
    for full_name in listed:
        entity, dot, name = full_name.partition(".")
        event = catalog.try_event(entity) if entity.lower().endswith("__e") else None
        if event is not None:
            names = [f.name for f in event.fields]
            stored = _existing_field(document, "events", full_name, names, event.name, name)
            if stored is not None:
                events[event.name] = events.get(event.name, frozenset()) | {stored}
            continue
        if entity.lower().endswith("__e"):
            continue
        if not dot or not name:
            reject("remove.fields", f"{full_name} must have the form Object.Field__c")
        obj = catalog.try_object(entity)
        field_ = obj.try_field(name) if obj is not None else None
        if obj is None or field_ is None:
            continue
        _existing_field(document, "objects", full_name, [field_.name], obj.name, name)
        if not field_.custom or field_.compound:
            reject(
                "remove.fields",
                f"{full_name} is a standard field or a part of one; only custom fields can go",
            )
        objects[obj.name] = objects.get(obj.name, frozenset()) | {field_.name}
    return objects, events


def forget_records(unit: UnitOfWork, types: Types, objects: Sequence[str]) -> None:
    """Delete the record types, queue assignments and sharing rules of removed objects."""
    for entity in ("RecordType", "QueueSobject"):
        obj = unit.catalog.object(entity)
        for row in read_all_rows(unit.tx, obj):
            if row["SobjectType"] in objects and not row["IsDeleted"]:
                unit.delete(obj, str(row["Id"]))
    rules = [rule.key for rule in read_sharing_rules(unit.tx) if rule.entity in objects]
    if rules:
        types.change_sharing_rules(unit.tx, removed=rules)


def forget_permissions(unit: UnitOfWork, objects: Sequence[str], fields: Sequence[tuple[str, str]]) -> None:
    """Delete permissions on removed types and fields, so that a later type of the same name starts without any."""
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
    """Reject removals and conversions of what the new catalog, a sharing rule or a push topic still uses."""
    _check_filters(catalog)
    gone = set(removal.objects)
    touched = [(e, n) for e, names in removal.fields.items() for n in sorted(names)]
    touched += [(note.entity, note.field) for note in notes]
    _check_fields(catalog, gone, touched)
    _check_sharing_rules(unit, touched)
    if gone or touched:
        _check_topics(_queries(unit, removal, document), (*gone, *(name for _, name in touched)))


def _check_fields(catalog: Catalog, gone: set[str], touched: Sequence[tuple[str, str]]) -> None:
    """Reject what a lookup, a roll-up or a formula of the new catalog uses."""
    for obj in catalog.objects:
        for f in obj.fields:
            if gone.intersection(f.reference_to):
                reject("remove.objects", f"{obj.name}.{f.name} references {f.reference_to[0]}")
            if f.roll_up is not None and f.roll_up.child in gone:
                reject("remove.objects", f"{obj.name}.{f.name} is a roll-up of {f.roll_up.child}")
            for entity, name in touched:
                if _uses(obj, f, entity, name):
                    reject(f"objects.{entity}.fields.{name}", f"{obj.name}.{f.name} is computed from it")


def _check_sharing_rules(unit: UnitOfWork, touched: Sequence[tuple[str, str]]) -> None:
    for rule in read_sharing_rules(unit.tx):
        for name in (n for e, n in touched if e == rule.entity):
            if name.lower() in {part[0].lower() for part in rule.criteria}:
                reject(f"objects.{rule.entity}.fields.{name}", f"the sharing rule {rule.name} uses it")


def _check_topics(queries: Iterable[tuple[str, str]], words: Sequence[str]) -> None:
    for topic, query in queries:
        for word in words:
            # A query may also name the relationship, X__r for X__c. A match in a text literal is a false alarm
            # that the user can resolve.
            stem = word.removesuffix("__c")
            if re.search(rf"\b{re.escape(stem)}__[cr]\b", query, re.IGNORECASE):
                reject("push_topics", f"{topic} uses {word}; change or remove it first")


def _uses(obj: ObjectType, f: Field, entity: str, name: str) -> bool:
    if f.roll_up is not None and f.roll_up.child == entity:
        named = (f.roll_up.child_field, f.roll_up.summed_field, *(part[0] for part in f.roll_up.filters))
        return name.lower() in {n.lower() for n in named}
    if not f.formula or obj.name != entity:
        return False
    return re.search(rf"\b{re.escape(name)}\b", f.formula, re.IGNORECASE) is not None


def _queries(unit: UnitOfWork, removal: Removal, document: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return name and query of the push topics after this definition."""
    planned = mapping(document.get("push_topics"), "push_topics")
    rows = read_all_rows(unit.tx, unit.catalog.object("PushTopic"))
    queries = {str(r["Name"]): str(r["Query"]) for r in rows if not r["IsDeleted"]}
    for name, spec in planned.items():
        submitted = mapping(spec, f"push_topics.{name}")
        queries[name] = str(
            next((v for k, v in submitted.items() if k.lower() == "query"), queries.get(name, ""))
        )
    return [(name, query) for name, query in queries.items() if name not in removal.named["push_topics"]]


def _check_filters(catalog: Catalog) -> None:
    """Reject removals that would break the filter of a channel member."""
    for member in catalog.selection.members if catalog.objects else ():
        kind = catalog.try_object(member.entity) if member.entity else catalog.try_any_event(member.event)
        if member.filter_text and kind is not None:
            try:
                compile_event_filter(member.filter_text, kind)
            except DefinitionInvalid:
                reject(
                    "remove.fields",
                    f"the channel member {member.full_name} filters by it; change the filter first",
                )


def removal_steps(unit: UnitOfWork, types: Types, named: Mapping[str, tuple[str, ...]]) -> list[Step]:
    """Return a step for each record or row that exists; sharing rules before the groups that they name."""
    steps: list[Step] = []
    rules = {rule.key for rule in read_sharing_rules(unit.tx)}
    for key in (key for key in named["sharing_rules"] if key in rules):
        remove = partial(types.change_sharing_rules, unit.tx, (), [key])
        steps.append(Step(f"remove sharing rule {key}", remove))
    for name in named["push_topics"]:
        topic_id = try_find(unit, "PushTopic", "Name", name)
        if topic_id is not None:
            delete = partial(unit.delete, unit.catalog.object("PushTopic"), topic_id)
            steps.append(Step(f"remove push topic {name}", delete))
    for name in named["permission_sets"]:
        set_id = try_find(unit, "PermissionSet", "Name", name)
        if set_id is not None:
            steps.append(Step(f"remove permission set {name}", partial(_remove_set, unit, set_id)))
    steps += _groups(unit, named)
    steps += _roles(unit, named)
    for name in named["profiles"]:
        steps += _profile(unit, name)
    for client_id in named["connected_apps"]:
        if try_read_app(unit.tx, client_id) is not None:
            steps.append(Step(f"remove connected app {client_id}", partial(delete_app, unit.tx, client_id)))
    return steps


def _remove_set(unit: UnitOfWork, set_id: str) -> None:
    catalog = unit.catalog
    for entity, name in (
        ("PermissionSetAssignment", "PermissionSetId"),
        ("ObjectPermissions", "ParentId"),
        ("FieldPermissions", "ParentId"),
        ("PermissionSet", "Id"),
    ):
        delete_where(unit, catalog.object(entity), name, [set_id])


def delete_where(unit: UnitOfWork, obj: ObjectType, name: str, values: Sequence[str]) -> None:
    """Delete the records whose field holds one of these values."""
    for row in read_rows(unit.tx, obj, name, values):
        unit.delete(obj, str(row["Id"]))


def _groups(unit: UnitOfWork, named: Mapping[str, tuple[str, ...]]) -> list[Step]:
    steps: list[Step] = []
    groups = unit.catalog.object("Group")
    for section, kind in (("groups", "Regular"), ("queues", "Queue")):
        for name in named[section]:
            group_id = try_group_id(unit, kind, name)
            if group_id is not None:
                _check_rules(unit, group_id, named, f"remove.{section}", name)
                delete = partial(unit.delete, groups, group_id)
                steps.append(Step(f"remove {section.removesuffix('s')} {name}", delete))
    return steps


def _check_rules(
    unit: UnitOfWork, group_id: str, named: Mapping[str, tuple[str, ...]], path: str, name: str
) -> None:
    for rule in read_sharing_rules(unit.tx):
        if rule.key not in named["sharing_rules"] and group_id in (rule.shared_with_id, rule.owned_by_id):
            reject(path, f"the sharing rule {rule.key} names {name}; remove it first")


def _roles(unit: UnitOfWork, named: Mapping[str, tuple[str, ...]]) -> list[Step]:
    held = read_roles(unit)
    gone = [name for name in named["roles"] if name in held]
    ids = {str(held[name]["Id"]): name for name in gone}
    for name, row in held.items():
        if name not in gone and row["ParentRoleId"] in ids:
            reject("remove.roles", f"{name} is below {ids[str(row['ParentRoleId'])]}")
    users = unit.catalog.object("User")
    for user in read_rows(unit.tx, users, "UserRoleId", list(ids)):
        reject("remove.roles", f"{user['Username']} has the role {ids[str(user['UserRoleId'])]}")
    groups = unit.catalog.object("Group")
    own = [g for g in read_all_rows(unit.tx, groups) if g["RelatedId"] in ids and not g["IsDeleted"]]
    for group in own:
        _check_rules(unit, str(group["Id"]), named, "remove.roles", ids[str(group["RelatedId"])])
    # Lower roles first, so that no role is ever left without its parent.
    order = sorted(gone, key=lambda name: -_depth(held, name))
    return [Step(f"remove role {name}", partial(_remove_role, unit, str(held[name]["Id"]))) for name in order]


def _depth(held: Mapping[str, Mapping[str, object]], name: str) -> int:
    names = {row["Id"]: name for name, row in held.items()}
    depth, above = 0, held[name]["ParentRoleId"]
    while above in names and depth < len(names):
        depth, above = depth + 1, held[names[above]]["ParentRoleId"]
    return depth


def _remove_role(unit: UnitOfWork, role_id: str) -> None:
    delete_where(unit, unit.catalog.object("Group"), "RelatedId", [role_id])
    unit.delete(unit.catalog.object("UserRole"), role_id)


def _profile(unit: UnitOfWork, name: str) -> list[Step]:
    profile_id = try_find(unit, "Profile", "Name", name)
    if profile_id is None:
        return []
    if name in _STANDARD_PROFILES:
        reject("remove.profiles", f"{name} is a standard profile and cannot be removed")
    for user in read_rows(unit.tx, unit.catalog.object("User"), "ProfileId", [profile_id]):
        reject("remove.profiles", f"{user['Username']} has the profile {name}")
    return [Step(f"remove profile {name}", partial(_remove_profile, unit, profile_id))]


def _remove_profile(unit: UnitOfWork, profile_id: str) -> None:
    for row in read_rows(unit.tx, unit.catalog.object("PermissionSet"), "ProfileId", [profile_id]):
        _remove_set(unit, str(row["Id"]))
    unit.delete(unit.catalog.object("Profile"), profile_id)
