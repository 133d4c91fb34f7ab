"""How commands show what a server told: a table for people, or JSON for programs."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from tidewire.clock import SystemClock

_LOOK_S = 0.2


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


@contextmanager
def working(label: str, total_bytes: int = 0, measure: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """The same for work that cannot say how far it is: a thread asks `measure`, or, without a total, counts seconds."""
    if not sys.stderr.isatty():
        yield
        return
    has_ended, is_whole = threading.Event(), threading.Event()

    def fill_bar() -> None:
        with click.progressbar(length=total_bytes, label=label, file=sys.stderr) as bar:
            while not has_ended.wait(_LOOK_S):
                bar.update(max(0, min(measure(), total_bytes - 1) - bar.pos))
            if is_whole.is_set():
                bar.update(total_bytes - bar.pos)

    show = fill_bar if total_bytes > 0 else lambda: _count_seconds(label, has_ended)
    showing = threading.Thread(target=show, daemon=True)
    showing.start()
    try:
        yield
        is_whole.set()
    finally:
        has_ended.set()
        showing.join()


def _count_seconds(label: str, is_done: threading.Event) -> None:
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    while not is_done.wait(_LOOK_S):
        click.echo(f"\r{label}  {clock.monotonic_s() - begun_s:.0f} s", err=True, nl=False)
    click.echo("\r" + " " * (len(label) + 12) + "\r", err=True, nl=False)


def iter_lines(file: TextIO, label: str) -> Iterator[str]:
    """The lines of a file, with a bar if its length is known."""
    try:
        found = os.fstat(file.fileno())
        size_bytes = found.st_size if stat.S_ISREG(found.st_mode) else 0
    except (OSError, ValueError):
        size_bytes = 0
    if not size_bytes:
        yield from file
        return
    with progress(size_bytes, label) as step:
        for line in file:
            step(len(line.encode()))
            yield line


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return printable(text)


def printable(text: str) -> str:
    """`text` on one line: what others wrote must not move the cursor of whoever reads it."""
    return "".join(c if c.isprintable() else "?" for c in text)
