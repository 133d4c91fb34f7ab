"""Translates the properties of a CustomField into the spec of a field in a definition.

A definition changes only what it names, but a component is complete: what it omits has its default. So the spec names
every property of the field's type, except where the stored field is equal but written differently. Properties without
an effect here, such as history tracking and display options, are ignored; those that would change the meaning of data
are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewire.gate.metadata.properties import (
    Properties,
    as_mapping,
    check_properties,
    flag_of,
    items_of,
    names_in,
    reject,
    require,
    text_of,
    texts_of,
    whole_of,
)
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import DOUBLE_TYPES, PICKLIST_TYPES, FieldType
from tidewire.schema.model import Field, PicklistValue
from tidewire.schema.values import render_value
from tidewire.storage.store import Reader, Transaction

_USED = names_in(
    "fullName caseSensitive defaultValue deleteConstraint description displayFormat externalId formula inlineHelpText"
    " label length precision referenceTo relationshipName reparentableMasterDetail required scale startingNumber"
    " summarizedField summaryFilterItems summaryForeignKey summaryOperation type unique valueSet picklist"
)
_IGNORED = names_in(
    "businessOwnerGroup businessOwnerUser businessStatus complianceGroup deprecated displayLocationInDecimal"
    " escapeMarkup externalDeveloperName fieldManageability formulaTreatBlanksAs isAIPredictionField"
    " isConvertLeadDisabled isFilteringDisabled isNameField isSortingDisabled populateExistingRows relationshipLabel"
    " relationshipOrder restrictedAdminField securityClassification stripMarkup trackFeedHistory trackHistory"
    " trackTrending translateData visibleLines writeRequiresMasterRead urls"
)
_TYPES = {
    word: each
    for each in FieldType
    if each.row.is_custom_type
    for word in each.row.metadata_words or (each.row.name,)
}
_NUMBERS = frozenset(word for word, each in _TYPES.items() if each in DOUBLE_TYPES)
_LOOKUPS = frozenset(FieldType.REFERENCE.row.metadata_words)
# A definition distinguishes the three kinds of lookups by these words too.
_WORDS = {word: word if word in _LOOKUPS else each.row.name for word, each in _TYPES.items()}
_PICKLISTS = frozenset(word for word, each in _TYPES.items() if each in PICKLIST_TYPES)
_WITH_LINES = frozenset(word for word, each in _TYPES.items() if each.row.visible_lines)
MIN_LONG_LENGTH = 256
OPERATIONS = {
    "equals": "=",
    "notEqual": "!=",
    "lessThan": "<",
    "lessOrEqual": "<=",
    "greaterThan": ">",
    "greaterOrEqual": ">=",
}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'')
_CALLED = re.compile(r"(?:DATEVALUE|DATETIMEVALUE|TIMEVALUE)\(\s*(.*?)\s*\)", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?")


@dataclass(frozen=True, slots=True)
class FieldDefinition:
    """The spec of one field. `later` are picklist values to deactivate once the field exists."""

    spec: dict[str, Any]
    later: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """What a component may refer to: the org, and other fields of the same request by lower-case name."""

    catalog: Catalog
    reader: Reader | Transaction
    pending: Mapping[str, Properties] = field(default_factory=dict)

    def try_field(self, full_name: str) -> Field | None:
        """Return a stored field by `Object.Field`, or None."""
        entity, _, name = full_name.partition(".")
        obj = self.catalog.try_object(entity)
        if obj is not None:
            return obj.try_field(name)
        event = self.catalog.try_event(entity)
        return next((f for f in event.fields if f.name.lower() == name.lower()), None) if event else None


def parse_field_properties(
    entity: str, name: str, properties: Properties, context: Context
) -> FieldDefinition:
    """Translate a field. Raises DefinitionInvalid with the status code of the Metadata API."""
    check_properties(properties, _USED | _IGNORED, f"CustomField {entity}.{name}")
    stored = context.try_field(f"{entity}.{name}")
    if not name.endswith("__c"):
        return FieldDefinition(_standard_spec(properties, stored))
    kind = text_of(properties, "type").strip()
    require(properties, "type", "label")
    spec: dict[str, Any] = {
        "label": text_of(properties, "label"),
        "description": text_of(properties, "description"),
        "help_text": text_of(properties, "inlineHelpText"),
    }
    if kind == "Summary":
        return FieldDefinition(spec | _summary_spec(properties, stored, context))
    if kind not in _WORDS:
        reject(f"{entity}.{name}: fields of type {kind[:80]} are not supported", fields=["type"])
    spec["type"] = _WORDS[kind]
    formula = text_of(properties, "formula")
    _check_sizes(kind, properties, has_formula=bool(formula))
    if formula:
        spec["formula"] = formula
        return FieldDefinition(spec | _sizes(kind, properties, has_formula=True))
    if kind == "Location":
        return FieldDefinition({key: spec[key] for key in ("type", "label")} | _required(properties))
    spec |= _sizes(kind, properties, has_formula=False)
    later: tuple[str, ...] = ()
    if kind in _LOOKUPS:
        spec |= _lookup_spec(kind, properties)
        return FieldDefinition(spec)
    if kind == "AutoNumber":
        spec |= _auto_number_spec(properties)
        return FieldDefinition(spec)
    if kind != "Checkbox":
        spec |= _required(properties)
    spec["unique"] = flag_of(properties, "unique")
    spec["external_id"] = flag_of(properties, "externalId")
    if kind == "Text":
        spec["case_sensitive"] = flag_of(properties, "caseSensitive")
    if kind in _PICKLISTS:
        values, later = _value_spec(properties, stored)
        spec |= values
    else:
        spec |= _default_spec(kind, properties, stored)
    if entity.endswith("__e"):
        # Fields of events cannot be unique, external ids or case-sensitive.
        spec = {k: v for k, v in spec.items() if v or k not in ("unique", "external_id", "case_sensitive")}
    return FieldDefinition(spec, later)


def _standard_spec(properties: Properties, stored: Field | None) -> dict[str, Any]:
    """Translate what may change about a standard field."""
    spec: dict[str, Any] = {}
    if "description" in properties:
        spec["description"] = text_of(properties, "description")
    if "inlineHelpText" in properties:
        spec["help_text"] = text_of(properties, "inlineHelpText")
    if "valueSet" in properties or "picklist" in properties:
        values, _ = _value_spec(properties, stored)
        spec |= {key: values[key] for key in ("values", "default", "deactivate") if values.get(key)}
    return spec


def _must_have(kind: str, properties: Properties, name: str) -> int:
    value = whole_of(properties, name)
    if value is None:
        reject(f"Must specify '{name}' for a CustomField of type {kind}", fields=[name])
    return value


def _check_sizes(kind: str, properties: Properties, *, has_formula: bool) -> None:
    if kind == "Checkbox" and "required" in properties:
        reject("Can not specify 'required' for a CustomField of type Checkbox", fields=["required"])
    if has_formula:
        return
    if kind == "Checkbox" and not text_of(properties, "defaultValue"):
        reject("Must specify 'defaultValue' for a CustomField of type Checkbox", fields=["defaultValue"])
    if kind == "Text" and not 1 <= _must_have(kind, properties, "length") <= 255:
        reject("Invalid length, must be between 1 and 255", fields=["length"])
    if kind in ("LongTextArea", "Html") and _must_have(kind, properties, "length") < MIN_LONG_LENGTH:
        reject(f"Invalid length, minimum is: {MIN_LONG_LENGTH}", fields=["length"])
    if kind in _WITH_LINES:
        _must_have(kind, properties, "visibleLines")


def _sizes(kind: str, properties: Properties, *, has_formula: bool) -> dict[str, Any]:
    if kind in _NUMBERS:
        return {name: _must_have(kind, properties, name) for name in ("precision", "scale")}
    if kind in ("Text", "LongTextArea", "Html") and not has_formula:
        return {"length": _must_have(kind, properties, "length")}
    return {}


def _required(properties: Properties) -> dict[str, Any]:
    return {"required": flag_of(properties, "required")}


def _lookup_spec(kind: str, properties: Properties) -> dict[str, Any]:
    targets = texts_of(properties, "referenceTo") or (["User"] if kind == "Hierarchy" else [])
    if not targets:
        reject(f"Must specify 'referenceTo' for a CustomField of type {kind}", fields=["referenceTo"])
    spec: dict[str, Any] = {"references": targets}
    children = text_of(properties, "relationshipName")
    if children:
        spec["child_relationship"] = children
    if kind == "MasterDetail":
        return spec | {"reparentable": flag_of(properties, "reparentableMasterDetail")}
    is_required = flag_of(properties, "required")
    usual = "Restrict" if is_required else "SetNull"
    constraint = text_of(properties, "deleteConstraint") or usual
    return spec | {"required": is_required, "delete_constraint": constraint}


def _auto_number_spec(properties: Properties) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "format": text_of(properties, "displayFormat"),
        "external_id": flag_of(properties, "externalId"),
    }
    start = whole_of(properties, "startingNumber")
    return spec if start is None else spec | {"start": start}


def _value_spec(properties: Properties, stored: Field | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Translate the values of a picklist; also returns those to deactivate once the field exists."""
    entries, is_restricted, is_sorted = _read_values(properties)
    values: list[dict[str, str]] = []
    chosen: list[str] = []
    inactive: list[str] = []
    for entry in entries:
        name = text_of(entry, "fullName") or text_of(entry, "valueName")
        if not name:
            reject("Required field is missing: fullName", "REQUIRED_FIELD_MISSING", ["fullName"])
        values.append({"value": name, "label": text_of(entry, "label") or name})
        if not flag_of(entry, "isActive", default=True):
            inactive.append(name)
        elif flag_of(entry, "default"):
            chosen.append(name)
    if is_sorted:
        values.sort(key=lambda value: value["label"].casefold())
    spec: dict[str, Any] = {"restricted": is_restricted, "default": ";".join(chosen) or None}
    if stored is None:
        # A value must exist before it can be deactivated.
        return spec | {"values": values}, tuple(inactive)
    held = {v.value: v for v in stored.picklist}
    unknown = tuple(name for name in inactive if name not in held)
    active = [value for value in values if value["value"] not in inactive]
    if unknown or not _is_same_list(active, stored.picklist):
        spec["values"] = [
            value for value in values if value["value"] not in inactive or value["value"] in unknown
        ]
    listed = {value["value"] for value in values}
    retired = [name for name in held if name in inactive or name not in listed]
    return (spec | {"deactivate": retired} if retired else spec), unknown


def _read_values(properties: Properties) -> tuple[list[Properties], bool, bool]:
    """Return the entries of a value set or of the older `picklist`, whether it is restricted, and sorted."""
    if "picklist" in properties:
        older = as_mapping(properties["picklist"], "picklist")
        check_properties(older, ("picklistValues", "sorted", "restrictedPicklist"), "Picklist")
        is_restricted = flag_of(older, "restrictedPicklist")
        return items_of(older, "picklistValues"), is_restricted, flag_of(older, "sorted")
    value_set = as_mapping(properties.get("valueSet"), "valueSet")
    check_properties(value_set, ("restricted", "valueSetDefinition"), "ValueSet")
    definition = as_mapping(value_set.get("valueSetDefinition"), "valueSetDefinition")
    check_properties(definition, ("sorted", "value"), "ValueSetValuesDefinition")
    entries = items_of(definition, "value")
    return entries, flag_of(value_set, "restricted"), flag_of(definition, "sorted")


def _is_same_list(values: list[dict[str, str]], held: tuple[PicklistValue, ...]) -> bool:
    active = [(v.value, v.label) for v in held if v.is_active]
    return active == [(value["value"], value["label"]) for value in values]


def _default_spec(kind: str, properties: Properties, stored: Field | None) -> dict[str, Any]:
    text = text_of(properties, "defaultValue").strip()
    if kind == "Checkbox":
        wanted = flag_of(properties, "defaultValue")
        # No default and the default false mean the same.
        is_same = stored is not None and bool(stored.default) == wanted
        return {} if is_same else {"default": wanted}
    value = _literal(kind, text) if text else None
    if stored is not None and stored.default is not None and value is not None:
        shown = render_value(stored, stored.default, "Z")
        if shown == value:
            return {}
    return {"default": value}


def _literal(kind: str, text: str) -> object:
    """Parse a default, which must be a single literal."""
    called = _CALLED.fullmatch(text)
    quoted = _QUOTED.fullmatch(called[1] if called else text)
    if quoted:
        inner = quoted[1] if quoted[1] is not None else quoted[2]
        return re.sub(r"\\(.)", r"\1", inner)
    if kind in _NUMBERS and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    reject(f"The default value '{text[:80]}' is not supported: use a literal", fields=["defaultValue"])


def _summary_spec(properties: Properties, stored: Field | None, context: Context) -> dict[str, Any]:
    child, _, child_field = text_of(properties, "summaryForeignKey").partition(".")
    function = text_of(properties, "summaryOperation").upper()
    if not child_field or not function:
        missing = "summaryOperation" if child_field else "summaryForeignKey"
        reject(f"Must specify '{missing}' for a CustomField of type Summary", fields=[missing])
    roll_up: dict[str, Any] = {"child": child, "child_field": child_field, "function": function}
    summed = text_of(properties, "summarizedField")
    if summed:
        roll_up["field"] = _of_child(summed, child, "summarizedField")
    filters = [_filter(item, child, context) for item in items_of(properties, "summaryFilterItems")]
    if filters:
        roll_up["filters"] = filters
    spec: dict[str, Any] = {"roll_up": roll_up}
    if stored is not None and stored.roll_up is not None:
        return spec | {"type": stored.type.value}
    if function == "COUNT":
        return spec | {"type": "Number", "precision": 18, "scale": 0}
    return spec | _summed_type(summed, context)


def _summed_type(summed: str, context: Context) -> dict[str, Any]:
    known = context.try_field(summed)
    if known is not None:
        size = {"precision": 18, "scale": known.scale} if known.type in DOUBLE_TYPES else {}
        return {"type": known.type.value, **size}
    pending = context.pending.get(summed.lower())
    if pending is None:
        reject(f"The field {summed[:200]} does not exist", "INVALID_CROSS_REFERENCE_KEY", ["summarizedField"])
    kind = text_of(pending, "type")
    size = {"precision": 18, "scale": whole_of(pending, "scale") or 0} if kind in _NUMBERS else {}
    return {"type": _WORDS.get(kind, kind), **size}


def _of_child(full_name: str, child: str, name: str) -> str:
    entity, _, own = full_name.partition(".")
    if entity.lower() != child.lower() or not own:
        reject(f"{name} is not a field of {child}", fields=[name])
    return own


def _filter(item: Properties, child: str, context: Context) -> list[object]:
    check_properties(item, ("field", "operation", "value"), "FilterItem")
    full_name = text_of(item, "field")
    operator = OPERATIONS.get(text_of(item, "operation"))
    if operator is None:
        reject(f"operation must be one of {', '.join(OPERATIONS)}", fields=["summaryFilterItems"])
    name = _of_child(full_name, child, "summaryFilterItems")
    return [name, operator, _filter_literal(full_name, text_of(item, "value"), context)]


def _filter_literal(full_name: str, text: str, context: Context) -> object:
    """Convert the value of a filter to the type of its field."""
    if text == "":
        return None
    known = context.try_field(full_name)
    kind = (
        known.type.value if known is not None else text_of(context.pending.get(full_name.lower(), {}), "type")
    )
    if kind == FieldType.CHECKBOX.value:
        return flag_of({"value": text}, "value")
    if kind in {t.value for t in DOUBLE_TYPES} | {"Integer"} and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text
