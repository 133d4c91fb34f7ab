"""A delete of more records than fit in memory: planned in the database, carried out in pages.

The plan is in two temporary tables: the records that go, in the order in which a smaller delete would find
them, and the lookups that are cleared in the records that stay. As with any delete, everything is found and
checked before the first row is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tidewire.errors import InternalError
from tidewire.events import Value
from tidewire.records.cascade import RowEdit, cascades, references_to, restricted
from tidewire.records.partial_rows import PartialRow, PartialRows
from tidewire.records.table import read_rows, try_read_row
from tidewire.records.touched import PAGE
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.storage.store import Transaction

# Temporary tables are the connection's own, and the writer has only one: they are made once and emptied after each use.
_TABLES = (
    "CREATE TEMP TABLE IF NOT EXISTS delete_gone (number INTEGER NOT NULL PRIMARY KEY, record_id TEXT NOT NULL,"
    " entity TEXT NOT NULL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS delete_gone_record ON delete_gone (record_id)",
    "CREATE TEMP TABLE IF NOT EXISTS delete_cleared (number INTEGER NOT NULL PRIMARY KEY, record_id TEXT NOT NULL,"
    " entity TEXT NOT NULL, field TEXT NOT NULL, target_id TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS delete_cleared_record ON delete_cleared (record_id)",
)
# The casts tell PostgreSQL the type of a parameter in a select list, which it cannot infer.
_STORE_GONE = (
    "INSERT INTO recycle_bin (root_id, step, record_id, entity, field, target_id, deleted_ms)"
    " SELECT CAST(? AS TEXT), number - 1, record_id, entity, '', '', CAST(? AS INTEGER) FROM delete_gone"
)
# The lookups of one record stand next to each other, at the place of the first: an undelete reads the steps in order
# and must be able to set all lookups of a record in one write.
_STORE_CLEARED = (
    "INSERT INTO recycle_bin (root_id, step, record_id, entity, field, target_id, deleted_ms)"
    " SELECT CAST(? AS TEXT), CAST(? AS INTEGER) + ROW_NUMBER() OVER (ORDER BY c.first_number, c.number),"
    " c.record_id, c.entity, c.field, c.target_id, CAST(? AS INTEGER) FROM"
    " (SELECT number, record_id, entity, field, target_id,"
    " MIN(number) OVER (PARTITION BY record_id) AS first_number FROM delete_cleared) AS c"
)
_Page = tuple[ObjectType, dict[str, PartialRow]]


class LargeDelete:
    """A large delete of one living record. Use it inside its transaction, and close it."""

    def __init__(self, tx: Transaction, catalog: Catalog, obj: ObjectType, root_id: str) -> None:
        self._tx = tx
        self._catalog = catalog
        self._root_id = root_id
        self._gone = 0
        self._cleared = 0
        for sql in _TABLES:
            tx.execute(sql)
        self.close()  # a delete that failed half way may have left its plan behind
        tx.execute(
            "INSERT INTO delete_gone (number, record_id, entity) VALUES (1, ?, ?)", (root_id, obj.name)
        )

    def plan(self) -> None:
        """Find the records that go along and the lookups to clear. Raises DeleteRestricted."""
        # Level by level: the children of records start..end, which were found last. A record is found once, so that a
        # cycle of cascading lookups ends.
        start, self._gone = 1, 1
        while start <= self._gone:
            end = self._gone
            for parent in self._entities(start, end):
                for child, field in references_to(self._catalog, parent):
                    if cascades(field):
                        self._add_gone(child, field, parent, start, end)
            start = end + 1
        # Only now: a lookup that restricts does not count if its record goes along by another way.
        for parent in self._entities(1, self._gone):
            for child, field in references_to(self._catalog, parent):
                if not cascades(field):
                    self._add_cleared(child, field, parent)

    def iter_gone(self) -> Iterator[_Page]:
        """Yield the records that go, the root first, in pages of one object, as they are before the delete."""
        rows: dict[str, PartialRows] = {}
        for entity, ids in self._iter_pages():
            obj = self._catalog.object(entity)
            if entity not in rows:
                rows[entity] = PartialRows(self._tx, obj)
            found = rows[entity].read_page(ids)
            yield obj, {record_id: found[record_id] for record_id in ids if record_id in found}

    def iter_gone_of(self, entities: tuple[str, ...]) -> Iterator[list[RowEdit]]:
        """Yield the deleted records of some entities, in pages, as they are in the recycle bin."""
        for entity in entities:
            if self._tx.execute("SELECT 1 FROM delete_gone WHERE entity = ? LIMIT 1", (entity,)):
                obj = self._catalog.object(entity)
                for found, ids in self._iter_pages():
                    if found == entity:
                        rows = read_rows(self._tx, obj, "Id", ids, with_deleted=True)
                        yield [RowEdit(obj, row, {}) for row in rows]

    def append_steps(self, deleted_ms: int) -> None:
        """Store the delete in the recycle bin."""
        # Two statements for any number of records: the plan never passes through this process.
        self._tx.execute(_STORE_GONE, (self._root_id, deleted_ms))
        self._tx.execute(_STORE_CLEARED, (self._root_id, self._gone - 1, deleted_ms))

    def iter_cleared(self) -> Iterator[RowEdit]:
        """Yield the edits that clear lookups of the records that stay. Call after `append_steps`."""
        # Read from the bin rather than from the plan, because there the lookups of a record are together already.
        after = self._gone - 1
        sql = (
            "SELECT step, record_id, entity, field FROM recycle_bin WHERE root_id = ? AND step > ? AND step <= ?"
            " ORDER BY step"
        )
        last = after + self._cleared
        carried: list[tuple[int, str, str, str]] = []  # steps of a record that a page may have cut off
        while after < last or carried:
            rows = carried + self._tx.execute(sql, (self._root_id, after, min(after + PAGE, last)))
            after = min(after + PAGE, last)
            # The last record of a page may have more lookups on the next one; one write must clear them all.
            carried = [] if after == last else [row for row in rows if row[1] == rows[-1][1]]
            for record_id, steps in groupby(rows[: len(rows) - len(carried)], lambda row: row[1]):
                fields = list(steps)
                obj = self._catalog.object(fields[0][2])
                row = try_read_row(self._tx, obj, record_id)
                if row is None:
                    raise InternalError("a record vanished while its lookups were cleared")
                cleared: dict[str, Value] = dict.fromkeys(field for *_, field in fields)
                yield RowEdit(obj, row, cleared)

    def close(self) -> None:
        """Empty the plan."""
        self._tx.execute("DELETE FROM delete_gone")
        self._tx.execute("DELETE FROM delete_cleared")

    def _entities(self, start: int, end: int) -> list[str]:
        # In the order of discovery, so that the plan equals that of a delete in memory.
        rows = self._tx.execute(
            "SELECT entity, MIN(number) AS first_number FROM delete_gone WHERE number >= ? AND number <= ?"
            " GROUP BY entity ORDER BY first_number",
            (start, end),
        )
        return [str(entity) for entity, _ in rows]

    def _iter_pages(self) -> Iterator[tuple[str, list[str]]]:
        """Yield entities and up to a page of their ids, in the order of the plan."""
        # By number and not by OFFSET, which would count through all earlier rows for each page.
        sql = "SELECT entity, record_id FROM delete_gone WHERE number >= ? AND number < ? ORDER BY number"
        for start in range(1, self._gone + 1, PAGE):
            rows = self._tx.execute(sql, (start, start + PAGE))
            for entity, found in groupby(rows, lambda row: str(row[0])):
                yield entity, [str(record_id) for _, record_id in found]

    def _add_gone(self, child: ObjectType, field: Field, parent: str, start: int, end: int) -> None:
        # One statement per lookup, whatever the number of records; the oldest id first, as a smaller delete reads them.
        self._tx.execute(
            "INSERT INTO delete_gone (number, record_id, entity)"  # noqa: S608  # names from the catalog
            " SELECT CAST(? AS INTEGER) + ROW_NUMBER() OVER (ORDER BY c.id), c.id, CAST(? AS TEXT)"
            f" FROM {child.table} AS c WHERE c.{field.column} IN"
            " (SELECT record_id FROM delete_gone WHERE entity = ? AND number >= ? AND number <= ?)"
            f"{_staying(child)}",
            (self._gone, child.name, parent, start, end),
        )
        self._gone = self._last_number("delete_gone")

    def _add_cleared(self, child: ObjectType, field: Field, parent: str) -> None:
        # Names come from the catalog.
        staying = (
            f" FROM {child.table} AS c WHERE c.{field.column} IN"  # noqa: S608
            f" (SELECT record_id FROM delete_gone WHERE entity = ?){_staying(child)}"
        )
        if field.required or field.delete_constraint == "Restrict":
            # One record is enough for the error, which names it.
            rows = self._tx.execute(
                f"SELECT c.id, c.{field.column}{staying} ORDER BY c.id LIMIT 1", (parent,)
            )
            for child_id, needed_id in rows:
                obj = self._catalog.object(parent)
                raise restricted(RowEdit(obj, self._row(obj, needed_id), {}), child, child_id)
            return
        self._tx.execute(
            "INSERT INTO delete_cleared (number, record_id, entity, field, target_id)"
            " SELECT CAST(? AS INTEGER) + ROW_NUMBER() OVER (ORDER BY c.id), c.id, CAST(? AS TEXT),"
            f" CAST(? AS TEXT), c.{field.column}{staying}",
            (self._cleared, child.name, field.name, parent),
        )
        self._cleared = self._last_number("delete_cleared")

    def _last_number(self, table: str) -> int:
        ((last,),) = self._tx.execute(f"SELECT COALESCE(MAX(number), 0) FROM {table}")  # noqa: S608  # ours
        return int(last)

    def _row(self, obj: ObjectType, record_id: str) -> dict[str, Value]:
        row = try_read_row(self._tx, obj, record_id)
        if row is None:
            raise InternalError("a record vanished while its delete was planned")
        return row


def _staying(child: ObjectType) -> str:
    """Return the SQL condition for living records that are not in the plan."""
    deleted = child.try_field("IsDeleted")
    alive = f" AND c.{deleted.column} = 0" if deleted else ""
    return f"{alive} AND NOT EXISTS (SELECT 1 FROM delete_gone AS g WHERE g.record_id = c.id)"  # noqa: S608
