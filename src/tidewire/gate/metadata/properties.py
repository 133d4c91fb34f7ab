"""Properties of a component as they come in, by JSON or by XML: every value may be text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tidewire.errors import DefinitionInvalid

Properties = Mapping[str, Any]
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Component:
    """One piece of metadata: the name of its type, its full name, and its properties by element name, as they are
    in a version of the API, None for the newest.
    """

    kind: str
    full_name: str
    properties: Properties
    api_version: int | None = None


def names_in(text: str) -> frozenset[str]:
    """The names in a text with blanks between them."""
    return frozenset(text.split())


def refuse(message: str, code: str = "FIELD_INTEGRITY_EXCEPTION", fields: Sequence[str] = ()) -> NoReturn:
    """Refuse a component; `code` is the status code that its caller is told."""
    raise DefinitionInvalid(message, status_code=code, fields=list(fields))


def check_properties(properties: Properties, known: Iterable[str], kind: str) -> None:
    """Refuse a property that nobody would read."""
    for name in properties:
        if name not in known:
            refuse(f"Property '{name[:80]}' is not supported for {kind}")


def as_mapping(value: object, name: str) -> Properties:
    """A property that has properties of its own; an absent or empty one has none."""
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        refuse(f"{name} has no properties", fields=[name])
    return value


def items_of(properties: Properties, name: str) -> list[Properties]:
    """A property that may be there several times."""
    value = properties.get(name)
    if value is None:
        return []
    each = value if isinstance(value, list | tuple) else [value]
    return [as_mapping(item, name) for item in each]


def texts_of(properties: Properties, name: str) -> list[str]:
    """A text that may be there several times."""
    value = properties.get(name)
    if value is None:
        return []
    return [_text(item, name) for item in (value if isinstance(value, list | tuple) else [value])]


def text_of(properties: Properties, name: str, default: str = "") -> str:
    """A text."""
    value = properties.get(name)
    return default if value is None else _text(value, name)


def _text(value: object, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        refuse(f"{name} must be text", fields=[name])
    return str(value)


def flag_of(properties: Properties, name: str, *, default: bool = False) -> bool:
    """A truth."""
    value = properties.get(name)
    if value is None or value == "":
        return default
    found = value if isinstance(value, bool) else _TRUTHS.get(str(value).strip().lower())
    if found is None:
        refuse(f"'{str(value)[:80]}' is not a valid value for the type xsd:boolean", fields=[name])
    return found


def whole_of(properties: Properties, name: str) -> int | None:
    """A whole number, or None if there is none."""
    value = properties.get(name)
    if value is None or value == "" or isinstance(value, bool):
        return None
    text = str(value).strip()
    if text.endswith(".0"):
        text = text[:-2]
    if not (text.isascii() and text.removeprefix("-").isdigit()) or len(text) > 12:
        refuse(f"'{text[:80]}' is not a valid value for the type xsd:int", fields=[name])
    return int(text)


def ordered(full_name: str, properties: Mapping[str, object]) -> dict[str, object]:
    """Properties in the order of the schema: the name first, then by letter; what is None is left out."""
    kept = {name: properties[name] for name in sorted(properties) if properties[name] is not None}
    return ({"fullName": full_name} if full_name else {}) | kept


def without_nulls(value: object) -> object:
    """JSON without the members that are null: they say as much as absent ones."""
    if isinstance(value, Mapping):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value
