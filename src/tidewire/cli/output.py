"""Output of commands: tables for people, JSON for programs, and progress bars on a terminal."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from tidewire.clock import SystemClock

_REFRESH_S = 0.2
_CHILDREN = ("records", "totalSize", "done")


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="print JSON")(command)


def examples(*lines: str) -> str:
    """Format the examples at the end of a command's help, one unwrapped line each."""
    word = "Example" if len(lines) == 1 else "Examples"
    return "\b\n" + "\n".join([f"{word}:", *(f"  {line}" for line in lines)])


def show(value: Any, *, as_json: bool, text: str) -> None:
    """Print `value` as JSON, or else `text`."""
    click.echo(json.dumps(value, indent=2) if as_json else text)


def show_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    headings: Mapping[str, str] | None = None,
) -> None:
    """Print rows under their column names, or under `headings` where a column has one."""
    if as_json:
        click.echo(json.dumps(list(rows), indent=2))
        return
    head = [(headings or {}).get(name, name) for name in columns]
    cells = [head] + [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for number, line in enumerate(cells):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 else text)


def show_fields(
    value: Mapping[str, Any], *, as_json: bool, headings: Mapping[str, str] | None = None
) -> None:
    """Print one object: a table with a line for each field, or JSON."""
    if as_json:
        show(value, as_json=True, text="")
        return
    rows = [{"field": (headings or {}).get(name, name), "value": each} for name, each in value.items()]
    show_table(rows, ("field", "value"), as_json=False)


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal. Yields a function that adds to the amount done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield bar.update


@contextmanager
def working(label: str, total_bytes: int = 0, measure: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Show progress of a blocking call: a thread polls `measure`, or counts seconds if there is no total."""
    if not sys.stderr.isatty():
        yield
        return
    has_ended, is_complete = threading.Event(), threading.Event()

    def fill_bar() -> None:
        with click.progressbar(length=total_bytes, label=label, file=sys.stderr) as bar:
            while not has_ended.wait(_REFRESH_S):
                bar.update(max(0, min(measure(), total_bytes - 1) - bar.pos))
            if is_complete.is_set():
                bar.update(total_bytes - bar.pos)

    target = fill_bar if total_bytes > 0 else lambda: _count_seconds(label, has_ended)
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        yield
        is_complete.set()
    finally:
        has_ended.set()
        thread.join()


def _count_seconds(label: str, has_ended: threading.Event) -> None:
    clock = SystemClock()
    started_s = clock.monotonic_s()
    while not has_ended.wait(_REFRESH_S):
        click.echo(f"\r{label}  {clock.monotonic_s() - started_s:.0f} s", err=True, nl=False)
    click.echo("\r" + " " * (len(label) + 12) + "\r", err=True, nl=False)


def iter_lines(file: TextIO, label: str) -> Iterator[str]:
    """Iterate over the lines of a file, with a progress bar if its size is known."""
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
    """Replace control characters, so that text of a server cannot move the terminal's cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)


def plain_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the attributes of a record of the REST API, and make its child records lists."""
    return {name: _plain_value(value) for name, value in record.items() if name != "attributes"}


def _plain_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if all(name in value for name in _CHILDREN):
        return [plain_record(child) for child in value["records"]]
    return plain_record(value)


def flat_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten a plain record: `Owner.Name` for a parent's field, JSON text for children."""
    return dict(_iter_flat(record, ""))


def _iter_flat(record: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _iter_flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, json.dumps(value, ensure_ascii=False)
        else:
            yield prefix + name, value


class Columns:
    """The columns of all rows seen, in order of first appearance.

    A record without a parent has only the parent's name, as null; the dotted columns of other records replace it.
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        """The columns to show."""
        parents = {name[:i] for name in self._names for i, c in enumerate(name) if c == "."}
        return [name for name in self._names if name not in parents]

    def add(self, names: Iterable[str]) -> None:
        """Add the columns of another row."""
        wanted = list(names)
        if all(name in self._names for name in wanted):
            return
        order = list(self._names)
        for name in wanted:
            if name not in self._names:
                order.insert(_insert_index(order, name), name)
                self._names = dict.fromkeys(order)


def _insert_index(order: list[str], name: str) -> int:
    """Return the index after the last column with the same closest parent, or the end."""
    parent = name
    while "." in parent:
        parent = parent.rpartition(".")[0]
        near = [i for i, known in enumerate(order) if known == parent or known.startswith(parent + ".")]
        if near:
            return near[-1] + 1
    return len(order)
