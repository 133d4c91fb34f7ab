"""Renders stored fields as CustomField properties, in schema order. Pure.

`field_parse.py` translates them back to the same field, so writing a component that was read changes nothing.
"""

from __future__ import annotations

from tidewire.gate.metadata.field_parse import OPERATIONS
from tidewire.gate.metadata.properties import ordered
from tidewire.schema.field_types import DOUBLE_TYPES, PICKLIST_TYPES, FieldType, ValueKind
from tidewire.schema.model import Field, ObjectType, RollUp
from tidewire.schema.values import render_value

_WITH_KEYS = frozenset({FieldType.TEXT, FieldType.EMAIL, FieldType.NUMBER})
_WORDS = {operator: word for word, operator in OPERATIONS.items()}
_CALLS = {ValueKind.DATE: "DATEVALUE", ValueKind.DATETIME: "DATETIMEVALUE", ValueKind.TIME: "TIMEVALUE"}
_LOCATION_SCALE = 15


def field_kind(obj: ObjectType | None, f: Field) -> str:
    """Return the type of a field in the Metadata API."""
    if f.roll_up is not None:
        return "Summary"
    if f.is_master_detail:
        return "MasterDetail"
    if obj is not None and obj.name == "User" and f.custom and f.reference_to == ("User",):
        return "Hierarchy"
    return f.type.row.metadata_word


def render_field_properties(obj: ObjectType | None, f: Field, full_name: str = "") -> dict[str, object]:
    """Render the properties of a field; `obj` is None for fields of platform events."""
    if f.custom or obj is None:
        return ordered(full_name, **_texts(f), **_type_properties(obj, f))
    found: dict[str, object] = {"description": f.description or None, "inlineHelpText": f.help_text or None}
    if f.type in PICKLIST_TYPES:
        found["type"] = field_kind(obj, f)
    return ordered(full_name, **found)


def _texts(f: Field) -> dict[str, object]:
    return {
        "label": f.label,
        "description": f.description or None,
        "inlineHelpText": f.help_text or None,
        "trackTrending": False,
    }


def _type_properties(obj: ObjectType | None, f: Field) -> dict[str, object]:
    found: dict[str, object] = {"type": field_kind(obj, f)}
    if f.roll_up is not None:
        return found | _summary_properties(f.roll_up)
    if f.type in DOUBLE_TYPES:
        found |= {"precision": f.precision, "scale": f.scale}
    if f.formula:
        return found | {"formula": f.formula, "formulaTreatBlanksAs": "BlankAsZero"}
    if f.type is FieldType.LOCATION:
        parts = obj.components(f.name) if obj is not None else ()
        is_required = any(part.required for part in parts)
        return found | {
            "displayLocationInDecimal": True,
            "required": is_required,
            "scale": _LOCATION_SCALE,
        }
    if f.type is FieldType.REFERENCE:
        return found | _lookup_properties(obj, f)
    if f.type is FieldType.AUTO_NUMBER:
        return found | {"displayFormat": f.display_format, "externalId": f.external_id}
    if f.type is FieldType.CHECKBOX:
        return found | {"defaultValue": f.default is True}
    if f.type.row.states_length:
        found["length"] = f.length
    if f.type.row.visible_lines:
        found["visibleLines"] = f.type.row.visible_lines
    if f.type in PICKLIST_TYPES:
        found["valueSet"] = _value_set(f)
    elif f.default is not None:
        found["defaultValue"] = _default(f)
    if f.type in _WITH_KEYS or f.unique or f.external_id:
        found |= {"externalId": f.external_id, "unique": f.unique}
    if f.case_sensitive:
        found["caseSensitive"] = True
    return found | {"required": f.required}


def _lookup_properties(obj: ObjectType | None, f: Field) -> dict[str, object]:
    targets = f.reference_to
    found: dict[str, object] = {
        "referenceTo": targets[0] if len(targets) == 1 else list(targets),
        "relationshipName": f.child_relationship_name or None,
    }
    if f.is_master_detail:
        masters = [each.name for each in obj.fields if each.is_master_detail] if obj is not None else []
        return found | {
            "relationshipOrder": masters.index(f.name) if f.name in masters else 0,
            "reparentableMasterDetail": f.updateable,
            "writeRequiresMasterRead": False,
        }
    return found | {"deleteConstraint": f.delete_constraint, "required": f.required}


def _value_set(f: Field) -> dict[str, object]:
    values = [
        {"fullName": v.value, "default": v.is_default}
        | ({} if v.is_active else {"isActive": False})
        | {"label": v.label}
        for v in f.picklist
    ]
    return {"restricted": f.restricted, "valueSetDefinition": {"sorted": False, "value": values}}


def _default(f: Field) -> str:
    shown = render_value(f, f.default, "Z")
    if f.type in DOUBLE_TYPES:
        return str(shown)
    text = str(shown).replace("\\", "\\\\").replace('"', '\\"')
    return f'{_CALLS[f.type.kind]}("{text}")' if f.type.kind in _CALLS else f'"{text}"'


def _summary_properties(roll_up: RollUp) -> dict[str, object]:
    found: dict[str, object] = {
        "summaryForeignKey": f"{roll_up.child}.{roll_up.child_field}",
        "summaryOperation": roll_up.function.lower(),
    }
    if roll_up.summed_field:
        found["summarizedField"] = f"{roll_up.child}.{roll_up.summed_field}"
    if roll_up.filters:
        found["summaryFilterItems"] = [
            {"field": f"{roll_up.child}.{name}", "operation": _WORDS[operator], "value": _literal(value)}
            for name, operator, value in roll_up.filters
        ]
    return found


def _literal(value: str | int | float | bool | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
