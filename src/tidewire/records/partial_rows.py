"""Partial rows: records of a cascading delete, held with the few fields that decide over other records.

A cascade may take a hundred thousand records. Few of their fields are ever read or changed by the delete.
Those, the lookups and the fields that activities count by are kept, with equal values held once; any other
field is read from the record in the recycle bin. Before a record is purged, its partial row is completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidewire.errors import InternalError
from tidewire.events import Value
from tidewire.records.checks import lookups
from tidewire.records.table import read_columns, try_read_row
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.activities import READ_AFTER_DELETE
from tidewire.storage.store import Transaction

_CHUNK = 500  # ids in one statement
_CHANGED_BY_DELETE = ("IsDeleted", "SystemModstamp", "LastModifiedDate", "LastModifiedById")


class PartialRows:
    """The partial rows of one object in one transaction."""

    def __init__(self, tx: Transaction, obj: ObjectType) -> None:
        self._tx = tx
        self.obj = obj
        wanted = {"Id", *_CHANGED_BY_DELETE, *READ_AFTER_DELETE, *(field.name for field in lookups(obj))}
        self._names = tuple(field.name for field in obj.stored_fields if field.name in wanted)
        self.places = {name: place for place, name in enumerate(self._names)}
        self._held: dict[Value, Value] = {}
        self._last: dict[str, Value] = {}

    def iter_referring(self, field: Field, ids: list[str], most: int | None = None) -> Iterator[PartialRow]:
        """Yield the living records whose lookup holds one of these ids.

        The ids are read in chunks, and at most `most` records for each chunk.
        """
        held = self._held
        for start in range(0, len(ids), _CHUNK):
            some = ids[start : start + _CHUNK]
            for row in read_columns(self._tx, self.obj, self._names, field, some, most):
                # A truth equals a number, and must not take its place.
                yield PartialRow(
                    self, tuple([v if v is True or v is False else held.setdefault(v, v) for v in row])
                )

    def read_page(self, ids: list[str]) -> dict[str, PartialRow]:
        """Return the living records with these few ids."""
        rows = read_columns(self._tx, self.obj, self._names, self.obj.by_name["id"], ids)
        return {str(row[self.places["Id"]]): PartialRow(self, row) for row in rows}

    def read(self, record_id: Value) -> Mapping[str, Value]:
        """Return the whole record as it is now; the last one is cached, because fields are read one by one.

        Raises InternalError for a purged record: its partial row must be completed before.
        """
        if self._last.get("Id") != record_id:
            found = try_read_row(self._tx, self.obj, str(record_id))
            if found is None:
                raise InternalError("a partial row was read after its record was purged")
            self._last = found
        return self._last


class PartialRow(Mapping[str, Value]):
    """A record as it was when it was found. Use it inside its transaction."""

    __slots__ = ("rows", "values_held")

    def __init__(self, rows: PartialRows, values: tuple[Value, ...]) -> None:
        self.rows = rows
        self.values_held = values

    def __getitem__(self, name: str) -> Value:
        place = self.rows.places.get(name)
        return self.values_held[place] if place is not None else self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in self.rows.obj.stored_fields)

    def __len__(self) -> int:
        return len(tuple(self.rows.obj.stored_fields))

    def _read(self) -> Mapping[str, Value]:
        return self.rows.read(self.values_held[self.rows.places["Id"]])
