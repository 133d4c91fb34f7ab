"""Thin rows: records that a delete takes along, held by what decides over others and read again for the rest.

A cascade may take a hundred thousand records. Nobody looks at most of their fields, and deleting a record
changes few of them; so those, the lookups and what activities count by are kept, with equal values held once,
and any other field is read from the record where it lies in the recycle bin. Before a record leaves that too,
its thin row is made whole.
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
    """The thin rows of one object in one transaction."""

    def __init__(self, tx: Transaction, obj: ObjectType) -> None:
        self._tx = tx
        self.obj = obj
        wanted = {"Id", *_CHANGED_BY_DELETE, *READ_AFTER_DELETE, *(field.name for field in lookups(obj))}
        self._names = tuple(field.name for field in obj.stored_fields if field.name in wanted)
        self.places = {name: place for place, name in enumerate(self._names)}
        self._held: dict[Value, Value] = {}
        self._last: dict[str, Value] = {}

    def iter_referring(self, field: Field, ids: list[str], most: int | None = None) -> Iterator[PartialRow]:
        """The living records whose lookup holds one of these ids, oldest first for each part of the ids, and
        at most `most` for each part.
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
        """The living records with these few ids."""
        rows = read_columns(self._tx, self.obj, self._names, self.obj.by_name["id"], ids)
        return {str(row[self.places["Id"]]): PartialRow(self, row) for row in rows}

    def read(self, record_id: Value) -> Mapping[str, Value]:
        """The whole record as it is now; the last one is kept, for fields are asked for one after the other.

        Raises InternalError for one that is gone for good: whoever purges has to make its thin row whole
        before.
        """
        if self._last.get("Id") != record_id:
            found = try_read_row(self._tx, self.obj, str(record_id))
            if found is None:
                raise InternalError("a thin row outlived its record")
            self._last = found
        return self._last


class PartialRow(Mapping[str, Value]):
    """A record as it was when it was found. To be used inside its transaction."""

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
