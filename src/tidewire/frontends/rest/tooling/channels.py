"""Channels, their members and enriched fields, and managed subscriptions, as objects of the Tooling API.

They are part of the org's setup: only users who may view the setup see rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewire.frontends.rest.tooling.model import (
    FULL_NAME,
    METADATA,
    Row,
    Seen,
    ToolingObject,
    audit_fields,
    audit_values,
    checkbox_fields,
    durable_id,
    link,
    metadata_fields,
    text_fields,
    tooling_type,
)
from tidewire.gate.metadata.channels import try_read_channel, try_read_managed, try_read_member
from tidewire.gate.metadata.registry import channel_id, component_id, field_id, managed_id, member_id
from tidewire.schema.channels import (
    CHANNEL_SUFFIX,
    STANDARD_CHANNEL,
    ChannelMember,
    CustomChannel,
    ManagedSubscription,
)
from tidewire.schema.fields import datetime
from tidewire.schema.model import Field, ObjectType


def _component_type(name: str, label: str, prefix: str, own: list[Field]) -> ObjectType:
    """Return the type of a component that can be written; `own` are the fields that others lack."""
    return tooling_type(
        name,
        label,
        f"{label}s",
        prefix,
        [
            *checkbox_fields("IsDeleted"),
            *text_fields("DeveloperName", "Language", "MasterLabel", "NamespacePrefix", "ManageableState"),
            *audit_fields(),
            datetime("SystemModstamp", "System Modstamp"),
            *own,
            *metadata_fields(),
        ],
        is_writeable=True,
    )


_CHANNEL = _component_type(
    "PlatformEventChannel", "Platform Event Channel", "0YL", text_fields("ChannelType", "EventType")
)
_MEMBER = _component_type(
    "PlatformEventChannelMember",
    "Platform Event Channel Member",
    "0v8",
    text_fields("EventChannel", "SelectedEntity", "FilterExpression"),
)
_MANAGED = _component_type(
    "ManagedEventSubscription",
    "Managed Event Subscription",
    "18x",
    text_fields("TopicName", "DefaultReplay", "ErrorRecoveryReplay", "State"),
)
_ENRICHED = tooling_type(
    "EnrichedField",
    "Enriched Field",
    "Enriched Fields",
    "0vA",
    [
        *checkbox_fields("IsDeleted"),
        *audit_fields(),
        datetime("SystemModstamp", "System Modstamp"),
        link("ChannelMemberId", "PlatformEventChannelMember", "ChannelMember", "EnrichedFields"),
        *text_fields("Field"),
    ],
)


def _can_see(seen: Seen) -> bool:
    return seen.grants.has("ViewSetup") or seen.grants.has("CustomizeApplication")


def _system_values(seen: Seen) -> Row:
    audit = audit_values(seen)
    return audit | {"IsDeleted": False, "SystemModstamp": audit["LastModifiedDate"]}


def _component_rows(seen: Seen, components: Iterable[tuple[str, str, Row]]) -> list[Row]:
    """Return the rows of components, each with a full name, a label and the values that others lack."""
    if not _can_see(seen):
        return []
    common = _system_values(seen) | {
        "Language": "en_US",
        "NamespacePrefix": None,
        "ManageableState": "unmanaged",
    }
    return [
        common
        | own
        | {FULL_NAME: name, "DeveloperName": name.removesuffix(CHANNEL_SUFFIX), "MasterLabel": label}
        for name, label, own in components
    ]


def _channel_rows(seen: Seen) -> list[Row]:
    def own(channel: CustomChannel) -> Row:
        return {
            "Id": channel_id(channel.name),
            "ChannelType": channel.kind,
            "EventType": channel.event_type or None,
        }

    return _component_rows(seen, ((c.name, c.label, own(c)) for c in seen.catalog.selection.channels))


def _member_rows(seen: Seen) -> list[Row]:
    def own(member: ChannelMember) -> Row:
        return {
            "Id": member_id(member.full_name),
            "EventChannel": _channel_key(member.channel),
            "SelectedEntity": _entity_key(seen, member),
            "FilterExpression": member.filter_text or None,
        }

    return _component_rows(seen, ((m.full_name, m.event, own(m)) for m in seen.catalog.selection.members))


def _managed_rows(seen: Seen) -> list[Row]:
    def own(managed: ManagedSubscription) -> Row:
        return {
            "Id": managed_id(managed.name),
            "TopicName": managed.topic,
            "DefaultReplay": managed.default_replay,
            "ErrorRecoveryReplay": managed.error_replay,
            "State": managed.state,
        }

    return _component_rows(seen, ((m.name, m.label, own(m)) for m in seen.catalog.selection.managed))


def _channel_key(name: str) -> str:
    return name if name == STANDARD_CHANNEL else channel_id(name)


def _entity_key(seen: Seen, member: ChannelMember) -> str:
    """Return the key of a member's entity: a standard object's change event has its name, others an id."""
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


def _managed_metadata(seen: Seen, row: Row) -> Mapping[str, object]:
    properties = try_read_managed(seen.catalog, str(row[FULL_NAME])) or {}
    return {METADATA: properties | {"urls": None, "version": None}}


CHANNEL_OBJECTS = (
    ToolingObject(_CHANNEL, _channel_rows, complete=_channel_metadata, is_reference=True),
    ToolingObject(_MEMBER, _member_rows, complete=_member_metadata, is_reference=True),
    ToolingObject(_ENRICHED, _enriched_rows),
    ToolingObject(_MANAGED, _managed_rows, complete=_managed_metadata, is_reference=True),
)
