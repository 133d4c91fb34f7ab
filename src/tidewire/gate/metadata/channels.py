"""PlatformEventChannel and PlatformEventChannelMember: channels, and the events on them.

Up to version 46.0 a channel holds its members itself, and the standard channel is a component like the others; from
47.0 on members are components of their own, and the standard channel is none.
"""

from __future__ import annotations

from tidewire.gate.metadata.objects import Draft
from tidewire.gate.metadata.properties import (
    Component,
    check_properties,
    items_of,
    names_in,
    ordered,
    refuse,
    text_of,
)
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import STANDARD_CHANNEL, CustomChannel, member_name

_LAST_WITH_MEMBERS = 46
_STANDARD = CustomChannel(STANDARD_CHANNEL, "Change Events", "data")
_CHANNEL = names_in("fullName channelType eventType label urls")
_MEMBER = names_in("fullName enrichedFields eventChannel filterExpression selectedEntity urls")


def has_nested_members(api_version: int | None) -> bool:
    """Whether a channel of this version, None for the newest, holds its members itself."""
    return api_version is not None and api_version <= _LAST_WITH_MEMBERS


def channels_of(catalog: Catalog, api_version: int | None) -> list[CustomChannel]:
    """The channels that are components in this version."""
    own = list(catalog.selection.channels)
    return [_STANDARD, *own] if has_nested_members(api_version) else own


def try_read_channel(catalog: Catalog, full_name: str, api_version: int | None) -> dict[str, object] | None:
    """A channel's properties, or None if there is none of that name."""
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
    return ordered("", properties)


def try_read_member(catalog: Catalog, full_name: str) -> dict[str, object] | None:
    """A member's properties, or None if there is none of that name."""
    member = catalog.selection.try_member(full_name)
    if member is None:
        return None
    return ordered(
        "",
        {
            "enrichedFields": [{"name": name} for name in member.enriched] or None,
            "eventChannel": member.channel,
            "filterExpression": member.filter_text or None,
            "selectedEntity": member.event,
        },
    )


def add_channel(draft: Draft, component: Component, catalog: Catalog) -> None:
    """Add a channel to the definition, with its members where those stand inside."""
    properties, name = component.properties, component.full_name
    is_old = has_nested_members(component.api_version)
    known = _CHANNEL | {"channelMembers"} if is_old else _CHANNEL
    check_properties(properties, known, f"PlatformEventChannel {name}")
    if not text_of(properties, "channelType"):
        refuse("Required field is missing: channelType", "REQUIRED_FIELD_MISSING", ["channelType"])
    if not text_of(properties, "label").strip():
        refuse("Required field is missing: label", "REQUIRED_FIELD_MISSING", ["label"])
    if not (is_old and name == STANDARD_CHANNEL):
        spec = {"label": text_of(properties, "label"), "kind": text_of(properties, "channelType")}
        if text_of(properties, "eventType"):
            spec["event_type"] = text_of(properties, "eventType")
        draft.section("channels")[name] = spec
    if is_old:
        _add_members(draft, component, catalog)


def _add_members(draft: Draft, component: Component, catalog: Catalog) -> None:
    """Make the members of a channel those that its component holds; one that stays keeps what is added to it."""
    held = {member.event.lower(): member for member in catalog.selection.members_of(component.full_name)}
    wanted = {text_of(item, "selectedEntity") for item in items_of(component.properties, "channelMembers")}
    for event in sorted(wanted):
        member = held.pop(event.lower(), None)
        if member is None:
            name = member_name(component.full_name, event)
            draft.section("channel_members")[name] = {"channel": component.full_name, "event": event}
    for member in held.values():
        draft.remove("channel_members", member.full_name)


def add_member(draft: Draft, component: Component) -> None:
    """Add a member to the definition."""
    properties = component.properties
    check_properties(properties, _MEMBER, f"PlatformEventChannelMember {component.full_name}")
    for needed in ("selectedEntity", "eventChannel"):
        if not text_of(properties, needed):
            refuse(f"Required field is missing: {needed}", "REQUIRED_FIELD_MISSING", [needed])
    enriched = []
    for item in items_of(properties, "enrichedFields"):
        check_properties(item, ("name",), "EnrichedField")
        if not text_of(item, "name"):
            refuse("Required field is missing: name", "REQUIRED_FIELD_MISSING", ["enrichedFields"])
        enriched.append(text_of(item, "name"))
    draft.section("channel_members")[component.full_name] = {
        "channel": text_of(properties, "eventChannel"),
        "event": text_of(properties, "selectedEntity"),
        "enriched": enriched,
        "filter": text_of(properties, "filterExpression"),
    }
