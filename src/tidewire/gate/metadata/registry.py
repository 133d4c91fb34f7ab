"""The supported types of components, one entry each: how to list, read, change and remove them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidewire.events import Value
from tidewire.gate.metadata.channels import (
    add_channel,
    add_managed,
    add_member,
    channels_of,
    try_read_channel,
    try_read_managed,
    try_read_member,
)
from tidewire.gate.metadata.field_parse import Context
from tidewire.gate.metadata.field_render import render_field_properties
from tidewire.gate.metadata.objects import (
    Draft,
    add_field,
    add_object,
    field_components,
    is_event,
    render_event,
    render_object,
    shown_fields,
)
from tidewire.gate.metadata.permissions import (
    add_permission_set,
    add_profile,
    profile_name,
    profile_names,
    set_names,
    try_read_permission_set,
    try_read_profile,
)
from tidewire.gate.metadata.properties import Component, ordered, reject
from tidewire.ids import make_id
from tidewire.records.table import read_all_rows
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import EventType, Field, ObjectType
from tidewire.storage.store import Reader, Transaction

_ID_BITS = 53  # nine base-62 digits hold them


@dataclass(frozen=True, slots=True)
class Source:
    """Where components are read from: one snapshot and its types, for an API version, None for the newest."""

    reader: Reader | Transaction
    catalog: Catalog
    api_version: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A component in a list, with its record, if it has one, for creator and dates."""

    full_name: str
    component_id: str
    row: Mapping[str, Value] | None = None


@dataclass(frozen=True, slots=True)
class MetadataType:
    """One type of component. `remove` adds a name to the section `remove`; `properties` are those that can be set."""

    name: str
    suffix: str
    properties: tuple[str, ...]
    entries: Callable[[Source], list[Entry]]
    try_read: Callable[[Source, str], dict[str, object] | None]
    add: Callable[[Draft, Component, Context], None]
    remove: Callable[[Draft, str], None]
    children: tuple[str, ...] = ()

    def path(self, full_name: str) -> str:
        """Return the file of a component in a package; a field is in the file of its object."""
        return (
            f"{self.directory}/{full_name.partition('.')[0] if self.is_nested else full_name}.{self.suffix}"
        )

    @property
    def directory(self) -> str:
        """The directory of its files in a package."""
        return f"{self.suffix}s"

    @property
    def is_nested(self) -> bool:
        """Whether components of this type are in files of another type."""
        return self.name == "CustomField"


def component_id(prefix: str, full_name: str) -> str:
    """Derive the id of a component without a record from its name."""
    digest = hashlib.blake2b(full_name.lower().encode(), digest_size=8).digest()
    return make_id(prefix, int.from_bytes(digest, "big") >> (64 - _ID_BITS))


def object_id(obj: ObjectType | EventType) -> str:
    """Derive the id of a custom object or platform event from its key prefix, which survives a rename."""
    return component_id("01I", obj.key_prefix)


def field_id(entity: str, f: Field) -> str:
    """Return the id of a custom field."""
    return f.field_id or component_id("00N", f"{entity}.{f.name}")


def iter_fields(catalog: Catalog) -> list[tuple[ObjectType | EventType, Field]]:
    """Return every custom field with its object or platform event."""
    found: list[tuple[ObjectType | EventType, Field]] = [
        (obj, f) for obj in catalog.objects for f in shown_fields(obj) if f.custom
    ]
    return found + [(event, f) for event in catalog.events for f in event.fields]


def _object_entries(source: Source) -> list[Entry]:
    types: list[ObjectType | EventType] = [*source.catalog.objects, *source.catalog.events]
    return [Entry(each.name, object_id(each) if _is_custom(each) else "") for each in types]


def _is_custom(each: ObjectType | EventType) -> bool:
    return isinstance(each, EventType) or each.custom


def record_types_of(source: Source, entity: str) -> list[dict[str, object]]:
    """Read the record types of an object as properties."""
    rows = read_all_rows(source.reader, source.catalog.object("RecordType"))
    found: list[dict[str, object]] = []
    for row in sorted(rows, key=lambda r: str(r["DeveloperName"])):
        if row["SobjectType"] != entity or row.get("IsDeleted"):
            continue
        name, description = str(row["DeveloperName"]), row.get("Description")
        found.append(ordered(name, active=bool(row["IsActive"]), description=description, label=row["Name"]))
    return found


def _read_object(source: Source, full_name: str) -> dict[str, object] | None:
    event = source.catalog.try_event(full_name)
    if event is not None:
        return render_event(event)
    obj = source.catalog.try_object(full_name)
    return None if obj is None else render_object(obj, record_types_of(source, obj.name))


def _add_object(draft: Draft, component: Component, context: Context) -> None:
    add_object(draft, component, context)
    for each in field_components(component):
        add_field(draft, each, context)


def _remove_object(draft: Draft, full_name: str) -> None:
    draft.remove("events" if is_event(full_name) else "objects", full_name)


def _field_entries(source: Source) -> list[Entry]:
    return [Entry(f"{o.name}.{f.name}", field_id(o.name, f)) for o, f in iter_fields(source.catalog)]


def _read_field(source: Source, full_name: str) -> dict[str, object] | None:
    entity, _, name = full_name.partition(".")
    obj = source.catalog.try_object(entity)
    if obj is not None:
        known = obj.try_field(name)
        is_shown = known is not None and known in shown_fields(obj)
        return render_field_properties(obj, known) if known is not None and is_shown else None
    found = Context(source.catalog, source.reader).try_field(full_name)
    return None if found is None else render_field_properties(None, found)


def _set_entries(source: Source) -> list[Entry]:
    return [Entry(name, str(row["Id"]), row) for name, row in set_names(source.reader, source.catalog)]


def _profile_entries(source: Source) -> list[Entry]:
    return [Entry(name, str(row["Id"]), row) for name, row in profile_names(source.reader, source.catalog)]


def channel_id(name: str) -> str:
    """Return the id of a channel."""
    return component_id("0YL", name)


def member_id(full_name: str) -> str:
    """Return the id of a channel member."""
    return component_id("0v8", full_name)


def managed_id(name: str) -> str:
    """Return the id of a managed subscription."""
    return component_id("18x", name)


def _managed_entries(source: Source) -> list[Entry]:
    return [Entry(m.name, managed_id(m.name)) for m in source.catalog.selection.managed]


def _channel_entries(source: Source) -> list[Entry]:
    return [Entry(c.name, channel_id(c.name)) for c in channels_of(source.catalog, source.api_version)]


def _member_entries(source: Source) -> list[Entry]:
    return [Entry(m.full_name, member_id(m.full_name)) for m in source.catalog.selection.members]


_RIGHTS = ("description", "fieldPermissions", "objectPermissions", "userPermissions")

METADATA_TYPES: dict[str, MetadataType] = {
    each.name: each
    for each in (
        MetadataType(
            "CustomObject",
            "object",
            ("description", "fields", "label", "nameField", "pluralLabel", "recordTypes", "sharingModel"),
            _object_entries,
            _read_object,
            _add_object,
            _remove_object,
            ("CustomField", "RecordType"),
        ),
        MetadataType(
            "CustomField",
            "object",
            (
                "defaultValue",
                "description",
                "formula",
                "label",
                "length",
                "precision",
                "required",
                "scale",
                "type",
            ),
            _field_entries,
            _read_field,
            add_field,
            lambda draft, name: draft.remove("fields", name),
        ),
        MetadataType(
            "PermissionSet",
            "permissionset",
            (*_RIGHTS, "label"),
            _set_entries,
            lambda source, name: try_read_permission_set(source.reader, source.catalog, name),
            add_permission_set,
            lambda draft, name: draft.remove("permission_sets", name),
        ),
        MetadataType(
            "Profile",
            "profile",
            (*_RIGHTS, "custom", "userLicense"),
            _profile_entries,
            lambda source, name: try_read_profile(source.reader, source.catalog, name),
            add_profile,
            lambda draft, name: draft.remove("profiles", profile_name(name)),
        ),
        MetadataType(
            "PlatformEventChannel",
            "platformEventChannel",
            ("channelType", "eventType", "label"),
            _channel_entries,
            lambda source, name: try_read_channel(source.catalog, name, source.api_version),
            add_channel,
            lambda draft, name: draft.remove("channels", name),
        ),
        MetadataType(
            "PlatformEventChannelMember",
            "platformEventChannelMember",
            ("enrichedFields", "eventChannel", "filterExpression", "selectedEntity"),
            _member_entries,
            lambda source, name: try_read_member(source.catalog, name),
            add_member,
            lambda draft, name: draft.remove("channel_members", name),
        ),
        MetadataType(
            "ManagedEventSubscription",
            "managedEventSubscription",
            ("defaultReplay", "errorRecoveryReplay", "label", "state", "topicName"),
            _managed_entries,
            lambda source, name: try_read_managed(source.catalog, name),
            add_managed,
            lambda draft, name: draft.remove("managed_subscriptions", name),
        ),
    )
}
"""Every type by name. Fields are in the files of their objects."""


def metadata_type(name: str) -> MetadataType:
    """Return the type with this name. Raises DefinitionInvalid."""
    found = METADATA_TYPES.get(name)
    if found is None:
        reject(f"Unknown type:{name[:80]}", "INVALID_TYPE")
    return found
