"""PlatformEventChannel, PlatformEventChannelMember and ManagedEventSubscription.

Up to API version 46.0 a channel contains its members, and the standard channel is a component like the others. From
47.0 on members are separate components, and the standard channel is not a component.
"""

from __future__ import annotations

from tidewire.gate.metadata.field_parse import Context
from tidewire.gate.metadata.objects import Draft
from tidewire.gate.metadata.properties import (
    Component,
    check_properties,
    items_of,
    names_in,
    ordered,
    reject,
    require,
    text_of,
)
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import STANDARD_CHANNEL, CustomChannel, member_name

_LAST_WITH_MEMBERS = 46
_STANDARD = CustomChannel(STANDARD_CHANNEL, "Change Events", "data")
_CHANNEL = names_in("fullName channelType eventType label urls")
_MEMBER = names_in("fullName enrichedFields eventChannel filterExpression selectedEntity urls")
_MANAGED = names_in("fullName defaultReplay errorRecoveryReplay label state topicName version urls")


def has_nested_members(api_version: int | None) -> bool:
    """Return whether channels contain their members in this API version, None for the newest."""
    return api_version is not None and api_version <= _LAST_WITH_MEMBERS


def channels_of(catalog: Catalog, api_version: int | None) -> list[CustomChannel]:
    """Return the channels that are components in this API version."""
    own = list(catalog.selection.channels)
    return [_STANDARD, *own] if has_nested_members(api_version) else own


def try_read_channel(catalog: Catalog, full_name: str, api_version: int | None) -> dict[str, object] | None:
    """Return the properties of a channel, or None if it does not exist."""
    named = {c.name.lower(): c for c in channels_of(catalog, api_version)}
    channel = named.get(full_name.lower())
    if channel is None:
        return None
    properties: dict[str, object] = {
        "channelType": channel.kind,
        "eventType": channel.event_type or None,
        "label": channel.label,
    }
    if has_nested_members(api_version):
        members = catalog.selection.members_of(channel.name)
        properties["channelMembers"] = [{"selectedEntity": member.event} for member in members] or None
    return ordered(**properties)


def try_read_member(catalog: Catalog, full_name: str) -> dict[str, object] | None:
    """Return the properties of a member, or None if it does not exist."""
    member = catalog.selection.try_member(full_name)
    if member is None:
        return None
    return ordered(
        enrichedFields=[{"name": name} for name in member.enriched] or None,
        eventChannel=member.channel,
        filterExpression=member.filter_text or None,
        selectedEntity=member.event,
    )


def add_channel(draft: Draft, component: Component, context: Context) -> None:
    """Add a channel to the definition, with the members that it contains."""
    properties, name = component.properties, component.full_name
    is_old = has_nested_members(component.api_version)
    known = _CHANNEL | {"channelMembers"} if is_old else _CHANNEL
    check_properties(properties, known, f"PlatformEventChannel {name}")
    require(properties, "channelType", "label")
    if not (is_old and name == STANDARD_CHANNEL):
        spec = {"label": text_of(properties, "label"), "kind": text_of(properties, "channelType")}
        if text_of(properties, "eventType"):
            spec["event_type"] = text_of(properties, "eventType")
        draft.section("channels")[name] = spec
    if is_old:
        _add_members(draft, component, context.catalog)


def _add_members(draft: Draft, component: Component, catalog: Catalog) -> None:
    """Set the members of a channel to those in its component; existing ones keep their filter and enrichment."""
    held = {member.event.lower(): member for member in catalog.selection.members_of(component.full_name)}
    wanted = {text_of(item, "selectedEntity") for item in items_of(component.properties, "channelMembers")}
    for event in sorted(wanted):
        member = held.pop(event.lower(), None)
        if member is None:
            name = member_name(component.full_name, event)
            draft.section("channel_members")[name] = {"channel": component.full_name, "event": event}
    for member in held.values():
        draft.remove("channel_members", member.full_name)


def add_member(draft: Draft, component: Component, context: Context) -> None:
    """Add a member to the definition."""
    properties = component.properties
    check_properties(properties, _MEMBER, f"PlatformEventChannelMember {component.full_name}")
    require(properties, "selectedEntity", "eventChannel")
    enriched = []
    for item in items_of(properties, "enrichedFields"):
        check_properties(item, ("name",), "EnrichedField")
        if not text_of(item, "name"):
            reject("Required field is missing: name", "REQUIRED_FIELD_MISSING", ["enrichedFields"])
        enriched.append(text_of(item, "name"))
    draft.section("channel_members")[component.full_name] = {
        "channel": text_of(properties, "eventChannel"),
        "event": text_of(properties, "selectedEntity"),
        "enriched": enriched,
        "filter": text_of(properties, "filterExpression"),
    }


def try_read_managed(catalog: Catalog, full_name: str) -> dict[str, object] | None:
    """Return the properties of a managed subscription, or None if it does not exist."""
    managed = catalog.selection.try_managed(full_name)
    if managed is None:
        return None
    return ordered(
        defaultReplay=managed.default_replay,
        errorRecoveryReplay=managed.error_replay,
        label=managed.label,
        state=managed.state,
        topicName=managed.topic,
    )


def add_managed(draft: Draft, component: Component, context: Context) -> None:
    """Add a managed subscription to the definition."""
    properties = component.properties
    check_properties(properties, _MANAGED, f"ManagedEventSubscription {component.full_name}")
    require(properties, "label", "topicName")
    draft.section("managed_subscriptions")[component.full_name] = {
        "label": text_of(properties, "label"),
        "topic": text_of(properties, "topicName"),
        "default_replay": text_of(properties, "defaultReplay"),
        "error_replay": text_of(properties, "errorRecoveryReplay"),
        "state": text_of(properties, "state"),
    }
