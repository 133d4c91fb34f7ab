"""Changes to a stored field: what differs from its definition, whether stored data allows it, and the plan.

Only what the document names is compared. A change of type or of case sensitivity is a conversion into a new column;
any other change keeps the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidewire.errors import DefinitionInvalid, RequestError
from tidewire.gate.definitions.custom_fields import differing_keys, named_attributes, value_labels
from tidewire.gate.definitions.document import reject
from tidewire.gate.definitions.picklists import ValueChanges, merge_values, moved_value
from tidewire.records.conversion import (
    ConversionEffect,
    ConversionNote,
    convert_value,
    has_duplicates,
    iter_values,
    try_effect,
)
from tidewire.records.work import UnitOfWork
from tidewire.schema.field_types import DOUBLE_TYPES, PICKLIST_TYPES, FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import parse_value


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field before and after. `note` is set for a conversion, `has_new_values` if values must be recomputed."""

    old: Field
    new: Field
    line: str
    note: ConversionNote | None = None
    has_new_values: bool = False


def check_sizes(spec: Mapping[str, Any], path: str) -> None:
    """Reject sizes beyond any field's, before anything is computed with them."""
    for key, limit in (("length", 131_072), ("precision", 18), ("scale", 18)):
        value = spec.get(key, 0)
        if isinstance(value, int) and value > limit:
            reject(f"{path}.{key}", f"must be at most {limit}")


def check_field(field: Field, path: str) -> None:
    """Reject a field with sizes or keys that its type does not allow."""
    if field.custom:
        _check_kind(field, path)
    if field.type in DOUBLE_TYPES and not (field.precision > 0 and field.scale <= field.precision):
        reject(path, "precision must be at least 1, and scale at most precision")
    if any(len(v.value) > 255 or v.value != v.value.strip() for v in field.picklist):
        reject(path, "a picklist value must have at most 255 characters, without leading or trailing blanks")


def _check_kind(field: Field, path: str) -> None:
    least, most = field.type.row.length_range or (0, field.length)
    if not field.formula and not least <= field.length <= most:
        reject(f"{path}.length", f"must be between {least} and {most}")
    if (field.unique or field.external_id) and not field.type.row.can_be_key:
        reject(path, f"a {field.type.value} can be neither unique nor an external id")


def plan_change(
    unit: UnitOfWork,
    obj: ObjectType,
    old: Field,
    wanted: Field,
    spec: Mapping[str, Any],
    value_changes: ValueChanges,
    path: str,
) -> FieldChange | None:
    """Return the change of a stored field, or None if it matches the document."""
    if wanted.type is not old.type or bool(wanted.formula) != bool(old.formula):
        return _plan_conversion(unit, obj, old, wanted, path)
    named = named_attributes(spec) - {"picklist"}
    new = replace(old, **{a: getattr(wanted, a) for a in named})
    if old.type in PICKLIST_TYPES:
        listed = wanted.picklist if "values" in spec else ()
        if "default" not in spec and old.default is not None:
            new = replace(new, default=moved_value(value_changes, str(old.default)))
        values = merge_values(old, listed, value_labels(spec.get("values")), value_changes, new.default, path)
        new = replace(new, picklist=values)
    if new == old:
        return None
    _check_data(unit, obj, old, new, path)
    words = [key for key in differing_keys(old, new, spec) if key != "values"]
    line = f"change {obj.name}.{old.name}: {', '.join(words)}" if words else ""
    if new.is_text and new.case_sensitive != old.case_sensitive:
        note = ConversionNote(obj.name, old.name, old.type, new.type, ConversionEffect.NONE)
        return FieldChange(old, replace(new, column=""), line, note)
    is_derived = (new.formula, new.roll_up) != (old.formula, old.roll_up)
    return FieldChange(old, new, line, has_new_values=is_derived)


def _plan_conversion(unit: UnitOfWork, obj: ObjectType, old: Field, wanted: Field, path: str) -> FieldChange:
    effect = try_effect(old.type, wanted.type)
    is_derived = any(f.formula or f.roll_up is not None for f in (old, wanted))
    if effect is None or is_derived or not old.custom or old.is_compound or old.compound:
        reject(
            path, f"{obj.name}.{old.name} is {_kind(old)}; changing it to {_kind(wanted)} is not supported"
        )
    new = replace(wanted, column="", field_id=old.field_id)
    _check_values(unit, obj, old, lambda value: convert_value(old, new, value), path)
    affected: tuple[str, ...] = ()
    if effect is ConversionEffect.GAP:
        affected = tuple(i for i, _ in iter_values(unit.tx, obj, old, include_deleted=False))
    note = ConversionNote(obj.name, old.name, old.type, new.type, effect, affected)
    line = f"convert {obj.name}.{old.name} from {_kind(old)} to {_kind(new)} ({effect.value})"
    return FieldChange(old, new, line, note)


def _kind(field: Field) -> str:
    return ("Formula " if field.formula else "") + field.type.row.name


def _check_data(unit: UnitOfWork, obj: ObjectType, old: Field, new: Field, path: str) -> None:
    """Reject a change that stored values do not allow."""
    is_smaller = new.length < old.length or new.scale < old.scale
    is_smaller = is_smaller or new.precision - new.scale < old.precision - old.scale
    if is_smaller and not new.formula:
        # Check only the size: stored values passed the other checks when they were written.
        size = replace(new, type=FieldType.TEXT if old.is_text else new.type, restricted=False)

        def fits(value: object) -> None:
            if parse_value(size, value) != value:
                reject(path, f"{obj.name}.{old.name} holds values that would not fit")

        _check_values(unit, obj, old, fits, path)
    if new.unique and not old.unique and has_duplicates(unit.tx, obj, replace(new, column=old.column)):
        reject(path, f"{obj.name}.{old.name} holds the same value twice and cannot become unique")
    if set(old.reference_to) - set(new.reference_to):
        reject(path, f"{obj.name}.{old.name} must still reference {', '.join(old.reference_to)}")
    if new.is_master_detail and not old.is_master_detail:
        reject(path, f"{obj.name}.{old.name} cannot become a master-detail field once it exists")


def _check_values(
    unit: UnitOfWork, obj: ObjectType, field: Field, check: Callable[[Any], object], path: str
) -> None:
    for _, value in iter_values(unit.tx, obj, field):
        try:
            check(value)
        except DefinitionInvalid:
            raise
        except RequestError as error:
            reject(path, f"{obj.name}.{field.name} holds values that would not fit: {error.message}")
