"""Records as a query answers them, made into rows: a parent's fields become dotted columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_CHILDREN = ("records", "totalSize", "done")


def plain_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without the attributes that a server adds, and with its children as lists."""
    return {name: _plain_value(value) for name, value in record.items() if name != "attributes"}


def _plain_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if all(name in value for name in _CHILDREN):
        return [plain_record(child) for child in value["records"]]
    return plain_record(value)


def flat_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A plain record with one value per column: `Owner.Name` for a parent's field, JSON text for children."""
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
    """The columns of rows seen so far, in the order of the first record that has them.

    A record without a parent has only the parent's name, as null: the columns of another record's parent replace it.
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        """The columns to show."""
        parents = {name[:i] for name in self._names for i, c in enumerate(name) if c == "."}
        return [name for name in self._names if name not in parents]

    def add(self, names: Iterable[str]) -> None:
        """Take the columns of one more row."""
        wanted = list(names)
        if all(name in self._names for name in wanted):
            return
        order = list(self._names)
        for name in wanted:
            if name not in self._names:
                order.insert(_place(order, name), name)
                self._names = dict.fromkeys(order)


def _place(order: list[str], name: str) -> int:
    """Behind the last column that shares the longest parent with a new one, or at the end."""
    parent = name
    while "." in parent:
        parent = parent.rpartition(".")[0]
        near = [i for i, known in enumerate(order) if known == parent or known.startswith(parent + ".")]
        if near:
            return near[-1] + 1
    return len(order)
