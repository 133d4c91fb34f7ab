"""The section `managed_subscriptions`: subscriptions whose positions the server stores.

The document defines a subscription completely: what it omits has its default. Its topic cannot be changed. Removing a
subscription deletes its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidewire.errors import ChannelInvalid
from tidewire.gate.definitions.channels import (
    DEVELOPER_NAME,
    MAX_NAME,
    parse_label,
    reject_component,
    store_selection,
)
from tidewire.gate.definitions.document import iter_entries, text_of
from tidewire.names import ALL_CHANGES, ChannelKind, entity_of_change_event, parse_channel
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import (
    CHANNEL_SUFFIX,
    LATEST,
    MAX_MANAGED,
    REPLAYS,
    RUN,
    STATES,
    ManagedSubscription,
    Selection,
    can_capture,
)

SECTION = "managed_subscriptions"
_KEYS = ("label", "topic", "default_replay", "error_replay", "state")


def apply_managed(
    unit: UnitOfWork,
    types: Types,
    document: Mapping[str, object],
    removed: Mapping[str, tuple[str, ...]],
    *,
    is_dry_run: bool,
) -> list[str]:
    """Change managed subscriptions as the document says; returns the lines of the plan."""
    lines: list[str] = []
    selection = unit.catalog.selection
    for name in removed[SECTION]:
        known = selection.try_managed(name)
        if known is not None:
            lines.append(f"remove managed subscription {known.name}")
            selection = selection.without_managed(known.name)
            if not is_dry_run:
                unit.tx.execute("DELETE FROM managed_positions WHERE name = ?", (known.name,))
    for name, path, spec in iter_entries(document, SECTION, _KEYS):
        selection = _with_one(unit.catalog, selection, name, spec, path, lines)
    store_selection(unit, types, selection, is_dry_run=is_dry_run)
    return lines


def _with_one(
    catalog: Catalog, selection: Selection, name: str, spec: Mapping[str, Any], path: str, lines: list[str]
) -> Selection:
    known = selection.try_managed(name)
    if known is None and (len(name) > MAX_NAME or DEVELOPER_NAME.fullmatch(name) is None):
        reject_component(
            path,
            "the name may have only letters, digits and single underscores, and starts with a letter",
            "INVALID_FULL_NAME",
        )
    label = parse_label(spec, "", path)
    topic = text_of(spec, "topic", known.topic if known is not None else "", path).strip()
    if not topic:
        reject_component(path, "Required field is missing: topicName", "REQUIRED_FIELD_MISSING")
    if known is None:
        _check_topic(catalog, topic, path)
    elif topic != known.topic:
        reject_component(path, f"Update is not supported for the topicName field: {known.topic}")
    managed = ManagedSubscription(
        known.name if known is not None else name,
        label,
        topic,
        _one_of(spec, "default_replay", REPLAYS, LATEST, path),
        _one_of(spec, "error_replay", REPLAYS, LATEST, path),
        _one_of(spec, "state", STATES, RUN, path),
    )
    if managed == known:
        return selection
    if known is None and len(selection.managed) >= MAX_MANAGED:
        reject_component(
            path, f"The maximum number of managed subscriptions, {MAX_MANAGED}, is exceeded", "LIMIT_EXCEEDED"
        )
    lines.append(f"{'create' if known is None else 'change'} managed subscription {managed.name}")
    return selection.with_managed(managed)


def _check_topic(catalog: Catalog, topic: str, path: str) -> None:
    """Reject a topic that the Pub/Sub API cannot serve."""
    try:
        name = parse_channel(topic)
    except ChannelInvalid:
        reject_component(path, f"The topic {topic[:80]} is not valid", "INVALID_INPUT")
    if name.filter_text or name.kind not in (ChannelKind.PLATFORM_EVENT, ChannelKind.CHANGE_EVENT):
        reject_component(path, f"The topic {topic[:80]} is not supported", "INVALID_INPUT")
    if name.name.endswith(CHANNEL_SUFFIX):
        channel = catalog.selection.try_channel(name.name)
        is_known = channel is not None and channel.kind == name.kind.value and channel.name == name.name
    elif name.kind is ChannelKind.PLATFORM_EVENT:
        event = catalog.try_any_event(name.name)
        is_known = event is not None and event.name == name.name
    else:
        entity = entity_of_change_event(name.name)
        obj = catalog.try_object(entity) if entity else None
        is_known = topic == ALL_CHANGES or (obj is not None and obj.name == entity and can_capture(obj))
    if not is_known:
        reject_component(path, f"The topic {topic[:80]} does not exist", "INVALID_INPUT")


def _one_of(spec: Mapping[str, Any], key: str, known: tuple[str, ...], default: str, path: str) -> str:
    word = text_of(spec, key, default, path) or default
    if word.upper() not in known:
        reject_component(
            path,
            f"{key}: '{word[:80]}' must be one of {', '.join(known)}",
            "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
        )
    return word.upper()
