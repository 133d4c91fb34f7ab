"""The sections `channels` and `channel_members`: custom channels, and the events of custom and standard channels.

The document defines a member completely: what it omits is unset. The channel and the event of a member and the kind of
a channel cannot be changed. Removing a channel removes its members. Messages with an upper-case code are those of the
Metadata API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from tidewire.capture.event_filters import compile_event_filter
from tidewire.errors import DefinitionInvalid
from tidewire.gate.definitions.document import iter_entries, text_list, text_of
from tidewire.names import change_event_name, is_api_name
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import (
    CHANNEL_SUFFIX,
    MAX_ENRICHED,
    STANDARD_CHANNEL,
    ChannelMember,
    CustomChannel,
    Selection,
    can_capture,
    is_enrichable,
)
from tidewire.schema.model import ObjectType

KINDS = ("data", "event")
_EVENT_TYPES = {"data": ("data",), "event": ("custom", "standard", "monitoring")}
_CHANNEL_KEYS = ("label", "kind", "event_type")
_MEMBER_KEYS = ("channel", "event", "enriched", "filter")
DEVELOPER_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*")
MAX_NAME = 80
_INTEGRITY = "FIELD_INTEGRITY_EXCEPTION"
_MISSING = "REQUIRED_FIELD_MISSING"


def apply_channels(
    unit: UnitOfWork,
    types: Types,
    document: Mapping[str, object],
    removed: Mapping[str, tuple[str, ...]],
    *,
    is_dry_run: bool,
) -> list[str]:
    """Change channels and members as the document says; returns the lines of the plan. `removed` is by section."""
    lines: list[str] = []
    selection = _without(unit.catalog.selection, removed, lines)
    for name, path, spec in iter_entries(document, "channels", _CHANNEL_KEYS):
        selection = _with_channel(selection, name, spec, path, lines)
    for name, path, spec in iter_entries(document, "channel_members", _MEMBER_KEYS):
        selection = _with_member(unit.catalog, selection, name, spec, path, lines)
    store_selection(unit, types, selection, is_dry_run=is_dry_run)
    return lines


def store_selection(unit: UnitOfWork, types: Types, selection: Selection, *, is_dry_run: bool) -> None:
    """Make the selection that of the unit's catalog, and store it unless this is a dry run."""
    if selection == unit.catalog.selection:
        return
    if is_dry_run:
        unit.catalog = unit.catalog.with_selection(selection)
    else:
        unit.catalog = types.change(unit.tx, selection=selection, base=unit.catalog)
        # Subscribers cache grants and the state of managed subscriptions by this generation.
        unit.tx.progress.access_generation += 1


def _without(selection: Selection, removed: Mapping[str, tuple[str, ...]], lines: list[str]) -> Selection:
    for name in removed["channel_members"]:
        member = selection.try_member(name)
        if member is not None:
            lines.append(f"remove channel member {member.full_name}")
            selection = selection.without_member(member.full_name)
    for name in removed["channels"]:
        if name == STANDARD_CHANNEL:
            reject_component(
                "remove.channels", f"{STANDARD_CHANNEL} is a standard channel and can't be removed"
            )
        channel = selection.try_channel(name)
        if channel is not None:
            lines.append(f"remove channel {channel.name}")
            selection = selection.without_channel(channel.name)
    return selection


def _with_channel(
    selection: Selection, name: str, spec: Mapping[str, Any], path: str, lines: list[str]
) -> Selection:
    if name == STANDARD_CHANNEL:
        reject_component(path, f"{STANDARD_CHANNEL} is a standard channel and can't be created or changed")
    if not (is_api_name(name) and name.endswith(CHANNEL_SUFFIX)):
        reject_component(path, f"a custom channel's name ends in {CHANNEL_SUFFIX}", "INVALID_FULL_NAME")
    known = selection.try_channel(name)
    kind = text_of(spec, "kind", known.kind if known is not None else "", path)
    event_type = text_of(spec, "event_type", known.event_type if known is not None else "", path)
    if not kind:
        reject_component(path, "Required field is missing: channelType", _MISSING)
    label = parse_label(spec, known.label if known is not None else "", path)
    if kind not in KINDS:
        reject_component(path, f"'{kind[:80]}' is not a valid value for the enum 'PlatformEventChannelType'")
    if event_type and event_type not in _EVENT_TYPES[kind]:
        reject_component(path, f"the event type {event_type[:80]} does not go with the channel type {kind}")
    if known is not None and known.kind != kind:
        reject_component(path, "Update is not supported for the channelType field")
    channel = CustomChannel(known.name if known is not None else name, label, kind, event_type)
    if channel != known:
        lines.append(f"{'create' if known is None else 'change'} channel {channel.name}")
    return selection.with_channel(channel)


def _with_member(
    catalog: Catalog, selection: Selection, name: str, spec: Mapping[str, Any], path: str, lines: list[str]
) -> Selection:
    known = selection.try_member(name)
    channel_name, event_name = text_of(spec, "channel", "", path), text_of(spec, "event", "", path)
    if not channel_name:
        reject_component(path, "Required field is missing: eventChannel", _MISSING)
    if not event_name:
        reject_component(path, "Required field is missing: selectedEntity", _MISSING)
    channel, kind = _channel(selection, channel_name, path)
    event, obj = _event(catalog, kind, event_name, path)
    if known is None:
        _check_name(name, path)
        _check_unique(selection, channel, event, path)
    elif known.event != event:
        reject_component(path, f"Update is not supported for the selectedEntity field: {known.event}")
    elif known.channel != channel:
        reject_component(path, f"Update is not supported for the eventChannel field: {known.channel}")
    enriched = _enriched(obj, text_list(spec.get("enriched"), f"{path}.enriched"), path)
    filter_text = text_of(spec, "filter", "", path).strip()
    if filter_text:
        _check_filter(catalog, filter_text, obj, event, path)
    member = ChannelMember(
        known.full_name if known is not None else name, channel, event, enriched, filter_text
    )
    if member == known:
        return selection
    changed = selection.with_member(member)
    if len(changed.enriched_fields(event)) > MAX_ENRICHED:
        reject_component(
            path,
            f"The maximum number of enriched fields, {MAX_ENRICHED}, for {event} over all channels is exceeded",
            "LIMIT_EXCEEDED",
        )
    lines.append(f"{'create' if known is None else 'change'} channel member {member.full_name}")
    return changed


def _channel(selection: Selection, name: str, path: str) -> tuple[str, str]:
    """Return the exact name of a channel and its kind."""
    if name == STANDARD_CHANNEL:
        return name, "data"
    channel = selection.try_channel(name)
    if channel is None:
        reject_component(
            path, f"Unable to find the specified channel: {name[:80]}", "INVALID_CROSS_REFERENCE_KEY"
        )
    return channel.name, channel.kind


def _event(catalog: Catalog, kind: str, name: str, path: str) -> tuple[str, ObjectType | None]:
    """Return the exact name of an event, and its object if it is a change event."""
    if kind == "event":
        event = catalog.try_any_event(name)
        # Standard-volume events cannot be channel members: not every channel reader could receive them.
        if event is not None and event.is_high_volume:
            return event.name, None
    else:
        entity = ChannelMember("", "", name).entity
        obj = catalog.try_object(entity) if entity else None
        if obj is not None and can_capture(obj):
            return change_event_name(obj.name), obj
    reject_component(path, f"You specified an invalid event in the 'selectedEntity' field: {name[:80]}")


def _check_name(name: str, path: str) -> None:
    namespace, separator, _ = name.partition("__")
    if separator:
        reject_component(
            path,
            f"Cannot create a new component with the namespace: {namespace[:80]}. Only components in the same"
            " namespace as the organization can be created through the API",
            "INVALID_FULL_NAME",
        )
    if len(name) > MAX_NAME or DEVELOPER_NAME.fullmatch(name) is None:
        reject_component(
            path,
            "The name can only contain underscores and alphanumeric characters. It must begin with a letter, not"
            " include spaces, not end with an underscore, and not contain two consecutive underscores",
            "INVALID_FULL_NAME",
        )


def _check_unique(selection: Selection, channel: str, event: str, path: str) -> None:
    for member in selection.members_of(channel):
        if member.event == event:
            reject_component(
                path,
                f"{event} is already a member of the channel {channel}: {member.full_name}",
                "DUPLICATE_VALUE",
            )


def _enriched(obj: ObjectType | None, names: list[str], path: str) -> tuple[str, ...]:
    """Return the exact names of the enriched fields, without duplicates; a relationship names its lookup."""
    if obj is None:
        if names:
            reject_component(path, "Enriched fields are supported for change events only")
        return ()
    links = {f.relationship_name.lower(): f for f in obj.fields if f.reference_to and f.relationship_name}
    found: dict[str, None] = {}
    for name in names:
        f = obj.try_field(name) or links.get(name.lower())
        if f is None or not is_enrichable(f):
            reject_component(path, f"The selected field, {name[:80]}, isn't valid", "INVALID_FIELD")
        found[f.name] = None
    return tuple(found)


def _check_filter(catalog: Catalog, expression: str, obj: ObjectType | None, event: str, path: str) -> None:
    kind = obj if obj is not None else catalog.try_any_event(event)
    try:
        if kind is not None:
            compile_event_filter(expression, kind)
    except DefinitionInvalid as error:
        reject_component(path, error.message)


def parse_label(spec: Mapping[str, Any], default: str, path: str) -> str:
    """Return the required label of a channel or managed subscription."""
    label = text_of(spec, "label", default, path).strip()
    if not label:
        reject_component(path, "Required field is missing: label", _MISSING)
    if len(label) > MAX_NAME:
        reject_component(path, f"label: at most {MAX_NAME} characters", "STRING_TOO_LONG")
    return label


def reject_component(path: str, reason: str, code: str = _INTEGRITY) -> NoReturn:
    """Raise DefinitionInvalid with the status code that clients of the Metadata API know."""
    raise DefinitionInvalid(f"{path}: {reason}", path=path, status_code=code)
