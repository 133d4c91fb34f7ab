"""The section `managed_subscriptions`: subscriptions whose positions the server keeps.

One is given whole; neither its name nor its topic can be changed. With a subscription goes the position it had.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from tidewire.errors import ChannelInvalid, DefinitionInvalid
from tidewire.gate.definitions.custom_fields import check_keys, mapping
from tidewire.gate.definitions.document import text_of
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
_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*")
_MAX_TEXT = 80
_MISSING = "REQUIRED_FIELD_MISSING"


def apply_managed(
    unit: UnitOfWork,
    types: Types,
    document: Mapping[str, object],
    removed: Mapping[str, tuple[str, ...]],
    *,
    is_dry_run: bool,
) -> list[str]:
    """Bring managed subscriptions to what the document says; returns the lines that say so."""
    lines: list[str] = []
    selection = unit.catalog.selection
    for name in removed[SECTION]:
        known = selection.try_managed(name)
        if known is not None:
            lines.append(f"remove managed subscription {known.name}")
            selection = selection.without_managed(known.name)
            if not is_dry_run:
                unit.tx.execute("DELETE FROM managed_positions WHERE name = ?", (known.name,))
    for name, spec in mapping(document.get(SECTION), SECTION).items():
        selection = _with_one(unit.catalog, selection, name, mapping(spec, f"{SECTION}.{name}"), lines)
    if selection == unit.catalog.selection:
        return lines
    if is_dry_run:
        unit.catalog = unit.catalog.with_selection(selection)
    else:
        unit.catalog = types.change(unit.tx, selection=selection, base=unit.catalog)
        unit.tx.progress.access_generation += 1  # whoever reads one that was stopped must hear of it
    return lines


def _with_one(
    catalog: Catalog, selection: Selection, name: str, spec: Mapping[str, Any], lines: list[str]
) -> Selection:
    path = f"{SECTION}.{name}"
    check_keys(spec, _KEYS, path)
    known = selection.try_managed(name)
    if known is None and (len(name) > _MAX_TEXT or _NAME.fullmatch(name) is None):
        _refuse(
            path,
            "the name begins with a letter and has letters, digits and single underscores only",
            "INVALID_FULL_NAME",
        )
    label = text_of(spec, "label", "", path).strip()
    topic = text_of(spec, "topic", known.topic if known is not None else "", path).strip()
    if not label:
        _refuse(path, "Required field is missing: label", _MISSING)
    if len(label) > _MAX_TEXT:
        _refuse(path, f"label: at most {_MAX_TEXT} characters", "STRING_TOO_LONG")
    if not topic:
        _refuse(path, "Required field is missing: topicName", _MISSING)
    if known is None:
        _check_topic(catalog, topic, path)
    elif topic != known.topic:
        _refuse(path, f"Update is not supported for the topicName field: {known.topic}")
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
        _refuse(
            path, f"The maximum number of managed subscriptions, {MAX_MANAGED}, is exceeded", "LIMIT_EXCEEDED"
        )
    lines.append(f"{'create' if known is None else 'change'} managed subscription {managed.name}")
    return selection.with_managed(managed)


def _check_topic(catalog: Catalog, topic: str, path: str) -> None:
    """Refuse a topic that the Pub/Sub API could not serve."""
    try:
        name = parse_channel(topic)
    except ChannelInvalid:
        _refuse(path, f"The topic {topic[:80]} is not valid", "INVALID_INPUT")
    if name.filter_text or name.kind not in (ChannelKind.PLATFORM_EVENT, ChannelKind.CHANGE_EVENT):
        _refuse(path, f"The topic {topic[:80]} is not supported", "INVALID_INPUT")
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
        _refuse(path, f"The topic {topic[:80]} does not exist", "INVALID_INPUT")


def _one_of(spec: Mapping[str, Any], key: str, known: tuple[str, ...], default: str, path: str) -> str:
    word = text_of(spec, key, default, path) or default
    if word.upper() not in known:
        _refuse(
            path,
            f"{key}: '{word[:80]}' is none of {', '.join(known)}",
            "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
        )
    return word.upper()


def _refuse(path: str, reason: str, code: str = "FIELD_INTEGRITY_EXCEPTION") -> NoReturn:
    raise DefinitionInvalid(f"{path}: {reason}", path=path, status_code=code)
