"""Standard fields: what an org may change about them.

Help text and description of any field; values, order and default of picklists for users. Picklists that the platform
itself depends on, and everything else about a standard field, cannot be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidewire.gate.definitions.custom_fields import (
    ATTRIBUTES,
    parse_picklist,
    parse_text,
    value_labels,
)
from tidewire.gate.definitions.document import check_keys, keys_in, reject
from tidewire.gate.definitions.field_changes import FieldChange, check_field
from tidewire.gate.definitions.picklists import ValueChanges, merge_values
from tidewire.gate.definitions.statuses import (
    category_lines,
    is_status,
    set_categories,
    split_categories,
    with_categories,
    without_standard_categories,
)
from tidewire.schema.field_types import PICKLIST_TYPES
from tidewire.schema.model import Field, ObjectType

_CHANGEABLE_KEYS = ("type", "help_text", "description", "values", "default")
# Unrestricted picklists whose values the platform depends on.
_FIXED_LISTS = keys_in(
    "CallType EndedBy ForecastCategoryName LocaleSidKey OwnerExpirationNotice Recurrence2PatternTimeZone"
    " RecurrenceTimeZoneSidKey TimeZoneSidKey"
)


def is_standard_name(name: str) -> bool:
    """Return whether this is the name of a standard field."""
    return not name.endswith("__c")


def plan_standard_field(
    obj: ObjectType, name: str, spec: Mapping[str, Any], value_changes: ValueChanges, path: str
) -> tuple[FieldChange | None, list[str]]:
    """Return the change of a standard field, or None, and more lines for the plan."""
    stored = obj.try_field(name)
    if stored is None:
        reject(path, f"{obj.name} has no field {name}; the name of a custom field ends in __c")
    if stored.name != name or stored.custom:
        reject(path, f"{obj.name} has a field {stored.name}")
    check_keys(spec, ATTRIBUTES, path)
    fixed = sorted(key for key in spec if key not in _CHANGEABLE_KEYS)
    if fixed:
        reject(path, f"{obj.name}.{name} is a standard field and keeps its {', '.join(fixed)}")
    if "type" in spec and str(spec["type"]).lower() != stored.type.value.lower():
        reject(path, f"{obj.name}.{name} is a standard field and stays {stored.type.value}")
    old = with_categories(obj, stored) if is_status(obj.name, name) else stored
    new = _with_values(obj, old, spec, value_changes, path)
    texts = {key: parse_text(spec, key, "", path) for key in ("help_text", "description") if key in spec}
    new = replace(new, **texts)  # type: ignore[arg-type]  # both are text
    if new == old:
        return None, []
    check_field(new, path)
    words = [key for key in ("default", "description", "help_text") if getattr(new, key) != getattr(old, key)]
    line = f"change {obj.name}.{name}: {', '.join(words)}" if words else ""
    if old is stored:
        return FieldChange(stored, new, line), []
    lines = category_lines(obj, old, new, value_changes.rename)
    return FieldChange(
        stored, without_standard_categories(obj.name, new), line, has_new_values=bool(lines)
    ), lines


def _with_values(
    obj: ObjectType, old: Field, spec: Mapping[str, Any], value_changes: ValueChanges, path: str
) -> Field:
    if "values" not in spec and "default" not in spec and value_changes == ValueChanges():
        return old
    _check_list(obj, old, path)
    has_categories = is_status(obj.name, old.name)
    values: object = spec.get("values", ())
    attributes: Mapping[str, Mapping[str, object]] = {}
    if has_categories:
        values, attributes = split_categories(obj.name, values, path)
    listed = parse_picklist(values, None, old.type, path) if "values" in spec else ()
    default = spec.get("default", value_changes.moves.get(str(old.default), old.default))
    merged = merge_values(old, listed, value_labels(values), value_changes, default, path)
    if default is not None and default not in {v.value for v in merged if v.is_active}:
        reject(f"{path}.default", f"{default} is not an active value of the picklist")
    if default is None and has_categories and obj.name != "Opportunity":
        reject(f"{path}.default", f"{obj.name}.{old.name} needs a default")
    if has_categories:
        merged = set_categories(obj.name, merged, attributes, path)
    return replace(old, picklist=merged, default=default)


def _check_list(obj: ObjectType, field: Field, path: str) -> None:
    if field.type not in PICKLIST_TYPES:
        reject(path, f"{obj.name}.{field.name} is not a picklist; only its texts can change")
    is_twin = obj.name == "Account" and (
        field.name == "Salutation" or field.name.startswith("Person") or field.name.endswith("__pc")
    )
    if is_twin:
        reject(path, f"{obj.name}.{field.name} belongs to Contact; change it there")
    is_written = field.createable or field.updateable
    if obj.is_setup or field.restricted or not is_written or field.compound or field.name in _FIXED_LISTS:
        reject(path, f"the values of {obj.name}.{field.name} belong to the platform and cannot be changed")
