"""Platform events of a definition: made, given other fields, and described anew.

Events of the past stay as they were published, under the schema of their time; what changes here holds for those
that come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidewire.gate.definitions.custom_fields import check_keys, mapping, parse_custom_fields, parse_text
from tidewire.gate.definitions.document import refuse, text_of
from tidewire.gate.definitions.field_changes import ATTRIBUTES, check_field, check_sizes
from tidewire.ids import key_prefix
from tidewire.names import is_api_name
from tidewire.records.numbers import take_number
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import EventType, Field

_EVENT_KEYS = ("label", "plural", "description", "volume", "publish", "fields")
_VOLUMES = {"high": True, "standard": False}
_PUBLISHING = {"after_commit": False, "immediately": True}
_FIELD_KEYS = (
    "type",
    "label",
    "description",
    "help_text",
    "length",
    "precision",
    "scale",
    "required",
    "default",
)


def plan_event(
    unit: UnitOfWork, name: str, spec: Mapping[str, Any], removed: frozenset[str], *, is_dry_run: bool
) -> tuple[EventType | None, list[str]]:
    """The event as it will be, or None if it stays as it is, and the lines that say so.

    `removed` are fields that go away.
    """
    path = f"events.{name}"
    fields, specs = _read_fields(spec, path)
    known = unit.catalog.try_event(name)
    if known is None:
        return _new_event(unit, name, spec, fields, is_dry_run)
    lines: list[str] = []
    stored = {f.name: f for f in known.fields}
    for f in fields:
        held = stored.get(f.name)
        if held is None:
            if any(n.lower() == f.name.lower() for n in stored):
                refuse(f"{path}.fields.{f.name}", "two names differ in letter case only")
            lines.append(f"add field {known.name}.{f.name} ({f.type.value})")
            stored[f.name] = f
            continue
        stored[f.name] = _changed(known, held, f, specs[f.name], f"{path}.fields.{f.name}", lines)
    for gone in sorted(removed & stored.keys()):
        lines.append(f"remove field {known.name}.{gone}")
        del stored[gone]
    changed = replace(
        known,
        label=parse_text(spec, "label", known.label, path),
        label_plural=text_of(spec, "plural", known.label_plural, path),
        description=parse_text(spec, "description", known.description, path),
        publishes_immediately=_choice(spec, "publish", _PUBLISHING, known.publishes_immediately, path),
    )
    if _choice(spec, "volume", _VOLUMES, known.is_high_volume, path) is not known.is_high_volume:
        refuse(f"{path}.volume", f"{known.name} was made with the other volume and keeps it")
    words = [
        word
        for word, attribute in (
            ("label", "label"),
            ("plural", "label_plural"),
            ("description", "description"),
            ("publish", "publishes_immediately"),
        )
        if getattr(changed, attribute) != getattr(known, attribute)
    ]
    if words:
        lines.append(f"change {known.name}: {', '.join(words)}")
    changed = replace(changed, fields=tuple(stored.values()))
    return (changed if changed != known else None), lines


def _read_fields(
    spec: Mapping[str, Any], path: str
) -> tuple[tuple[Field, ...], dict[str, Mapping[str, Any]]]:
    check_keys(spec, _EVENT_KEYS, path)
    # First of all, for what may be said of a field depends on its type.
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
        refuse(path, "a platform event's name ends in __e")
    label = parse_text(spec, "label", name.removesuffix("__e").replace("_", " "), path)
    number = 0 if is_dry_run else take_number(unit.tx, "platform events", 0)
    event = EventType(
        name=name,
        label=label,
        label_plural=text_of(spec, "plural", label + "s", path),
        key_prefix=key_prefix(number, "e"),
        fields=fields,
        description=parse_text(spec, "description", "", path),
        is_high_volume=_choice(spec, "volume", _VOLUMES, True, path),
        publishes_immediately=_choice(spec, "publish", _PUBLISHING, False, path),
    )
    return event, [f"create platform event {name} with {len(fields)} fields"]


def _choice(spec: Mapping[str, Any], key: str, choices: Mapping[str, bool], default: bool, path: str) -> bool:
    word = spec.get(key)
    if word is None:
        return default
    if not isinstance(word, str) or word not in choices:
        refuse(f"{path}.{key}", f"must be {' or '.join(choices)}")
    return choices[word]


def _changed(
    event: EventType, held: Field, wanted: Field, spec: Mapping[str, Any], path: str, lines: list[str]
) -> Field:
    """The stored field with what the document names."""
    if held.type is not wanted.type:
        refuse(path, f"{event.name}.{held.name} is {held.type.value} and stays so")
    named = {a for key in spec for a in ATTRIBUTES.get(key, ())}
    new = replace(held, **{a: getattr(wanted, a) for a in named})
    check_field(new, path)
    words = sorted(
        key for key in spec if any(getattr(new, a) != getattr(held, a) for a in ATTRIBUTES.get(key, ()))
    )
    if words:
        lines.append(f"change {event.name}.{held.name}: {', '.join(words)}")
    return new
