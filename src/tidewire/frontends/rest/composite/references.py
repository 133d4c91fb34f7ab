"""References such as `@{account.records[0].Id}`, by which one subrequest uses the answer to another. Pure.

A text that is one reference becomes the value itself, with its JSON type; inside a longer text the value is inserted
as text. A reference must lead to a single value, not an object or list. Names are case-sensitive.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from tidewire.errors import BodyTooLarge
from tidewire.frontends.rest.wire import MAX_BODY_BYTES

Scalar = str | int | float | bool | None

_REFERENCE = re.compile(r"@\{([^{}]*)\}")
_EXPRESSION = re.compile(r"([A-Za-z0-9_]+)((?:\.[A-Za-z0-9_]+|\[[0-9]{1,9}\])+)")
_STEP = re.compile(r"\.([A-Za-z0-9_]+)|\[([0-9]+)\]")
_MAX_SHOWN = 200


def count_expressions(value: object) -> Counter[str]:
    """Count the expressions between `@{` and `}` in all texts of a JSON value."""
    return Counter(found for text in _iter_texts(value) for found in _REFERENCE.findall(text))


def source_of(expression: str) -> str:
    """Return the reference id that an expression begins with."""
    return re.split(r"[.\[]", expression, maxsplit=1)[0]


def resolve(
    expressions: Counter[str], answers: Mapping[str, object], *, allows_null: bool
) -> dict[str, Scalar] | str:
    """Return the value of each expression, or an error text for the first that has none.

    `answers` are the bodies of the subrequests that succeeded. Raises BodyTooLarge if the inserted values exceed the
    size limit of a request.
    """
    values: dict[str, Scalar] = {}
    size = 0
    for expression, times in expressions.items():
        value = _look_up(expression, answers)
        if not isinstance(value, str | int | float | None) or (value is None and not allows_null):
            return _unresolved(expression)
        values[expression] = value
        size += times * len(_as_text(value))
    if size > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"The request body is larger than {MAX_BODY_BYTES} bytes", limit_bytes=MAX_BODY_BYTES
        )
    return values


def fill(value: object, values: Mapping[str, Scalar]) -> object:
    """Replace every reference in a JSON value. Recursive: `parse_json_object` has checked the depth."""
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value)
        if whole is not None:
            return values[whole[1]]
        return _REFERENCE.sub(lambda found: _as_text(values[found[1]]), value)
    if isinstance(value, list):
        return [fill(item, values) for item in value]
    if isinstance(value, dict):
        return {name: fill(item, values) for name, item in value.items()}
    return value


def fill_url(url: str, values: Mapping[str, Scalar]) -> str:
    """Replace every reference in a URL.

    Values are escaped so that they stay inside their segment or parameter, except at the start of the URL, where the
    value may be a record's own URL.
    """

    def replace(found: re.Match[str]) -> str:
        text = _as_text(values[found[1]])
        return text if found.start() == 0 else quote(text, safe="")

    return _REFERENCE.sub(replace, url)


_MISSING = object()


def _look_up(expression: str, answers: Mapping[str, object]) -> object:
    parsed = _EXPRESSION.fullmatch(expression)
    if parsed is None or parsed[1] not in answers:
        return _MISSING
    value = answers[parsed[1]]
    for name, index in _STEP.findall(parsed[2]):
        if name and isinstance(value, dict) and name in value:
            value = value[name]
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return _MISSING
    return value


def _unresolved(expression: str) -> str:
    shown = expression[:_MAX_SHOWN]
    return (
        f"Invalid reference specified. No value for {shown} found in {source_of(shown)}. "
        + bad_reference_id(shown)
    )


def bad_reference_id(reference_id: str) -> str:
    """Return the error text for a malformed reference id."""
    return (
        f"Provided referenceId ('{reference_id[:_MAX_SHOWN]}') must start with a letter or a number, and it can"
        " contain only letters, numbers and underscores ('_')."
    )


def _as_text(value: Scalar) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _iter_texts(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        else:
            waiting.extend(_inside(item))
