"""The recycle bin: what each delete did, step by step, until it is undone, purged or expires.

A delete is known by its root, the record that somebody asked to delete. Its steps are the records that went
into the bin, the root first, and the lookups of living records that were cleared because of it. A record is
in the bin under one root at a time: its own, or that of the delete which took it along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tidewire.records.table import delete_row, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Reader, Transaction

BIN_RETENTION_MS = 15 * 86_400_000
_STEPS_AT_ONCE = 2000
_PAGE = 500  # steps that are read at a time


@dataclass(frozen=True, slots=True)
class BinStep:
    """A record that was deleted or, with `field`, one whose lookup to `target_id` was cleared."""

    record_id: str
    entity: str
    field: str = ""
    target_id: str = ""


def append_steps(tx: Transaction, root_id: str, steps: Iterable[BinStep], deleted_ms: int) -> None:
    """Store the steps of a delete."""
    rows = (
        (root_id, number, s.record_id, s.entity, s.field, s.target_id, deleted_ms)
        for number, s in enumerate(steps)
    )
    while some := list(islice(rows, _STEPS_AT_ONCE)):
        tx.execute_many(
            "INSERT INTO recycle_bin (root_id, step, record_id, entity, field, target_id, deleted_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            some,
        )


def iter_step_pages(reader: Reader | Transaction, record_id: str) -> Iterator[list[BinStep]]:
    """Yield the steps that an undelete of this record reverts, in pages, its own first.

    A root restores its whole delete, another record only itself and the lookups to it. Yields nothing if the
    record is not in the bin.
    """
    root_id = try_root(reader, record_id)
    if root_id is None:
        return
    yield from _iter_pages(reader, *_selection(root_id, record_id))


def _iter_pages(reader: Reader | Transaction, which: str, params: tuple[str, ...]) -> Iterator[list[BinStep]]:
    sql = (
        f"SELECT step, record_id, entity, field, target_id FROM recycle_bin WHERE {which} AND step > ?"  # noqa: S608  # constant
        " ORDER BY step LIMIT ?"
    )
    after = -1
    while rows := reader.execute(sql, (*params, after, _PAGE)):
        yield [BinStep(*step) for _, *step in rows]
        after = int(rows[-1][0])


def has_step(reader: Reader | Transaction, root_id: str, record_id: str) -> bool:
    """Return whether a delete took this record into the bin."""
    sql = "SELECT 1 FROM recycle_bin WHERE record_id = ? AND field = '' AND root_id = ?"
    return bool(reader.execute(sql, (record_id, root_id)))


def remove_steps(tx: Transaction, record_id: str) -> None:
    """Remove the steps that `iter_step_pages` returns for this record."""
    root_id = try_root(tx, record_id)
    if root_id is not None:
        which, params = _selection(root_id, record_id)
        tx.execute(f"DELETE FROM recycle_bin WHERE {which}", params)  # noqa: S608  # constant


def purge(
    tx: Transaction, catalog: Catalog, record_id: str, warn: Callable[[list[str]], None] = lambda ids: None
) -> int:
    """Purge a record in the bin and everything that was deleted because of it; return the number of rows.

    Calls `warn` with some ids at a time before these records are removed.
    """
    gone = 0
    for page in iter_step_pages(tx, record_id):
        steps = [(step.record_id, catalog.try_object(step.entity)) for step in page if not step.field]
        warn([gone_id for gone_id, _ in steps])
        for gone_id, obj in steps:
            if obj is not None:
                _note_purged(tx, obj, gone_id)
                delete_row(tx, obj, gone_id)
                gone += 1
    remove_steps(tx, record_id)
    return gone


def _note_purged(tx: Transaction, obj: ObjectType, record_id: str) -> None:
    row = try_read_row(tx, obj, record_id)
    deleted_ms = row.get("SystemModstamp") if row is not None else None
    if row is None or deleted_ms is None:  # an object that nobody keeps copies of
        return
    tx.execute(
        "INSERT INTO purged_records (record_id, key_prefix, owner_id, deleted_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (record_id) DO NOTHING",
        (record_id, obj.key_prefix, row.get("OwnerId") or "", deleted_ms),
    )


def read_purged(
    reader: Reader, obj: ObjectType, start_ms: int, end_ms: int, limit: int, owner_id: str | None
) -> list[tuple[str, int]]:
    """Return ids and times of deletes in a time range whose records were purged since.

    The range includes `start_ms` and not `end_ms`. With `owner_id`, only records of that user.
    """
    own, params = ("", ()) if owner_id is None else (" AND owner_id = ?", (owner_id,))
    rows = reader.execute(
        "SELECT record_id, deleted_ms FROM purged_records WHERE key_prefix = ? AND deleted_ms >= ?"  # noqa: S608
        f" AND deleted_ms < ?{own} ORDER BY deleted_ms, record_id LIMIT ?",
        (obj.key_prefix, start_ms, end_ms, *params, limit),
    )
    return [(str(record_id), int(deleted_ms)) for record_id, deleted_ms in rows]


def purge_expired(tx: Transaction, catalog: Catalog, now_ms: int, limit: int = 500) -> int:
    """Purge up to `limit` deletes older than the bin keeps them, oldest first; return the number of rows.

    No event is sent: the records were gone for every reader when they were deleted. Zero means that none is
    left.
    """
    tx.execute("DELETE FROM purged_records WHERE deleted_ms < ?", (now_ms - BIN_RETENTION_MS,))
    roots = tx.execute(
        "SELECT root_id, MIN(deleted_ms) AS since FROM recycle_bin WHERE deleted_ms < ?"
        " GROUP BY root_id ORDER BY since, root_id LIMIT ?",
        (now_ms - BIN_RETENTION_MS, limit),
    )
    return sum(_purge_root(tx, catalog, str(root_id)) for root_id, _ in roots)


def _purge_root(tx: Transaction, catalog: Catalog, root_id: str) -> int:
    gone = 0
    for page in _iter_pages(tx, "root_id = ? AND field = ''", (root_id,)):
        for step in page:
            obj = catalog.try_object(step.entity)
            if obj is not None:
                delete_row(tx, obj, step.record_id)
                gone += 1
    tx.execute("DELETE FROM recycle_bin WHERE root_id = ?", (root_id,))
    return gone


def try_root(reader: Reader | Transaction, record_id: str) -> str | None:
    """Return the root of the delete that a record in the bin belongs to."""
    rows = reader.execute("SELECT root_id FROM recycle_bin WHERE record_id = ? AND field = ''", (record_id,))
    return str(rows[0][0]) if rows else None


def _selection(root_id: str, record_id: str) -> tuple[str, tuple[str, ...]]:
    if root_id == record_id:
        return "root_id = ?", (root_id,)
    return "root_id = ? AND ((record_id = ? AND field = '') OR target_id = ?)", (
        root_id,
        record_id,
        record_id,
    )
