"""Components and their properties as submitted, from JSON or XML: every value may be text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tidewire.errors import DefinitionInvalid

Properties = Mapping[str, Any]
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Component:
    """One metadata component: its type, full name, and properties by element name.

    The properties are those of `api_version`, None for the newest.
    """

    kind: str
    full_name: str
    properties: Properties
    api_version: int | None = None


def names_in(text: str) -> frozenset[str]:
    """Split a text at blanks into names."""
    return frozenset(text.split())


def reject(message: str, code: str = "FIELD_INTEGRITY_EXCEPTION", fields: Sequence[str] = ()) -> NoReturn:
    """Raise DefinitionInvalid; `code` is the status code in the response."""
    raise DefinitionInvalid(message, status_code=code, fields=list(fields))


def check_properties(properties: Properties, known: Iterable[str], kind: str) -> None:
    """Reject unknown properties."""
    for name in properties:
        if name not in known:
            reject(f"Property '{name[:80]}' is not supported for {kind}")


def require(properties: Properties, *names: str) -> None:
    """Reject a component in which one of these properties is missing or blank."""
    for name in names:
        if not text_of(properties, name).strip():
            reject(f"Required field is missing: {name}", "REQUIRED_FIELD_MISSING", [name])


def as_mapping(value: object, name: str) -> Properties:
    """Return a property that has properties itself; a missing or empty one has none."""
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        reject(f"{name} must be an object with properties", fields=[name])
    return value


def items_of(properties: Properties, name: str) -> list[Properties]:
    """Return a repeatable property as a list."""
    value = properties.get(name)
    if value is None:
        return []
    each = value if isinstance(value, list | tuple) else [value]
    return [as_mapping(item, name) for item in each]


def texts_of(properties: Properties, name: str) -> list[str]:
    """Return a repeatable text as a list."""
    value = properties.get(name)
    if value is None:
        return []
    return [_text(item, name) for item in (value if isinstance(value, list | tuple) else [value])]


def text_of(properties: Properties, name: str, default: str = "") -> str:
    """Return a property as text."""
    value = properties.get(name)
    return default if value is None else _text(value, name)


def _text(value: object, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        reject(f"{name} must be text", fields=[name])
    return str(value)


def flag_of(properties: Properties, name: str, *, default: bool = False) -> bool:
    """Return a property as a boolean."""
    value = properties.get(name)
    if value is None or value == "":
        return default
    found = value if isinstance(value, bool) else _TRUTHS.get(str(value).strip().lower())
    if found is None:
        reject(f"'{str(value)[:80]}' is not a valid value for the type xsd:boolean", fields=[name])
    return found


def whole_of(properties: Properties, name: str) -> int | None:
    """Return a property as a whole number, or None if it is missing."""
    value = properties.get(name)
    if value is None or value == "" or isinstance(value, bool):
        return None
    text = str(value).strip()
    if text.endswith(".0"):
        text = text[:-2]
    if not (text.isascii() and text.removeprefix("-").isdigit()) or len(text) > 12:
        reject(f"'{text[:80]}' is not a valid value for the type xsd:int", fields=[name])
    return int(text)


def ordered(full_name: str = "", /, **properties: object) -> dict[str, object]:
    """Return properties in schema order: the name, if given, then alphabetically; omits None."""
    kept = {name: properties[name] for name in sorted(properties) if properties[name] is not None}
    return ({"fullName": full_name} if full_name else {}) | kept


def without_nulls(value: object) -> object:
    """Remove null members from JSON: they mean the same as absent ones."""
    if isinstance(value, Mapping):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value
