"""Purge one record: remove every trace of it from the lake.

Every file with rows of it is rewritten without them: events in the archive, history, reads, the base, dead
letters, control rows. An event about several records keeps the others. Files of older versions, which readers
of the past still open, are replaced in place. All other records stay the same, now and at every earlier
position.

The pipeline must not run meanwhile, which the lease guarantees. A purge that died is simply repeated. A
record that the server still has returns with its next event or read: delete it there first.
"""

from __future__ import annotations

import io
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from tidewire.errors import IdMalformed, ObjectUnknown
from tidewire.faults import crash_point
from tidewire.ids import try_normalise_id
from tidewire.names import is_api_name
from tidewire.pipeline.apply.dead_letters import DEAD_LETTER_TABLE
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.columns import RECORD_ID
from tidewire.pipeline.lake.control import DIRTY_TABLE
from tidewire.pipeline.lake.files import new_file_name, render_statistics, write_file
from tidewire.pipeline.lake.schemas import load_schemas
from tidewire.pipeline.lake.tables import BRONZE, Lake, OpenTable, append_files, try_open_table
from tidewire.pipeline.source.headers import MISFITS
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from tidewire.clock import Clock

_log = logging.getLogger(__name__)

WRITER = "purge"
_HEADER = "ChangeEventHeader"

Filter = Callable[[pa.Table], pa.Table]
"""Returns the rows of a file that may stay; the same table if that is all of them."""


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """How many rows each table lost, and how many files of older versions were replaced."""

    entity: str
    record_id: str
    rows: Mapping[str, int]
    old_files: int


def purge(lake: Lake, epoch: int, entity: str, record_id: str, clock: Clock) -> PurgeReport:
    """Remove a record from every table. Raises ObjectUnknown, IdMalformed, WriteConflict."""
    if not is_api_name(entity):
        raise ObjectUnknown(f"{entity[:80]!r} is not the name of an object", entity=entity[:80])
    wanted = try_normalise_id(record_id)
    if wanted is None:
        raise IdMalformed(f"{record_id[:40]!r} is not a record id")
    without = {
        "bronze": _event_filter(load_schemas(lake), wanted),
        f"history/{entity}": _row_filter("record_id", wanted),
        f"reads/{entity}": _row_filter("record_id", wanted),
        f"replica/{entity}": _row_filter(RECORD_ID, wanted),
        DEAD_LETTER_TABLE: _row_filter("record_id", wanted),
        DIRTY_TABLE: _row_filter("record_id", wanted),
    }
    rows: dict[str, int] = {}
    versions: dict[str, int] = {}
    old_files = 0
    with manifest.lock:
        named = manifest.newest(lake)
        for name, keep in without.items():
            table = try_open_table(lake, name)
            if table is None:
                continue
            lost = _rewrite(table, keep, epoch, clock.now_ms())
            if lost:
                rows[name] = lost
            version = table.delta.version()
            # Also a version that an earlier purge committed and died before naming.
            if (
                named is not None
                and named.table_versions.get(name, version) != version
                and (name != f"replica/{entity}" or _is_named(table, named.entities.get(entity)))
            ):
                versions[name] = version
            crash_point("pipeline.purge.after_table")
        if versions:
            manifest.append(lake, epoch, clock.now_ms(), cause=WRITER, versions=versions)
        crash_point("pipeline.purge.after_manifest")
        # Only now: before, the newest row of the manifest may name the old base.
        for name, keep in without.items():
            table = try_open_table(lake, name)
            old_files += _replace_old(table, keep) if table is not None else 0
    counters["pipeline.records_purged"] += 1
    _log.info("pipeline.record_purged", extra={"entity": entity, "rows": sum(rows.values())})
    return PurgeReport(entity, wanted, rows, old_files)


def _is_named(base: OpenTable, state: manifest.EntityState | None) -> bool:
    """Return whether the manifest names this version of a base.

    Maintenance that died may have left a newer one with incomplete properties; the next fold replaces it.
    """
    return state is not None and base.committed == state.base_position


def _row_filter(column: str, record_id: str) -> Filter:
    def keep(rows: pa.Table) -> pa.Table:
        if column not in rows.schema.names:
            return rows
        # Rows without an id (null) are about no record.
        is_other = pc.fill_null(pc.not_equal(rows[column], record_id), True)
        return rows if pc.all(is_other).as_py() is not False else rows.filter(is_other)

    return keep


def _event_filter(schemas: Mapping[str, str], record_id: str) -> Filter:
    def keep(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("record_ids")
        if place < 0:
            return rows
        ids: list[list[str] | None] = rows["record_ids"].to_pylist()
        for i in _find_unreadable(rows, record_id.encode()):
            ids[i] = [record_id]
        if not any(record_id in each for each in ids if each):
            return rows
        payloads = rows["payload"].to_pylist()
        stays = [True] * len(ids)
        for i, named in enumerate(ids):
            if not named or record_id not in named:
                continue
            left = [each for each in named if each != record_id]
            schema = schemas.get(rows["schema_id"][i].as_py(), "")
            payload = _try_without(payloads[i], schema, record_id) if left else None
            if payload is None:
                stays[i] = False
            else:
                ids[i], payloads[i] = left, payload
        columns = {name: rows[name] for name in rows.schema.names}
        columns["record_ids"] = pa.array(ids, BRONZE.field("record_ids").type)
        columns["payload"] = pa.array(payloads, BRONZE.field("payload").type)
        return pa.table(columns, schema=rows.schema).filter(pa.array(stays))

    return keep


def _find_unreadable(rows: pa.Table, record_id: bytes) -> list[int]:
    """Return the events with an unreadable header whose bytes contain the record's id: they must go too."""
    if rows["header_error"].null_count == rows.num_rows:
        return []
    pairs = zip(rows["header_error"].to_pylist(), rows["payload"].to_pylist(), strict=True)
    return [i for i, (error, payload) in enumerate(pairs) if error is not None and record_id in payload]


def _try_without(payload: bytes, schema_json: str, record_id: str) -> bytes | None:
    """Return the event without one of its records; None if it does not decode and must go as a whole."""
    try:
        schema = fastavro.parse_schema(orjson.loads(schema_json))
        event: Any = fastavro.schemaless_reader(io.BytesIO(payload), schema, None)
        event[_HEADER]["recordIds"] = [each for each in event[_HEADER]["recordIds"] if each != record_id]
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, event)
    except MISFITS:
        return None
    return written.getvalue()


def _rewrite(table: OpenTable, keep: Filter, epoch: int, now_ms: int) -> int:
    """Replace the files that contain the record's rows in one commit and return how many rows went."""
    actions: list[AddAction | RemoveAction] = []
    lost = 0
    for file in _iter_files(table):
        rows = _read(os.path.join(table.directory, file["path"]))
        kept = keep(rows)
        if kept is rows:
            continue
        lost += max(1, rows.num_rows - kept.num_rows)
        parts = file["partition"]
        actions.append(RemoveAction(file["path"], True, now_ms, file["size_bytes"], parts))
        if kept.num_rows:
            name = os.path.join(os.path.dirname(file["path"]), new_file_name())
            size = write_file(os.path.join(table.directory, name), kept)
            actions.append(AddAction(name, size, parts, now_ms, True, _statistics(file, kept)))
    if actions:
        append_files(table, actions, None, epoch, WRITER)
    return lost


def _iter_files(table: OpenTable) -> Iterator[dict[str, Any]]:
    """Yield path, size, partition and the columns with statistics of each file."""
    found = pa.table(table.delta.get_add_actions(flatten=True))
    measured = [name.removeprefix("min.") for name in found.schema.names if name.startswith("min.")]
    parts = [name for name in found.schema.names if name.startswith("partition.")]
    for row in found.to_pylist():
        yield {
            "path": row["path"],
            "size_bytes": row["size_bytes"],
            "partition": {name.removeprefix("partition."): str(row[name]) for name in parts},
            "measured": [name for name in measured if row[f"min.{name}"] is not None],
        }


def _statistics(file: Mapping[str, Any], rows: pa.Table) -> str:
    """Return statistics for the number and id columns for which the replaced file had them."""
    names = [
        name
        for name in file["measured"]
        if name in rows.schema.names
        and (pa.types.is_integer(rows.schema.field(name).type) or name == RECORD_ID)
    ]
    return render_statistics(rows, names)


def _replace_old(table: OpenTable, keep: Filter) -> int:
    """Replace files that only older versions name, in place, and return how many."""
    current = {os.path.join(table.directory, file["path"]) for file in _iter_files(table)}
    count = 0
    for path in _iter_parquet(table.directory):
        if path in current:
            continue
        rows = _read(path)
        kept = keep(rows)
        if kept is not rows:
            beside = f"{path}.{uuid.uuid4()}.tmp"
            write_file(beside, kept)
            os.replace(beside, path)
            count += 1
    return count


def _iter_parquet(directory: str) -> Iterator[str]:
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if name != "_delta_log"]
        for name in sorted(names):
            if name.endswith(".parquet"):
                yield os.path.join(place, name)


def _read(path: str) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False)
