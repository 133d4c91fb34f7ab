"""Fields that every org has: what an org may change about them.

Help text and description of any field; values, their order and the default of picklists that people work with.
Lists that the platform itself works with, and everything else about a standard field, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidewire.gate.definitions.custom_fields import (
    FIELD_KEYS,
    check_keys,
    parse_picklist,
    parse_text,
    value_labels,
)
from tidewire.gate.definitions.document import refuse
from tidewire.gate.definitions.field_changes import FieldChange, check_field
from tidewire.gate.definitions.picklists import Orders, merge_values
from tidewire.gate.definitions.statuses import (
    is_status,
    meaning_lines,
    say_meanings,
    split_meanings,
    with_meanings,
    without_standard_meanings,
)
from tidewire.schema.field_types import PICKLIST_TYPES
from tidewire.schema.model import Field, ObjectType

_CHANGEABLE_KEYS = ("type", "help_text", "description", "values", "default")
# Lists whose values the platform acts on, or that come from elsewhere, though any text may stand in the field.
_FIXED_LISTS = frozenset(
    {
        "CallType",
        "EndedBy",
        "ForecastCategoryName",
        "LocaleSidKey",
        "OwnerExpirationNotice",
        "Recurrence2PatternTimeZone",
        "RecurrenceTimeZoneSidKey",
        "TimeZoneSidKey",
    }
)


def is_standard_name(name: str) -> bool:
    """Whether a field of this name can only be one that every org has."""
    return not name.endswith("__c")


def plan_standard_field(
    obj: ObjectType, name: str, spec: Mapping[str, Any], orders: Orders, path: str
) -> tuple[FieldChange | None, list[str]]:
    """How a standard field changes, or None, and further lines for the plan."""
    stored = obj.try_field(name)
    if stored is None:
        refuse(path, f"{obj.name} has no field {name}; a custom field's name ends in __c")
    if stored.name != name or stored.custom:
        refuse(path, f"{obj.name} has a field {stored.name}")
    check_keys(spec, FIELD_KEYS, path)
    fixed = sorted(key for key in spec if key not in _CHANGEABLE_KEYS)
    if fixed:
        refuse(path, f"{obj.name}.{name} is a standard field and keeps its {', '.join(fixed)}")
    if "type" in spec and str(spec["type"]).lower() != stored.type.value.lower():
        refuse(path, f"{obj.name}.{name} is a standard field and stays {stored.type.value}")
    old = with_meanings(obj, stored) if is_status(obj.name, name) else stored
    new = _with_values(obj, old, spec, orders, path)
    texts = {key: parse_text(spec, key, "", path) for key in ("help_text", "description") if key in spec}
    new = replace(new, **texts)  # type: ignore[arg-type]  # both are text
    if new == old:
        return None, []
    check_field(new, path)
    words = [key for key in ("default", "description", "help_text") if getattr(new, key) != getattr(old, key)]
    line = f"change {obj.name}.{name}: {', '.join(words)}" if words else ""
    if old is stored:
        return FieldChange(stored, new, line), []
    lines = meaning_lines(obj, old, new, orders.rename)
    return FieldChange(
        stored, without_standard_meanings(obj.name, new), line, has_new_values=bool(lines)
    ), lines


def _with_values(obj: ObjectType, old: Field, spec: Mapping[str, Any], orders: Orders, path: str) -> Field:
    if "values" not in spec and "default" not in spec and orders == Orders():
        return old
    _check_list(obj, old, path)
    has_meanings = is_status(obj.name, old.name)
    values: object = spec.get("values", ())
    said: Mapping[str, Mapping[str, object]] = {}
    if has_meanings:
        values, said = split_meanings(obj.name, values, path)
    listed = parse_picklist(values, None, old.type, path) if "values" in spec else ()
    default = spec.get("default", orders.moves.get(str(old.default), old.default))
    merged = merge_values(old, listed, value_labels(values), orders, default, path)
    if default is not None and default not in {v.value for v in merged if v.is_active}:
        refuse(f"{path}.default", f"{default} is not among the values that are offered")
    if default is None and has_meanings and obj.name != "Opportunity":
        refuse(f"{path}.default", f"{obj.name}.{old.name} needs a default")
    if has_meanings:
        merged = say_meanings(obj.name, merged, said, path)
    return replace(old, picklist=merged, default=default)


def _check_list(obj: ObjectType, field: Field, path: str) -> None:
    if field.type not in PICKLIST_TYPES:
        refuse(path, f"{obj.name}.{field.name} is no picklist: it has no values, orders or default")
    is_twin = obj.name == "Account" and (
        field.name == "Salutation" or field.name.startswith("Person") or field.name.endswith("__pc")
    )
    if is_twin:
        refuse(path, f"{obj.name}.{field.name} belongs to Contact; change it there")
    is_written = field.createable or field.updateable
    if obj.is_setup or field.restricted or not is_written or field.compound or field.name in _FIXED_LISTS:
        refuse(path, f"the values of {obj.name}.{field.name} are the platform's and stay as they are")
