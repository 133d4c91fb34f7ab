"""Custom fields of a definition, parsed into `Field` values. Pure.

docs/configuration.md describes the sections and keys of a document (YAML or JSON).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidewire.errors import DefinitionInvalid, RequestError
from tidewire.events import Value
from tidewire.gate.definitions.document import check_keys, keys_in, mapping, reject
from tidewire.names import is_api_name
from tidewire.schema.field_types import DOUBLE_TYPES, PICKLIST_TYPES, FieldType
from tidewire.schema.fields import location
from tidewire.schema.model import FILTER_OPERATORS, ROLL_UP_FUNCTIONS, Field, PicklistValue, RollUp
from tidewire.schema.values import parse_value

# The attributes of a field that each key of a definition sets.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "type": (),
    **{
        key: (key,)
        for key in keys_in(
            "label description help_text length precision scale required unique external_id case_sensitive"
            " restricted default delete_constraint formula roll_up"
        )
    },
    "references": ("reference_to",),
    "relationship": ("relationship_name",),
    "child_relationship": ("child_relationship_name",),
    "values": ("picklist",),
    "format": ("display_format",),
    "start": ("start_number",),
    "master_detail": ("is_master_detail", "required", "updateable"),
    "reparentable": ("updateable",),
}
_CUSTOM_TYPES = frozenset(each for each in FieldType if each.row.is_custom_type)
_EVENT_TYPES = frozenset(each for each in FieldType if each.row.is_event_type)
# Other words for a type, as metadata files have them.
_ALIASES = {word.lower(): each for each in FieldType for word in each.row.metadata_words}
_DELETE_CONSTRAINTS = ("SetNull", "Restrict", "Cascade")
_FORMULA_LENGTH = 1300
_MAX_MASTERS = 2
_TEXT_LIMITS = {"label": 255, "description": 1000, "help_text": 510, "format": 30}
_FORMAT_MARKS = re.compile(r"\{(?:0{1,10}|YYYY|YY|MM|DD)\}")


def parse_custom_fields(value: object, path: str, *, for_event: bool = False) -> tuple[Field, ...]:
    """Parse the fields of an object or event, named `X__c` or `ns__X__c`; a Geolocation includes its parts."""
    fields: list[Field] = []
    for name, raw in mapping(value, path).items():
        own_path = f"{path}.{name}"
        if not (is_api_name(name) and name.endswith("__c")):
            reject(
                own_path,
                "the name of a custom field has letters, digits and underscores, and must end in __c",
            )
        field = parse_field(name, raw, own_path, _EVENT_TYPES if for_event else _CUSTOM_TYPES)
        if field.type is FieldType.LOCATION:
            fields += location(name, field.label, required=field.required)
        else:
            fields.append(field)
    if sum(f.is_master_detail for f in fields) > _MAX_MASTERS:
        reject(path, f"an object can have at most {_MAX_MASTERS} master-detail fields")
    return tuple(fields)


def parse_field(name: str, value: object, path: str, allowed: frozenset[FieldType] = _CUSTOM_TYPES) -> Field:
    """Parse one field; length, precision and scale default to those of its type."""
    spec = mapping(value, path)
    check_keys(spec, ATTRIBUTES, path)
    word = str(spec.get("type", "")).lower()
    field_type = {t.value.lower(): t for t in allowed}.get(word, _ALIASES.get(word))
    if field_type not in allowed:
        choices = ", ".join(sorted(t.value for t in allowed))
        reject(path, f"type must be one of {choices}")
    formula, roll_up = _formula(spec, field_type, path), _roll_up(spec, field_type, path)
    is_derived = bool(formula or roll_up or field_type is FieldType.AUTO_NUMBER)
    is_numeric = field_type in DOUBLE_TYPES
    is_count = roll_up is not None and roll_up.function == "COUNT"
    length = _FORMULA_LENGTH if formula and field_type is FieldType.TEXT else field_type.row.default_length
    field = Field(
        name=name,
        label=parse_text(spec, "label", _default_label(name), path),
        description=parse_text(spec, "description", "", path),
        help_text=parse_text(spec, "help_text", "", path),
        type=field_type,
        length=_whole(spec, "length", length, path),
        precision=_whole(spec, "precision", 18 if is_numeric else 0, path),
        scale=_whole(spec, "scale", 2 if is_numeric and not is_count else 0, path),
        required=_flag(spec, "required", path),
        unique=_flag(spec, "unique", path),
        external_id=_flag(spec, "external_id", path),
        case_sensitive=_flag(spec, "case_sensitive", path),
        createable=not is_derived,
        updateable=not is_derived,
        picklist=parse_picklist(spec.get("values", ()), spec.get("default"), field_type, path),
        restricted=_flag(spec, "restricted", path),
        display_format=_display_format(spec, path),
        start_number=_whole(spec, "start", 1, path),
        formula=formula,
        roll_up=roll_up,
        in_change_events=not formula,
        custom=True,
    )
    if field_type is FieldType.REFERENCE:
        field = _lookup(field, spec, word, path)
    else:
        _only_for(
            spec, ("references", "master_detail", "reparentable", "delete_constraint"), "a Lookup", path
        )
    if field_type is not FieldType.AUTO_NUMBER:
        _only_for(spec, ("format", "start"), "an AutoNumber", path)
    if is_derived:
        _only_without(spec, ("required", "default", "unique") if formula or roll_up else ("default",), path)
    return replace(field, default=_default(field, spec.get("default"), path))


def _default_label(name: str) -> str:
    """`ns__Due_Date__c` -> `Due Date`."""
    return name.removesuffix("__c").rpartition("__")[2].replace("_", " ")


def _display_format(spec: Mapping[str, Any], path: str) -> str:
    """Parse the format of an auto number: one counter such as `{0000}`, date parts, and other text."""
    text = parse_text(spec, "format", "", path)
    marks = _FORMAT_MARKS.findall(text)
    rest = _FORMAT_MARKS.sub("", text)
    counters = [mark for mark in marks if "0" in mark]
    if text and (len(counters) != 1 or "{" in rest or "}" in rest):
        reject(
            path, "format must have one counter such as {0000}, and no marks but {YYYY}, {YY}, {MM} and {DD}"
        )
    return text


def _flag(spec: Mapping[str, Any], key: str, path: str) -> bool:
    value = spec.get(key, False)
    if not isinstance(value, bool):
        reject(path, f"{key} must be true or false")
    return value


def _only_for(spec: Mapping[str, Any], keys: Iterable[str], kind: str, path: str) -> None:
    for key in keys:
        if key in spec:
            reject(path, f"only {kind} has `{key}`")


def _only_without(spec: Mapping[str, Any], keys: Iterable[str], path: str) -> None:
    for key in keys:
        if spec.get(key):
            reject(path, f"a computed field cannot have `{key}`")


def _lookup(field: Field, spec: Mapping[str, Any], word: str, path: str) -> Field:
    targets = spec.get("references", "User" if word == "hierarchy" else ())
    targets = (targets,) if isinstance(targets, str) else targets
    if not isinstance(targets, list | tuple) or not targets or not all(isinstance(t, str) for t in targets):
        reject(path, "a Lookup needs `references`")
    if word == "hierarchy" and (tuple(targets) != ("User",) or not path.startswith("objects.User.")):
        reject(path, "a Hierarchy field must be on User and reference User")
    is_detail = word == "masterdetail" or _flag(spec, "master_detail", path)
    if is_detail and len(targets) != 1:
        reject(path, "a master-detail field must reference exactly one object")
    if not is_detail:
        _only_for(spec, ("reparentable",), "a master-detail lookup", path)
    usual = "Cascade" if is_detail else "Restrict" if field.required else "SetNull"
    constraint = str(spec.get("delete_constraint", usual))
    if constraint not in _DELETE_CONSTRAINTS or (is_detail and constraint != "Cascade"):
        reject(
            path, f"delete_constraint must be {'Cascade' if is_detail else ', '.join(_DELETE_CONSTRAINTS)}"
        )
    if field.required and constraint == "SetNull":
        reject(path, "a required Lookup cannot be set to null: delete_constraint must be Restrict or Cascade")
    return replace(
        field,
        reference_to=tuple(targets),
        relationship_name=str(spec.get("relationship", field.name.removesuffix("__c") + "__r")),
        child_relationship_name=str(spec.get("child_relationship", "")),
        required=field.required or is_detail,
        updateable=not is_detail or _flag(spec, "reparentable", path),
        is_master_detail=is_detail,
        delete_constraint=constraint,
    )


def _formula(spec: Mapping[str, Any], field_type: FieldType, path: str) -> str:
    formula = spec.get("formula", "")
    if not isinstance(formula, str) or ("formula" in spec and not formula.strip()):
        reject(path, "formula must be text")
    if formula and not field_type.row.is_formula_result:
        reject(path, f"a formula cannot have the type {field_type.value}")
    return formula


def _roll_up(spec: Mapping[str, Any], field_type: FieldType, path: str) -> RollUp | None:
    if spec.get("roll_up") is None:
        return None
    own_path = f"{path}.roll_up"
    roll_up = mapping(spec["roll_up"], own_path)
    check_keys(roll_up, ("child", "child_field", "function", "field", "filters"), own_path)
    for key in ("child", "child_field", "function"):
        if not isinstance(roll_up.get(key), str):
            reject(own_path, f"needs `{key}`")
    function = roll_up["function"].upper()
    if function not in ROLL_UP_FUNCTIONS:
        reject(own_path, f"function must be one of {', '.join(ROLL_UP_FUNCTIONS)}")
    summed = str(roll_up.get("field", ""))
    if (function == "COUNT") == bool(summed):
        reject(own_path, "COUNT takes no `field`" if summed else f"{function} needs `field`")
    is_number = field_type in DOUBLE_TYPES
    if not field_type.row.is_summary_result or (function in ("COUNT", "SUM") and not is_number):
        reject(path, f"{function} cannot have the type {field_type.value}")
    if "formula" in spec:
        reject(path, "a field is a formula or a roll-up, not both")
    filters = roll_up.get("filters", ())
    if not isinstance(filters, list | tuple):
        reject(own_path, "filters must be a list")
    return RollUp(
        child=roll_up["child"],
        child_field=roll_up["child_field"],
        function=function,
        summed_field=summed,
        filters=tuple(parse_filter(item, f"{own_path}.filters[{i}]") for i, item in enumerate(filters)),
    )


def parse_filter(item: object, path: str) -> tuple[str, str, str | int | float | bool | None]:
    """Parse a condition such as `[Status__c, "=", Open]`: field, operator, literal."""
    if not isinstance(item, list | tuple) or len(item) != 3:
        reject(path, "a filter must be a list of field, operator and literal")
    field, operator, literal = item
    if not isinstance(field, str) or operator not in FILTER_OPERATORS:
        reject(path, f"operator must be one of {' '.join(FILTER_OPERATORS)}")
    if literal is not None and not isinstance(literal, str | int | float):
        reject(path, "the literal must be text, a number, true, false or null")
    return field, str(operator), literal


def _default(field: Field, value: object, path: str) -> Value:
    """Parse the default into its stored form."""
    if value is None:
        return None
    try:
        return parse_value(field, value)
    except RequestError as error:
        raise DefinitionInvalid(f"{path}: default: {error.message}", path=path) from error


def value_name(item: object) -> str:
    """Return the name of a picklist value, which is text or a mapping with `value`."""
    return str(item.get("value", "")) if isinstance(item, Mapping) else str(item)


def value_labels(values: object) -> dict[str, str]:
    """Return the labels that a list of picklist values sets, by value."""
    items = values if isinstance(values, list | tuple) else ()
    return {value_name(i): str(i["label"]) for i in items if isinstance(i, Mapping) and "label" in i}


def parse_picklist(
    values: object, default: object, field_type: FieldType, path: str
) -> tuple[PicklistValue, ...]:
    """Parse the values of a picklist: texts, or mappings with `value` and `label`."""
    if not isinstance(values, list | tuple):
        reject(path, "values must be a list")
    if field_type not in PICKLIST_TYPES:
        if values:
            reject(path, "only picklists have `values`")
        return ()
    for i, item in enumerate(values):
        if isinstance(item, Mapping):
            check_keys(item, ("value", "label"), f"{path}.values[{i}]")
        if isinstance(item, list | tuple):
            reject(f"{path}.values[{i}]", "a value must be text, or a mapping with `value` and `label`")
    names = [value_name(item) for item in values]
    if not names:
        reject(path, f"a {field_type.value} needs values")
    if len(set(names)) < len(names):
        reject(path, "each value of a picklist must be listed once")
    if any(not name or ";" in name for name in names):
        reject(path, "a picklist value must not be empty or contain `;`")
    chosen = str(default).split(";") if default is not None else []
    labels = value_labels(values)
    if any(not label.strip() or len(label) > 255 for label in labels.values()):
        reject(path, "the label of a value must have 1 to 255 characters")
    return tuple(PicklistValue(name, labels.get(name, name), is_default=name in chosen) for name in names)


def parse_text(spec: Mapping[str, Any], key: str, default: str, path: str) -> str:
    """Return a label, description, help text or format of at most the allowed length."""
    value = spec.get(key, default)
    limit = _TEXT_LIMITS[key]
    if not isinstance(value, str) or len(value) > limit:
        reject(path, f"{key} must be text of at most {limit} characters")
    return value


def _whole(spec: Mapping[str, Any], key: str, default: int, path: str) -> int:
    value = spec.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        reject(path, f"{key} must be a whole number, 0 or more")
    return value


def named_attributes(spec: Mapping[str, Any]) -> set[str]:
    """Return the attributes that the keys of a spec set."""
    return {attribute for key in spec for attribute in ATTRIBUTES.get(key, ())}


def differing_keys(old: Field, new: Field, spec: Mapping[str, Any]) -> list[str]:
    """Return the keys of a spec, sorted, that set an attribute in which two fields differ."""
    return sorted(
        key for key in spec if any(getattr(new, a) != getattr(old, a) for a in ATTRIBUTES.get(key, ()))
    )
