"""Fields as they are given on a command line: `NAME=VALUE`, or JSON objects, as arguments, from files or from stdin.

Values of `NAME=VALUE` go to the server as text, which it reads by the field's type; an empty one is null.
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
    """The fields that all arguments together give; a later one wins. Raises click.UsageError."""
    fields: Fields = {}
    for argument in arguments:
        if _is_whole(argument):
            fields |= parse_object(_read(argument))
        else:
            name, value = parse_pair(argument)
            fields[name] = value
    return fields


def parse_pair(argument: str) -> tuple[str, str | None]:
    """One `NAME=VALUE`."""
    name, sign, value = argument.partition("=")
    if not sign or not name.strip():
        raise click.UsageError(f"{argument[:80]!r} is neither NAME=VALUE nor a JSON object nor @FILE")
    return name.strip(), value or None


def parse_object(text: str) -> Fields:
    """One JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError("the JSON must be an object of fields by name")
    return value


def iter_objects(lines: Iterator[str]) -> Iterator[Fields]:
    """One JSON object of each line that is not empty. Raises click.UsageError with the number of a bad line."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                fields = parse_object(line)
            except click.UsageError as error:
                raise click.UsageError(f"line {number} of the input: {error.message}") from error
            yield fields


def _is_whole(argument: str) -> bool:
    return argument == "-" or argument.startswith("@") or argument.lstrip().startswith("{")


def _read(argument: str) -> str:
    if argument == "-":
        return sys.stdin.read()
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{argument[1:]} cannot be read: {error}") from error
