"""Reading a document that anybody may have written: what is wrong with it is told with its path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from tidewire.errors import DefinitionInvalid
from tidewire.gate.definitions.custom_fields import mapping

_MAX_DEPTH = 12
_MAX_NODES = 100_000
_MAX_TEXT = 40_000
_MAX_WHOLE = 1 << 53


def refuse(path: str, reason: str) -> NoReturn:
    """Refuse the document for what stands at `path`."""
    raise DefinitionInvalid(f"{path}: {reason}", path=path)


def check_document(document: object) -> None:
    """Refuse what no section could hold: deep nesting, endless size, keys that are not text, text that cannot
    be stored, numbers that are none.
    """
    pending: list[tuple[object, str, int]] = [(document, "definition", 0)]
    seen = 0
    while pending:
        value, path, depth = pending.pop()
        seen += 1
        if depth > _MAX_DEPTH:
            refuse(path, "nested too deeply")
        if seen > _MAX_NODES:
            refuse("definition", "too large")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    refuse(path, "keys must be text")
                _check_text(key, path)
                pending.append((inner, key if depth == 0 else f"{path}.{key[:80]}", depth + 1))
        elif isinstance(value, list | tuple):
            pending += [(inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(value)]
        else:
            _check_leaf(value, path)


def _check_leaf(value: object, path: str) -> None:
    match value:
        case None | bool():
            return
        case str():
            _check_text(value, path)
        case int():
            if abs(value) >= _MAX_WHOLE:
                refuse(path, "number out of range")
        case float():
            if not math.isfinite(value):
                refuse(path, "not a number")
        case _:
            # YAML has dates and sets of its own; quoting them says what is meant.
            refuse(path, "only text, numbers, true, false, lists and mappings; quote dates")


def _check_text(text: str, path: str) -> None:
    if len(text) > _MAX_TEXT:
        refuse(path, f"text longer than {_MAX_TEXT} characters")
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        refuse(path, "text with a character that cannot be stored")


def text_list(value: object, path: str) -> list[str]:
    """A list of names; nothing at all counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
        refuse(path, "must be a list of names")
    return list(value)


def text_of(spec: Mapping[str, Any], key: str, default: str, path: str) -> str:
    """A text under `key`."""
    value = spec.get(key, default)
    if not isinstance(value, str):
        refuse(f"{path}.{key}", "must be text")
    return value


def flag_of(spec: Mapping[str, Any], key: str, default: bool, path: str) -> bool:
    """A truth under `key`."""
    value = spec.get(key, default)
    if not isinstance(value, bool):
        refuse(f"{path}.{key}", "must be true or false")
    return value


def text_map(value: object, path: str) -> dict[str, str]:
    """A mapping from text to text."""
    found = mapping(value, path)
    for key, inner in found.items():
        if not isinstance(inner, str) or not inner:
            refuse(f"{path}.{key}", "must be text")
    return dict(found)
