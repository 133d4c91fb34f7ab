"""How commands show what a server told: a table for people, or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--json`, handed over as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="print JSON")(command)


def examples(*lines: str) -> str:
    """The end of a command's help: what to type, one line each and not wrapped."""
    word = "Example" if len(lines) == 1 else "Examples"
    return "\b\n" + "\n".join([f"{word}:", *(f"  {line}" for line in lines)])


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
    for number, line in enumerate(cells):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 else text)


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while something long goes on, and nothing where that is not a terminal.

    Hands over what to call with how much more is done.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield bar.update


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return printable(text)


def printable(text: str) -> str:
    """`text` on one line: what others wrote must not move the cursor of whoever reads it."""
    return "".join(c if c.isprintable() else "?" for c in text)
