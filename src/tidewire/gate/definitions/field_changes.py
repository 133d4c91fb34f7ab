"""A stored field against its definition: what differs, whether stored data allows it, and what it takes.

Only what the document names is compared. A change of type, or of what makes text equal, is a conversion into
a new column; everything else keeps the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidewire.errors import DefinitionInvalid, RequestError
from tidewire.gate.definitions.custom_fields import value_labels
from tidewire.gate.definitions.document import refuse
from tidewire.gate.definitions.picklists import Orders, merge_values, moved_value
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

# Which attributes each word of a definition decides.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "type": (),
    "label": ("label",),
    "description": ("description",),
    "help_text": ("help_text",),
    "length": ("length",),
    "precision": ("precision",),
    "scale": ("scale",),
    "required": ("required",),
    "unique": ("unique",),
    "external_id": ("external_id",),
    "case_sensitive": ("case_sensitive",),
    "references": ("reference_to",),
    "relationship": ("relationship_name",),
    "child_relationship": ("child_relationship_name",),
    "values": ("picklist",),
    "restricted": ("restricted",),
    "default": ("default",),
    "format": ("display_format",),
    "start": ("start_number",),
    "master_detail": ("is_master_detail", "required", "updateable"),
    "reparentable": ("updateable",),
    "delete_constraint": ("delete_constraint",),
    "formula": ("formula",),
    "roll_up": ("roll_up",),
}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that will differ. `note` is set for a conversion; `has_new_values` where they follow from a
    formula or roll-up and must be computed anew.
    """

    old: Field
    new: Field
    line: str
    note: ConversionNote | None = None
    has_new_values: bool = False


def check_sizes(spec: Mapping[str, Any], path: str) -> None:
    """Refuse sizes that no field has, before anything is computed with them."""
    for key, limit in (("length", 131_072), ("precision", 18), ("scale", 18)):
        value = spec.get(key, 0)
        if isinstance(value, int) and value > limit:
            refuse(f"{path}.{key}", f"must be at most {limit}")


def check_field(field: Field, path: str) -> None:
    """Refuse a field under which no record could be stored, or as the platform has none."""
    if field.custom:
        _check_kind(field, path)
    if field.type in DOUBLE_TYPES and not (field.precision > 0 and field.scale <= field.precision):
        refuse(path, "precision is at least 1, scale no more than precision")
    if any(len(v.value) > 255 or v.value != v.value.strip() for v in field.picklist):
        refuse(path, "a picklist value has at most 255 characters, and no blanks around it")


def _check_kind(field: Field, path: str) -> None:
    least, most = field.type.row.length_range or (0, field.length)
    if not field.formula and not least <= field.length <= most:
        refuse(f"{path}.length", f"must be between {least} and {most}")
    if (field.unique or field.external_id) and not field.type.row.can_be_key:
        refuse(path, f"a {field.type.value} can be neither unique nor an external id")


def plan_change(
    unit: UnitOfWork,
    obj: ObjectType,
    old: Field,
    wanted: Field,
    spec: Mapping[str, Any],
    orders: Orders,
    path: str,
) -> FieldChange | None:
    """How a stored field changes, or None if it is as the document says."""
    if wanted.type is not old.type or bool(wanted.formula) != bool(old.formula):
        return _plan_conversion(unit, obj, old, wanted, path)
    named = {a for key in spec for a in ATTRIBUTES.get(key, ())} - {"picklist"}
    new = replace(old, **{a: getattr(wanted, a) for a in named})
    if old.type in PICKLIST_TYPES:
        listed = wanted.picklist if "values" in spec else ()
        if "default" not in spec and old.default is not None:
            new = replace(new, default=moved_value(orders, str(old.default)))
        values = merge_values(old, listed, value_labels(spec.get("values")), orders, new.default, path)
        new = replace(new, picklist=values)
    differing = sorted(
        key for key in spec if any(getattr(new, a) != getattr(old, a) for a in ATTRIBUTES.get(key, ()))
    )
    if new == old:
        return None
    _check_data(unit, obj, old, new, path)
    words = [key for key in differing if key not in ("values", "type")]
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
        refuse(
            path, f"{obj.name}.{old.name} is {_kind(old)}; changing it to {_kind(wanted)} is not supported"
        )
    new = replace(wanted, column="", field_id=old.field_id)
    _check_values(unit, obj, old, lambda value: convert_value(old, new, value), path)
    held: tuple[str, ...] = ()
    if effect is ConversionEffect.GAP:
        held = tuple(i for i, _ in iter_values(unit.tx, obj, old, include_deleted=False))
    note = ConversionNote(obj.name, old.name, old.type, new.type, effect, held)
    line = f"convert {obj.name}.{old.name} from {_kind(old)} to {_kind(new)} ({effect.value})"
    return FieldChange(old, new, line, note)


def _kind(field: Field) -> str:
    return ("Formula " if field.formula else "") + field.type.row.name


def _check_data(unit: UnitOfWork, obj: ObjectType, old: Field, new: Field, path: str) -> None:
    """Refuse a change that stored values contradict."""
    is_smaller = new.length < old.length or new.scale < old.scale
    is_smaller = is_smaller or new.precision - new.scale < old.precision - old.scale
    if is_smaller and not new.formula:
        # Only the size counts here: neither an address nor a list is checked again.
        size = replace(new, type=FieldType.TEXT if old.is_text else new.type, restricted=False)

        def fits(value: object) -> None:
            if parse_value(size, value) != value:
                refuse(path, f"{obj.name}.{old.name} holds values that would not fit")

        _check_values(unit, obj, old, fits, path)
    if new.unique and not old.unique and has_duplicates(unit.tx, obj, replace(new, column=old.column)):
        refuse(path, f"{obj.name}.{old.name} holds the same value twice and cannot become unique")
    if set(old.reference_to) - set(new.reference_to):
        refuse(path, f"{obj.name}.{old.name} must go on to reference {', '.join(old.reference_to)}")
    if new.is_master_detail and not old.is_master_detail:
        refuse(path, f"{obj.name}.{old.name} cannot become a master-detail field once it exists")


def _check_values(
    unit: UnitOfWork, obj: ObjectType, field: Field, check: Callable[[Any], object], path: str
) -> None:
    for _, value in iter_values(unit.tx, obj, field):
        try:
            check(value)
        except DefinitionInvalid:
            raise
        except RequestError as error:
            refuse(path, f"{obj.name}.{field.name} holds values that would not fit: {error.message}")
