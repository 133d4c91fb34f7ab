"""Compaction: merge small files, checkpoint Delta logs, and remove old files and rows.

Merging files changes no row, so it needs no lock: its commit carries no epoch and no position, and does not
conflict with appends. A merged file gets the age of the newest file that it replaces, which retention goes
by.

The manifest's rows are the readable snapshot points. Those older than `readable_s` are dropped, except the
last one; then files that no remaining row needs are deleted. A reader that opened a table earlier has that
long to finish.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from tidewire.faults import crash_point
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import DIRTY_TABLE, parse_dirty
from tidewire.pipeline.lake.dirty import failed_records
from tidewire.pipeline.lake.files import (
    list_actions,
    new_file_name,
    read_file,
    read_rows,
    render_statistics,
    write_file,
)
from tidewire.pipeline.lake.tables import (
    MANIFEST,
    TABLES,
    Lake,
    OpenTable,
    arrow_schema,
    commit_files,
    open_table,
    try_open_table,
)
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from tidewire.clock import Clock

_log = logging.getLogger(__name__)

_HOUR_S = 3_600.0
_MANIFEST_SCALE = 128
"""Merged files of the manifest are this much smaller: reading one row reads a whole file."""
_ORDER = {"manifest": "number"}
"""The column that orders the files of a table; other tables have a replay id or no order."""
_BASE_CAUSES = pa.array(["maintain", "purge"])
"""Causes of manifest rows that name another base than the row before."""
_LOG_KEPT = "delta.logRetentionDuration"
_LOG_KEPT_S = 30 * 24 * _HOUR_S
"""How long Delta keeps the log of older versions, unless a table says otherwise."""
_MOMENTS = pa.schema([MANIFEST.field(name) for name in ("number", "cause", "entities", "table_versions")])


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """When files are merged and how long data is kept.

    Files are merged once a table has `small_files` of less than `small_bytes`. Snapshot points stay readable
    for `readable_s`; archived events and history are dropped after some days (None: never).
    """

    small_files: int = 50
    small_bytes: int = 32 << 20
    joined_bytes: int = 128 << 20
    readable_s: float = 7 * 24 * _HOUR_S
    keep_bronze_days: float | None = None
    keep_history_days: float | None = None


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What was done to one table."""

    table: str
    joined: int = 0
    dropped: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size_bytes: int
    at_ms: int
    first: int
    last: int


class Compactor:
    """Compacts the tables of a lake, one after the other."""

    def __init__(self, lake: Lake, epoch: int, clock: Clock, rules: CompactionRules | None = None) -> None:
        self._lake = lake
        self._epoch = epoch
        self._clock = clock
        self._rules = rules or CompactionRules()

    def names(self) -> list[str]:
        """Return every table whose files can be merged; only maintenance rewrites bases."""
        found = [*TABLES, *self._lake.names("history"), *self._lake.names("reads")]
        return [name for name in found if try_open_table(self._lake, name) is not None]

    def join(self, name: str, *, at_least: int | None = None) -> CompactionReport | None:
        """Merge the small files of a table if there are enough of them. Raises WriteConflict."""
        table = try_open_table(self._lake, name)
        if table is None:
            return None
        joined = 0
        least = self._rules.small_files if at_least is None else at_least
        scale = _MANIFEST_SCALE if name == manifest.TABLE else 1
        present = _list(table)
        if name == manifest.TABLE:
            present = present[:-1]  # which every batch reads: it must stay one row
        files = [file for file in present if file.size_bytes < self._rules.small_bytes // scale]
        if len(files) >= least:
            for group in self._group(files, present, self._rules.joined_bytes // scale):
                self._join(table, group)
                joined += len(group)
                table = open_table(self._lake, name)
        if not joined:
            return None
        table.delta.create_checkpoint()
        counters["pipeline.files_joined"] += joined
        _log.info("pipeline.files_joined", extra={"table": name, "files": joined})
        return CompactionReport(name, joined=joined)

    def drop_old(self) -> list[CompactionReport]:
        """Drop snapshot points, archived events and history past their retention. Raises WriteConflict."""
        now_ms = self._clock.now_ms()
        reports = [self._drop_old_points(now_ms - int(self._rules.readable_s * 1000))]
        wanted = self._oldest_bases()
        if self._rules.keep_bronze_days is not None:
            before_ms = now_ms - int(self._rules.keep_bronze_days * 24 * _HOUR_S * 1000)
            applied = try_open_table(self._lake, manifest.TABLE)
            limit = applied.floor if applied is not None else -1
            reports.append(self._drop_files("bronze", before_ms, limit))
        if self._rules.keep_history_days is not None:
            before_ms = now_ms - int(self._rules.keep_history_days * 24 * _HOUR_S * 1000)
            for group in ("history", "reads"):
                for name in self._lake.names(group):
                    limit = wanted.get(name.partition("/")[2], -1) - (group == "reads")
                    reports.append(self._drop_files(name, before_ms, limit))
        return [report for report in reports if report is not None]

    def delete_unnamed(self) -> list[CompactionReport]:
        """Delete files that no readable snapshot point needs, and those that no commit names."""
        hours = max(1, int(self._rules.readable_s // _HOUR_S) + 1)
        self._keep_logs(hours)
        kept = self._named_versions()
        reports: list[CompactionReport] = []
        for name in [*self.names(), *self._lake.names("replica")]:
            table = try_open_table(self._lake, name)
            if table is None:
                continue
            gone = table.delta.vacuum(
                hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                keep_versions=sorted(v for v in kept.get(name, ()) if v <= table.delta.version()) or None,
            )
            if gone:
                reports.append(CompactionReport(name, deleted=len(gone)))
        return reports

    def _keep_logs(self, hours: int) -> None:
        """Make Delta keep the versions of bases that snapshot points name."""
        wanted = f"interval {hours // 24 + 1} days"
        for name in self._lake.names("replica") if hours * _HOUR_S > _LOG_KEPT_S else ():
            table = try_open_table(self._lake, name)
            if table is not None and table.delta.metadata().configuration.get(_LOG_KEPT) != wanted:
                table.delta.alter.set_table_properties({_LOG_KEPT: wanted})

    def forget_done(self) -> CompactionReport | None:
        """Drop the rows of dirty records that were read over an hour ago. Failed ones stay."""
        with manifest.lock:
            table = try_open_table(self._lake, DIRTY_TABLE)
            if table is None:
                return None
            rows = read_rows(table)
            still_open = {(e, i) for e, found in parse_dirty(rows).items() for i in found}
            still_open |= {(e, i) for e, found in failed_records(self._lake).items() for i in found}
            limit_ms = self._clock.now_ms() - int(_HOUR_S * 1000)
            keys = zip(rows["entity"].to_pylist(), rows["record_id"].to_pylist(), strict=True)
            newest: dict[tuple[str, str], int] = {}
            listed = list(zip(keys, rows["at_ms"].to_pylist(), strict=True))
            for key, at_ms in listed:
                newest[key] = max(at_ms, newest.get(key, at_ms))
            keep = [key in still_open or newest[key] >= limit_ms for key, _ in listed]
            if all(keep):
                return None
            self._rewrite(table, _list(table), rows.filter(pa.array(keep, pa.bool_())))
        return CompactionReport(DIRTY_TABLE, dropped=keep.count(False))

    def _group(self, files: list[_File], present: list[_File], limit: int) -> Iterator[list[_File]]:
        """Yield runs of adjacent small files, each about as large as a merged file may be."""
        small = {file.path for file in files}
        group: list[_File] = []
        size = 0
        for file in present:
            if file.path in small and size + file.size_bytes <= limit:
                group.append(file)
                size += file.size_bytes
                continue
            if len(group) > 1:
                yield group
            group, size = ([file], file.size_bytes) if file.path in small else ([], 0)
        if len(group) > 1:
            yield group

    def _join(self, table: OpenTable, files: list[_File]) -> None:
        schema = arrow_schema(table)
        paths = [os.path.join(table.directory, file.path) for file in files]
        rows = pa.concat_tables([read_file(path, schema) for path in paths])
        order = _ORDER.get(table.name, "replay_id")
        self._rewrite(table, files, rows.sort_by(order) if order in schema.names else rows)

    def _rewrite(self, table: OpenTable, files: list[_File], rows: pa.Table) -> None:
        """Replace files by rows in one commit. Raises WriteConflict."""
        adds: list[AddAction] = []
        if rows.num_rows:
            name = new_file_name()
            size_bytes = write_file(os.path.join(table.directory, name), rows)
            at_ms = max((file.at_ms for file in files), default=0)
            numbers = [field.name for field in rows.schema if pa.types.is_integer(field.type)]
            adds.append(AddAction(name, size_bytes, {}, at_ms, False, render_statistics(rows, numbers)))
        crash_point("pipeline.compact.after_files")
        now_ms = self._clock.now_ms()
        removes = [RemoveAction(file.path, False, now_ms, file.size_bytes, {}) for file in files]
        self._commit(table, [*adds, *removes])

    def _commit(self, table: OpenTable, actions: list[AddAction | RemoveAction]) -> None:
        app_id = f"{table.app_id}/compact"
        count = (table.delta.transaction_version(app_id) or 0) + 1
        commit_files(table, actions, CommitProperties(app_transactions=[Transaction(app_id, count)]))

    def _drop_old_points(self, before_ms: int) -> CompactionReport | None:
        """Drop manifest files with only rows from before a time.

        Keeps the newest such file: its last row is the state of the lake at that time.
        """
        table = try_open_table(self._lake, manifest.TABLE)
        if table is None:
            return None
        last_ms = dict(list_actions(table, "path", "max.applied_ms"))
        return self._drop(table, [file for file in _list(table) if last_ms[file.path] < before_ms][:-1])

    def _drop_files(self, name: str, before_ms: int, limit: int) -> CompactionReport | None:
        """Drop the files that are older than a time and wholly at or below a position."""
        table = try_open_table(self._lake, name)
        if table is None:
            return None
        old = [file for file in _list(table) if file.at_ms < before_ms and file.last <= limit]
        return self._drop(table, old)

    def _drop(self, table: OpenTable, files: list[_File]) -> CompactionReport | None:
        if not files:
            return None
        now_ms = self._clock.now_ms()
        self._commit(table, [RemoveAction(file.path, True, now_ms, file.size_bytes, {}) for file in files])
        return CompactionReport(table.name, dropped=len(files))

    def _oldest_bases(self) -> dict[str, int]:
        """Return the lowest base position of each object in a readable snapshot point.

        History above it is needed. An object that the oldest snapshot point lacks had no base at first.
        """
        found: dict[str, int] = {}
        for i, row in enumerate(self._base_rows()):
            for entity, state in json.loads(str(row["entities"])).items():
                position = state["base_position"]
                found[entity] = min(found.get(entity, manifest.NO_POSITION if i else position), position)
        return found

    def _named_versions(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for row in self._base_rows():
            for name, version in json.loads(str(row["table_versions"])).items():
                if name.startswith("replica/"):
                    found.setdefault(name, set()).add(version)
        return found

    def _base_rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of the manifest that name a base for the first time, and the oldest row."""
        table = try_open_table(self._lake, manifest.TABLE)
        if table is None:
            return
        oldest: int | None = None
        for file in _list(table):
            rows = read_file(os.path.join(table.directory, file.path), _MOMENTS).sort_by("number")
            if oldest is None:
                oldest = rows["number"][0].as_py()
            wanted = pc.or_(pc.is_in(rows["cause"], _BASE_CAUSES), pc.equal(rows["number"], oldest))
            yield from rows.filter(wanted).to_pylist()


def _list(table: OpenTable) -> list[_File]:
    """Return the files of a table in the order of their rows, or of their creation if rows have no order."""
    actions = pa.table(table.delta.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    order = _ORDER.get(table.name, "replay_id")
    names = ["path", "size_bytes", "modification_time", f"min.{order}", f"max.{order}"]
    names = [name if name in actions.schema.names else "modification_time" for name in names]
    columns = (actions[name].to_pylist() for name in names)
    found = [
        _File(path, size, at, low or 0, high or 0) for path, size, at, low, high in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda file: (file.first, file.path))
