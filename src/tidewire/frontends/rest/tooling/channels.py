"""Channels, their members, and the fields that members add to events, as objects of the Tooling API.

They are what sets up the org: only who may view its setup sees rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.frontends.rest.tooling.model import (
    FULL_NAME,
    METADATA,
    Row,
    Seen,
    ToolingObject,
    durable_id,
    flags,
    link,
    made_fields,
    made_values,
    metadata_fields,
    tooling_type,
    words,
)
from tidewire.gate.metadata.channels import try_read_channel, try_read_member
from tidewire.gate.metadata.registry import channel_id, component_id, field_id, member_id
from tidewire.schema.channels import CHANNEL_SUFFIX, STANDARD_CHANNEL, ChannelMember
from tidewire.schema.fields import datetime

_CHANNEL = tooling_type(
    "PlatformEventChannel",
    "Platform Event Channel",
    "Platform Event Channels",
    "0YL",
    [
        *flags("IsDeleted"),
        *words("DeveloperName", "Language", "MasterLabel", "NamespacePrefix", "ManageableState"),
        *made_fields(),
        datetime("SystemModstamp", "System Modstamp"),
        *words("ChannelType", "EventType"),
        *metadata_fields(),
    ],
    is_writeable=True,
)
_MEMBER = tooling_type(
    "PlatformEventChannelMember",
    "Platform Event Channel Member",
    "Platform Event Channel Members",
    "0v8",
    [
        *flags("IsDeleted"),
        *words("DeveloperName", "Language", "MasterLabel", "NamespacePrefix", "ManageableState"),
        *made_fields(),
        datetime("SystemModstamp", "System Modstamp"),
        *words("EventChannel", "SelectedEntity", "FilterExpression"),
        *metadata_fields(),
    ],
    is_writeable=True,
)
_ENRICHED = tooling_type(
    "EnrichedField",
    "Enriched Field",
    "Enriched Fields",
    "0vA",
    [
        *flags("IsDeleted"),
        *made_fields(),
        datetime("SystemModstamp", "System Modstamp"),
        link("ChannelMemberId", "PlatformEventChannelMember", "ChannelMember", "EnrichedFields"),
        *words("Field"),
    ],
)


def _can_see(seen: Seen) -> bool:
    return seen.grants.has("ViewSetup") or seen.grants.has("CustomizeApplication")


def _system_values(seen: Seen) -> Row:
    made = made_values(seen)
    return made | {"IsDeleted": False, "SystemModstamp": made["LastModifiedDate"]}


def _named(name: str, label: str) -> Row:
    return {
        "DeveloperName": name,
        "Language": "en_US",
        "MasterLabel": label,
        "NamespacePrefix": None,
        "ManageableState": "unmanaged",
    }


def _channel_rows(seen: Seen) -> list[Row]:
    if not _can_see(seen):
        return []
    system = _system_values(seen)
    return [
        {
            "Id": channel_id(channel.name),
            "ChannelType": channel.kind,
            "EventType": channel.event_type or None,
            FULL_NAME: channel.name,
        }
        | _named(channel.name.removesuffix(CHANNEL_SUFFIX), channel.label)
        | system
        for channel in seen.catalog.selection.channels
    ]


def _member_rows(seen: Seen) -> list[Row]:
    if not _can_see(seen):
        return []
    system = _system_values(seen)
    return [
        {
            "Id": member_id(member.full_name),
            "EventChannel": _channel_key(member.channel),
            "SelectedEntity": _entity_key(seen, member),
            "FilterExpression": member.filter_text or None,
            FULL_NAME: member.full_name,
        }
        | _named(member.full_name, member.event)
        | system
        for member in seen.catalog.selection.members
    ]


def _channel_key(name: str) -> str:
    return name if name == STANDARD_CHANNEL else channel_id(name)


def _entity_key(seen: Seen, member: ChannelMember) -> str:
    """A standard object's change event goes by its name, what belongs to a type of the org's own by an id."""
    event = seen.catalog.try_event(member.event)
    if event is not None:
        return durable_id(event)
    obj = seen.catalog.try_object(member.entity)
    return component_id("01I", member.event) if obj is not None and obj.custom else member.event


def _enriched_rows(seen: Seen) -> list[Row]:
    if not _can_see(seen):
        return []
    system = _system_values(seen)
    rows: list[Row] = []
    for member in seen.catalog.selection.members:
        obj = seen.catalog.try_object(member.entity)
        for name in member.enriched:
            f = obj.try_field(name) if obj is not None else None
            rows.append(
                {
                    "Id": component_id(_ENRICHED.key_prefix, f"{member.full_name}.{name}"),
                    "ChannelMemberId": member_id(member.full_name),
                    "Field": field_id(member.entity, f) if f is not None and f.custom else name,
                }
                | system
            )
    return rows


def _channel_metadata(seen: Seen, row: Row) -> Mapping[str, object]:
    properties = try_read_channel(seen.catalog, str(row[FULL_NAME]), None) or {}
    return {METADATA: properties | {"urls": None}}


def _member_metadata(seen: Seen, row: Row) -> Mapping[str, object]:
    properties = try_read_member(seen.catalog, str(row[FULL_NAME])) or {}
    absent: dict[str, object] = {"enrichedFields": [], "filterExpression": None, "urls": None}
    return {METADATA: absent | properties}


CHANNEL_OBJECTS = (
    ToolingObject(
        _CHANNEL, _channel_rows, complete=_channel_metadata, kind="PlatformEventChannel", is_reference=True
    ),
    ToolingObject(
        _MEMBER, _member_rows, complete=_member_metadata, kind="PlatformEventChannelMember", is_reference=True
    ),
    ToolingObject(_ENRICHED, _enriched_rows),
)
