"""Reading an org definition from an untrusted document; every error names the path of the faulty value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from tidewire.errors import DefinitionInvalid
from tidewire.names import is_api_name

T = TypeVar("T")

_MAX_DEPTH = 12
_MAX_NODES = 100_000
_MAX_TEXT = 40_000
_MAX_WHOLE = 1 << 53


def reject(path: str, reason: str) -> NoReturn:
    """Raise DefinitionInvalid for the value at `path`."""
    raise DefinitionInvalid(f"{path}: {reason}", path=path)


def check_document(document: object) -> None:
    """Reject what no section could hold: deep nesting, excessive size, keys that are not text, unstorable values."""
    pending: list[tuple[object, str, int]] = [(document, "definition", 0)]
    seen = 0
    while pending:
        value, path, depth = pending.pop()
        seen += 1
        if depth > _MAX_DEPTH:
            reject(path, f"nested more than {_MAX_DEPTH} levels deep")
        if seen > _MAX_NODES:
            reject("definition", f"more than {_MAX_NODES} values; split the document")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    reject(path, "keys must be text")
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
                reject(path, "number out of range (2^53 or more)")
        case float():
            if not math.isfinite(value):
                reject(path, "must be a finite number")
        case _:
            # YAML parses unquoted dates and sets; as quoted text they are unambiguous.
            reject(
                path, "only text, numbers, true, false, lists and mappings are allowed; put dates in quotes"
            )


def _check_text(text: str, path: str) -> None:
    if len(text) > _MAX_TEXT:
        reject(path, f"text longer than {_MAX_TEXT} characters")
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        reject(path, "text has a NUL or an unpaired surrogate, which cannot be stored")


def keys_in(text: str) -> tuple[str, ...]:
    """Split a text at blanks into keys."""
    return tuple(text.split())


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """Return a mapping with text keys; None counts as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise DefinitionInvalid(f"{path} must be a mapping of names", path=path)
    return value


def check_keys(value: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    """Reject unknown keys: they are most likely misspelt."""
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise DefinitionInvalid(f"{path} has unknown keys: {', '.join(unknown)}", path=path)


def iter_entries(
    document: Mapping[str, object], section: str, keys: Iterable[str] | None = None
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield name, path and spec of each entry of a section; rejects keys other than `keys`, if given."""
    for name, value in mapping(document.get(section), section).items():
        path = f"{section}.{name}"
        spec = mapping(value, path)
        if keys is not None:
            check_keys(spec, keys, path)
        yield name, path, spec


def iter_object_entries(
    document: Mapping[str, object], part: str, keys: Iterable[str]
) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yield object, name, path and spec of each entry in one part of all objects, such as `sharing_rules`."""
    for entity, path, spec in iter_entries(document, "objects"):
        inner = mapping(spec.get(part), f"{path}.{part}")
        for name, inner_path, inner_spec in iter_entries({f"{path}.{part}": inner}, f"{path}.{part}", keys):
            yield entity, name, inner_path, inner_spec


def check_name(name: str, path: str) -> None:
    """Reject a name that is not an API name."""
    if not is_api_name(name):
        reject(
            path, "the name may have only letters, digits and single underscores, and starts with a letter"
        )


def one_of(
    spec: Mapping[str, Any],
    key: str,
    choices: Mapping[str, T],
    default: T,
    path: str,
    *,
    takes_null: bool = False,
) -> T:
    """Return the choice that the text under `key` names; with `takes_null`, null means the default."""
    if key not in spec:
        return default
    word = spec[key]
    if word is None and takes_null:
        return default
    if not isinstance(word, str) or word not in choices:
        reject(f"{path}.{key}", f"must be one of {', '.join(choices)}")
    return choices[word]


def text_list(value: object, path: str) -> list[str]:
    """Return a list of names; None counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
        reject(path, "must be a list of names")
    return list(value)


def text_of(spec: Mapping[str, Any], key: str, default: str, path: str) -> str:
    """Return the text under `key`."""
    value = spec.get(key, default)
    if not isinstance(value, str):
        reject(f"{path}.{key}", "must be text")
    return value


def flag_of(spec: Mapping[str, Any], key: str, default: bool, path: str) -> bool:
    """Return the boolean under `key`."""
    value = spec.get(key, default)
    if not isinstance(value, bool):
        reject(f"{path}.{key}", "must be true or false")
    return value


def text_map(value: object, path: str) -> dict[str, str]:
    """Return a mapping from text to text."""
    found = mapping(value, path)
    for key, inner in found.items():
        if not isinstance(inner, str) or not inner:
            reject(f"{path}.{key}", "must be text")
    return dict(found)
