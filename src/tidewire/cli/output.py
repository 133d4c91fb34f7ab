"""How commands show what a server told: a table for people, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--json`, handed over as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="print JSON")(command)


def show(value: Any, *, as_json: bool, text: str) -> None:
    """Print `value` as JSON, or else `text`."""
    click.echo(json.dumps(value, indent=2) if as_json else text)


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print rows under their columns' names."""
    if as_json:
        click.echo(json.dumps(list(rows), indent=2))
        return
    cells = [list(columns)] + [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return printable(text)


def printable(text: str) -> str:
    """`text` on one line: what others wrote must not move the cursor of whoever reads it."""
    return "".join(c if c.isprintable() else "?" for c in text)
