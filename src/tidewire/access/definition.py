"""Org definitions: a document that says what an org should have, turned into types. Pure.

The document (YAML or JSON) has the sections `objects`, `events`, `capture`, `permission_sets`, `users`,
`push_topics` and `connected_apps`; docs/configuration.md
shows each. This module reads the first three; `apply.py` compares everything with the org and makes it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidewire.errors import DefinitionInvalid
from tidewire.names import is_api_name
from tidewire.schema.model import Field, FieldType, PicklistValue

SECTIONS = ("objects", "events", "capture", "permission_sets", "users", "push_topics", "connected_apps")
_FIELD_KEYS = (
    "type",
    "label",
    "length",
    "precision",
    "scale",
    "required",
    "unique",
    "external_id",
    "case_sensitive",
    "references",
    "relationship",
    "child_relationship",
    "values",
    "restricted",
    "default",
    "format",
)
_CUSTOM_TYPES = frozenset(FieldType) - {
    FieldType.ID,
    FieldType.INTEGER,
    FieldType.ADDRESS,
    FieldType.PERSON_NAME,
}
_EVENT_TYPES = frozenset(
    {
        FieldType.TEXT,
        FieldType.LONG_TEXT,
        FieldType.NUMBER,
        FieldType.CHECKBOX,
        FieldType.DATE,
        FieldType.DATETIME,
    }
)
_LENGTHS = {
    FieldType.TEXT: 255,
    FieldType.TEXT_AREA: 255,
    FieldType.LONG_TEXT: 32_768,
    FieldType.EMAIL: 80,
    FieldType.PHONE: 40,
    FieldType.URL: 255,
    FieldType.PICKLIST: 255,
    FieldType.AUTO_NUMBER: 30,
    FieldType.REFERENCE: 18,
}
_NUMERIC = frozenset({FieldType.NUMBER, FieldType.CURRENCY, FieldType.PERCENT})


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """`value` as a mapping with text keys; nothing at all counts as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise DefinitionInvalid(f"{path} must be a mapping of names", path=path)
    return value


def check_keys(value: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    """Refuse a key nobody would read: it is most likely misspelt."""
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise DefinitionInvalid(f"{path} has unknown keys: {', '.join(unknown)}", path=path)


def parse_custom_fields(value: object, path: str, *, for_event: bool = False) -> tuple[Field, ...]:
    """The fields of an object or event, each named `X__c`."""
    fields = []
    for name, raw in mapping(value, path).items():
        if not (is_api_name(name) and name.endswith("__c")):
            raise DefinitionInvalid(
                f"{path}.{name}: a custom field's name ends in __c", path=f"{path}.{name}"
            )
        fields.append(parse_field(name, raw, f"{path}.{name}", _EVENT_TYPES if for_event else _CUSTOM_TYPES))
    return tuple(fields)


def parse_field(name: str, value: object, path: str, allowed: frozenset[FieldType] = _CUSTOM_TYPES) -> Field:
    """One field. Lengths and digits have the defaults of their type."""
    spec = mapping(value, path)
    check_keys(spec, _FIELD_KEYS, path)
    kinds = {t.value.lower(): t for t in allowed}
    field_type = kinds.get(str(spec.get("type", "")).lower())
    if field_type is None:
        choices = ", ".join(sorted(t.value for t in allowed))
        raise DefinitionInvalid(f"{path}: type must be one of {choices}", path=path)
    values = _picklist(spec.get("values", ()), spec.get("default"), path)
    if field_type is FieldType.PICKLIST and not values:
        raise DefinitionInvalid(f"{path}: a Picklist needs values", path=path)
    targets = spec.get("references", ())
    targets = (targets,) if isinstance(targets, str) else tuple(targets)
    if field_type is FieldType.REFERENCE and not targets:
        raise DefinitionInvalid(f"{path}: a Lookup needs `references`", path=path)
    is_numeric = field_type in _NUMERIC
    return Field(
        name=name,
        label=str(spec.get("label", name.removesuffix("__c").replace("_", " "))),
        type=field_type,
        length=_whole(spec, "length", _LENGTHS.get(field_type, 0), path),
        precision=_whole(spec, "precision", 18 if is_numeric else 0, path),
        scale=_whole(spec, "scale", 2 if is_numeric else 0, path),
        required=bool(spec.get("required", False)),
        unique=bool(spec.get("unique", False)),
        external_id=bool(spec.get("external_id", False)),
        case_sensitive=bool(spec.get("case_sensitive", False)),
        createable=field_type is not FieldType.AUTO_NUMBER,
        updateable=field_type is not FieldType.AUTO_NUMBER,
        reference_to=targets,
        relationship_name=str(spec.get("relationship", name.removesuffix("__c") + "__r")) if targets else "",
        child_relationship_name=str(spec.get("child_relationship", "")),
        picklist=values,
        restricted=bool(spec.get("restricted", False)),
        default=spec.get("default"),
        display_format=str(spec.get("format", "")),
        custom=True,
    )


def _picklist(values: object, default: object, path: str) -> tuple[PicklistValue, ...]:
    if not isinstance(values, list | tuple):
        raise DefinitionInvalid(f"{path}: values must be a list", path=path)
    return tuple(PicklistValue(str(v), str(v), is_default=str(v) == default) for v in values)


def _whole(spec: Mapping[str, Any], key: str, default: int, path: str) -> int:
    value = spec.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise DefinitionInvalid(f"{path}: {key} must be a whole number", path=path)
    return value
