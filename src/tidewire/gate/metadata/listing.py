"""Components in lists with their creators and dates. Types have none stored; they show those of the org."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.events import Value
from tidewire.gate.metadata.registry import Entry, Source
from tidewire.records.table import read_all_rows, read_rows


@dataclass(frozen=True, slots=True)
class Listed:
    """A component in a list: file, id, and creator and last modifier, each as id and name."""

    full_name: str
    kind: str
    path: str
    component_id: str
    created_ms: int
    created_by: tuple[str, str]
    modified_ms: int
    modified_by: tuple[str, str]


class Creators:
    """Looks up the creators of components, each user once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._names: dict[str, str] = {}
        rows = read_all_rows(source.reader, source.catalog.object("Organization"))
        self._org: Mapping[str, Value] = next(iter(rows), {})

    def listed(self, entry: Entry, kind: str, path: str) -> Listed:
        """Return the entry with its creators."""
        row = entry.row or self._org
        return Listed(
            entry.full_name,
            kind,
            path,
            entry.component_id,
            _moment(row.get("CreatedDate")),
            self._user(row.get("CreatedById")),
            _moment(row.get("LastModifiedDate")),
            self._user(row.get("LastModifiedById")),
        )

    def _user(self, user_id: Value) -> tuple[str, str]:
        known = str(user_id or "")
        if known and known not in self._names:
            rows = read_rows(self._source.reader, self._source.catalog.object("User"), "Id", [known])
            self._names[known] = str(rows[0]["Name"]) if rows else ""
        return known, self._names.get(known, "")


def _moment(value: Value) -> int:
    return value if isinstance(value, int) else 0
