"""Control tables: the records and objects that must be read again.

Both are append-only, and a row's state follows from positions. A record is open while the newest event that
made it dirty is newer than the newest read that updated it. An object is open while its newest request
(`pending`, without chunk bounds) is at a newer position than its last completion (`done`). So rows may be
written twice, or in any order. A manual request (`ASKED`) is also open until a completion later in time,
since the log need not have grown in between. What cannot be read is closed as `failed` until a newer event or
request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.lake.files import read_file
from tidewire.pipeline.lake.tables import Lake, OpenTable, arrow_schema, load_shared_table

DIRTY_TABLE = "control/dirty"
RESYNC_TABLE = "control/resync"
OPEN, DONE, PENDING, FAILED = "open", "done", "pending", "failed"
ASKED = frozenset({"snapshot", "audit", "expired"})
"""Causes of resyncs that no event calls for."""


@dataclass(frozen=True, slots=True)
class Dirty:
    """A record to read again, the newest event that calls for it, and the reason."""

    entity: str
    record_id: str
    replay_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resync:
    """An object to read again, since a position and for a cause; `asked_ms` is the time of the request."""

    entity: str
    cause: str
    since: int
    asked_ms: int = 0


_files: dict[str, dict[str, pa.Table]] = {}


def read_control(table: OpenTable) -> pa.Table:
    """Return all rows of a control table.

    Files never change, so each is read once: every commit calls this.
    """
    schema = arrow_schema(table)
    known = _files.get(table.delta.table_uri, {})
    found = {path: known.get(path) for path in table.delta.file_uris()}
    rows = {path: read_file(path, schema) if part is None else part for path, part in found.items()}
    _files[table.delta.table_uri] = rows
    return pa.concat_tables([schema.empty_table(), *rows.values()])


_dirty: dict[str, tuple[OpenTable, dict[str, dict[str, Dirty]]]] = {}


def open_dirty(lake: Lake) -> dict[str, dict[str, Dirty]]:
    """Return the open records of each object. Parsed once per version, since every batch calls this."""
    table = load_shared_table(lake, DIRTY_TABLE)
    if table is None:
        return {}
    known = _dirty.get(lake.path)
    if known is None or known[0] is not table:
        known = _dirty[lake.path] = (table, parse_dirty(read_control(table)))
    return known[1]


def parse_dirty(rows: pa.Table) -> dict[str, dict[str, Dirty]]:
    """Return the open records among rows of `control/dirty`."""
    asked: dict[tuple[str, str], Dirty] = {}
    read: dict[tuple[str, str], int] = {}
    names = ("entity", "record_id", "replay_id", "reason", "state")
    for entity, record_id, replay_id, reason, state in zip(
        *(rows[name].to_pylist() for name in names), strict=True
    ):
        key = (entity, record_id)
        if state == OPEN and (key not in asked or asked[key].replay_id < replay_id):
            asked[key] = Dirty(entity, record_id, replay_id, reason)
        elif state in (DONE, FAILED):
            read[key] = max(replay_id, read.get(key, -1))
    found: dict[str, dict[str, Dirty]] = {}
    for key, dirty in asked.items():
        if dirty.replay_id > read.get(key, -1):
            found.setdefault(dirty.entity, {})[dirty.record_id] = dirty
    return found


_resyncs: dict[str, tuple[OpenTable, tuple[dict[str, Resync], dict[str, Resync]]]] = {}


def open_resyncs(lake: Lake) -> dict[str, Resync]:
    """Return the newest open request of each object that must be read again as a whole."""
    return dict(_load_resyncs(lake)[0])


def failed_resyncs(lake: Lake) -> dict[str, Resync]:
    """Return the objects whose last resync failed and that have no newer request."""
    return dict(_load_resyncs(lake)[1])


def has_snapshot(lake: Lake) -> bool:
    """Return whether a snapshot of this lake was ever requested."""
    table = load_shared_table(lake, RESYNC_TABLE)
    return table is not None and pc.any(pc.equal(read_control(table)["cause"], "snapshot")).as_py() is True


def _load_resyncs(lake: Lake) -> tuple[dict[str, Resync], dict[str, Resync]]:
    table = load_shared_table(lake, RESYNC_TABLE)
    if table is None:
        return {}, {}
    known = _resyncs.get(lake.path)
    if known is None or known[0] is not table:
        known = _resyncs[lake.path] = (table, parse_resyncs(read_control(table)))
    return known[1]


def parse_resyncs(rows: pa.Table) -> tuple[dict[str, Resync], dict[str, Resync]]:
    """Return the open and the failed requests among rows of `control/resync`."""
    is_whole = pc.and_(pc.is_null(rows["chunk_lo"]), pc.is_null(rows["chunk_hi"]))
    asked: dict[str, list[Resync]] = {}
    closed: dict[str, list[tuple[Resync, str]]] = {}
    for row in rows.filter(is_whole).to_pylist():
        resync = Resync(row["entity"], row["cause"], row["since"], row["at_ms"] or 0)
        if row["state"] == PENDING:
            asked.setdefault(resync.entity, []).append(resync)
        else:
            closed.setdefault(resync.entity, []).append((resync, row["state"]))
    found: dict[str, Resync] = {}
    for entity, requests in asked.items():
        done_since = max((done.since for done, _ in closed.get(entity, ())), default=-1)
        done_ms = max((done.asked_ms for done, _ in closed.get(entity, ())), default=-1)
        still = [
            each
            for each in requests
            if each.since > done_since or (each.cause in ASKED and each.asked_ms > done_ms)
        ]
        if still:
            found[entity] = max(still, key=lambda each: (each.since, each.asked_ms))
    newest = {
        entity: max(ends, key=lambda end: (end[0].asked_ms, end[0].since, end[1] == FAILED))
        for entity, ends in closed.items()
    }
    failed = {
        entity: end for entity, (end, state) in newest.items() if state == FAILED and entity not in found
    }
    return found, failed


def render_control(requests: Iterable[Dirty | Resync], now_ms: int, state: str) -> list[dict[str, object]]:
    """Return rows of `control/dirty` or, for whole objects, of `control/resync`."""
    return [{**asdict(each), "state": state, "at_ms": now_ms} for each in requests]
