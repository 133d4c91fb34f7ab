"""Parse field values of a command line: `NAME=VALUE`, or JSON objects as arguments, files or standard input.

Values of `NAME=VALUE` are sent as text and parsed by the server by the field's type; an empty one is null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

Fields = dict[str, Any]


def parse_fields(arguments: Sequence[str]) -> Fields:
    """Merge the fields of all arguments; later ones win. Raises click.UsageError."""
    fields: Fields = {}
    for argument in arguments:
        if _is_object(argument):
            fields |= parse_object(_read(argument))
        else:
            name, value = parse_pair(argument)
            fields[name] = value
    return fields


def parse_pair(argument: str) -> tuple[str, str | None]:
    """Parse one `NAME=VALUE`."""
    name, sign, value = argument.partition("=")
    if not sign or not name.strip():
        raise click.UsageError(f"{argument[:80]!r} is not NAME=VALUE, a JSON object or @FILE")
    return name.strip(), value or None


def parse_object(text: str) -> Fields:
    """Parse one JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError("the JSON must be an object with field names as keys")
    return value


def iter_objects(lines: Iterator[str]) -> Iterator[Fields]:
    """Parse one JSON object per line, skipping empty lines. Raises click.UsageError with the line number."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                fields = parse_object(line)
            except click.UsageError as error:
                raise click.UsageError(f"line {number} of the input: {error.message}") from error
            yield fields


def _is_object(argument: str) -> bool:
    return argument == "-" or argument.startswith("@") or argument.lstrip().startswith("{")


def _read(argument: str) -> str:
    if argument == "-":
        return sys.stdin.read()
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {argument[1:]}: {error}") from error
