"""The section `events`: platform event types.

Published events keep the schema that they were published with; a change affects later events only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidewire.gate.definitions.custom_fields import (
    differing_keys,
    named_attributes,
    parse_custom_fields,
    parse_text,
)
from tidewire.gate.definitions.document import check_keys, keys_in, mapping, one_of, reject, text_of
from tidewire.gate.definitions.field_changes import check_field, check_sizes
from tidewire.gate.definitions.plan import differing_words
from tidewire.ids import key_prefix
from tidewire.names import is_api_name
from tidewire.records.numbers import take_number
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import EventType, Field

_EVENT_KEYS = ("label", "plural", "description", "volume", "publish", "fields")
_VOLUMES = {"high": True, "standard": False}
_PUBLISHING = {"after_commit": False, "immediately": True}
_WORDS = {
    "label": "label",
    "plural": "label_plural",
    "description": "description",
    "publish": "publishes_immediately",
}
_FIELD_KEYS = keys_in("type label description help_text length precision scale required default")


def plan_event(
    unit: UnitOfWork, name: str, spec: Mapping[str, Any], removed: frozenset[str], *, is_dry_run: bool
) -> tuple[EventType | None, list[str]]:
    """Return the event type after the change, or None if it does not change, and the lines of the plan.

    `removed` are the fields to remove.
    """
    path = f"events.{name}"
    fields, specs = _read_fields(spec, path)
    known = unit.catalog.try_event(name)
    if known is None:
        return _new_event(unit, name, spec, fields, is_dry_run)
    lines: list[str] = []
    stored = {f.name: f for f in known.fields}
    for f in fields:
        old = stored.get(f.name)
        if old is None:
            if any(n.lower() == f.name.lower() for n in stored):
                reject(f"{path}.fields.{f.name}", "two names differ in letter case only")
            lines.append(f"add field {known.name}.{f.name} ({f.type.value})")
            stored[f.name] = f
            continue
        stored[f.name] = _changed(known, old, f, specs[f.name], f"{path}.fields.{f.name}", lines)
    for gone in sorted(removed & stored.keys()):
        lines.append(f"remove field {known.name}.{gone}")
        del stored[gone]
    changed = replace(
        known,
        label=parse_text(spec, "label", known.label, path),
        label_plural=text_of(spec, "plural", known.label_plural, path),
        description=parse_text(spec, "description", known.description, path),
        publishes_immediately=one_of(
            spec, "publish", _PUBLISHING, known.publishes_immediately, path, takes_null=True
        ),
    )
    if (
        one_of(spec, "volume", _VOLUMES, known.is_high_volume, path, takes_null=True)
        is not known.is_high_volume
    ):
        reject(f"{path}.volume", f"the volume of {known.name} cannot be changed")
    words = differing_words(known, changed, _WORDS)
    if words:
        lines.append(f"change {known.name}: {', '.join(words)}")
    changed = replace(changed, fields=tuple(stored.values()))
    return (changed if changed != known else None), lines


def _read_fields(
    spec: Mapping[str, Any], path: str
) -> tuple[tuple[Field, ...], dict[str, Mapping[str, Any]]]:
    check_keys(spec, _EVENT_KEYS, path)
    # Types first: which keys a field may have depends on its type.
    fields = parse_custom_fields(spec.get("fields"), f"{path}.fields", for_event=True)
    specs: dict[str, Mapping[str, Any]] = {}
    for field_name, raw in mapping(spec.get("fields"), f"{path}.fields").items():
        field_path = f"{path}.fields.{field_name}"
        specs[field_name] = mapping(raw, field_path)
        check_keys(specs[field_name], _FIELD_KEYS, field_path)
        check_sizes(specs[field_name], field_path)
    for f in fields:
        check_field(f, f"{path}.fields.{f.name}")
    return fields, specs


def _new_event(
    unit: UnitOfWork, name: str, spec: Mapping[str, Any], fields: tuple[Field, ...], is_dry_run: bool
) -> tuple[EventType, list[str]]:
    path = f"events.{name}"
    if not (is_api_name(name) and name.endswith("__e")):
        reject(path, "the name of a platform event must end in __e")
    label = parse_text(spec, "label", name.removesuffix("__e").replace("_", " "), path)
    number = 0 if is_dry_run else take_number(unit.tx, "platform events", 0)
    event = EventType(
        name=name,
        label=label,
        label_plural=text_of(spec, "plural", label + "s", path),
        key_prefix=key_prefix(number, "e"),
        fields=fields,
        description=parse_text(spec, "description", "", path),
        is_high_volume=one_of(spec, "volume", _VOLUMES, True, path, takes_null=True),
        publishes_immediately=one_of(spec, "publish", _PUBLISHING, False, path, takes_null=True),
    )
    return event, [f"create platform event {name} with {len(fields)} fields"]


def _changed(
    event: EventType, old: Field, wanted: Field, spec: Mapping[str, Any], path: str, lines: list[str]
) -> Field:
    """Return the stored field with the attributes that the document names."""
    if old.type is not wanted.type:
        reject(path, f"{event.name}.{old.name} is {old.type.value}; its type cannot be changed")
    named = named_attributes(spec)
    new = replace(old, **{a: getattr(wanted, a) for a in named})
    check_field(new, path)
    words = differing_keys(old, new, spec)
    if words:
        lines.append(f"change {event.name}.{old.name}: {', '.join(words)}")
    return new
