"""Maintenance of replicas: fold history and reads into the base of each object, bucket by bucket.

Correctness never depends on when this runs: readers fold what the base lacks, and maintenance only keeps that
small. One step folds one object up to the manifest's position. Tasks write the buckets that changes touch;
then the driver commits, in this order: records whose rows turn out to be incomplete (control), the new files
in place of the old (one commit), the table's properties for other engines, and the manifest row that names
the new base. A crash in between leaves files that no commit names, or a base that no manifest row names; the
next step folds again from the base that is named.

Reads are committed by the same thread that runs these steps, so none arrives while its object is folded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidewire.faults import crash_point
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.columns import BUCKET, bucket_of, replica_schema
from tidewire.pipeline.lake.control import DIRTY_TABLE, OPEN, Dirty, render_control
from tidewire.pipeline.lake.files import count_rows, list_actions
from tidewire.pipeline.lake.tables import (
    READS,
    Lake,
    OpenTable,
    append_counted,
    append_files,
    commit_properties,
    open_table,
    reporting_conflict,
    try_open_table,
)
from tidewire.pipeline.replicas.view import (
    BUCKETS,
    ReplicaView,
    fold_limit,
    is_object_wide,
    iter_changes,
    try_open_view,
)
from tidewire.pipeline.upkeep.base_files import BucketFile, BucketTask, add_bucket, write_bucket
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidewire.clock import Clock

_log = logging.getLogger(__name__)

POSITION = "tidewire.position"
WRITER = "maintain"
LOST_FOR_GOOD = "value_lost"
"""Values that a column's new type cannot hold are not read again by record: the whole object is."""


@dataclass(frozen=True, slots=True)
class FoldRules:
    """When and how to fold an object.

    It is folded once its pending rows exceed a share of its base and `least_rows`, or once the oldest of them
    has waited for `longest_s`; in buckets of about `rows_per_bucket`, with Spark from `spark_rows` on.
    """

    share: float = 0.05
    least_rows: int = 5_000
    longest_s: float = 60.0
    rows_per_bucket: int = 250_000
    spark_rows: int = 200_000


@dataclass(frozen=True, slots=True)
class Pending:
    """What an object's base lacks: the number of rows, and the age of the oldest."""

    entity: str
    rows: int
    base_rows: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What one step did."""

    entity: str
    position: int
    rows: int
    buckets: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to fold an object: its view, a task per bucket, and whether they replace the whole base."""

    view: ReplicaView
    tasks: tuple[BucketTask, ...]
    buckets: int
    is_new: bool
    rows: int


@dataclass(frozen=True, slots=True)
class Maintainer:
    """Folds objects of a lake. One per lake and process, which the lease guarantees."""

    _lake: Lake
    _epoch: int
    _clock: Clock
    _rules: FoldRules = field(default_factory=FoldRules)
    _spark: SparkSession | None = None

    def step(self) -> FoldReport | None:
        """Fold the object that needs it most, if any does. Raises WriteConflict."""
        now_ms = self._clock.now_ms()
        due = [each for each in self.pending() if self._is_due(each, now_ms)]
        for each in sorted(due, key=lambda each: each.rows / (each.base_rows + 1), reverse=True):
            report = self.fold(each.entity)
            if report is not None:
                return report
        return None

    def pending(self) -> list[Pending]:
        """Return what each object's base lacks by file statistics: some of the rows may already be in it."""
        found: list[Pending] = []
        for entity, state in manifest.entities(self._lake).items():
            rows, since_ms = 0, 1 << 62
            for group in ("history", "reads"):
                table = try_open_table(self._lake, f"{group}/{entity}")
                for count, first_ms in _iter_above(table, state.base_position):
                    rows, since_ms = rows + count, min(since_ms, first_ms)
            if rows:
                base_rows = count_rows(try_open_table(self._lake, f"replica/{entity}"))
                found.append(Pending(entity, rows, base_rows, since_ms))
        return found

    def fold(self, entity: str) -> FoldReport | None:
        """Fold one object up to the manifest's position; None if it is there already. Raises WriteConflict."""
        view = try_open_view(self._lake, entity)
        if view is None:
            return None
        # A base must not end inside a read, with events of the read on both sides of its end.
        through = fold_limit(self._lake, entity, view.position)
        # `table` can be ahead of the base that the manifest names, if a fold died before its manifest row. The next
        # commit must not move the table's position backwards, so wait until the limit has caught up.
        table = try_open_table(self._lake, f"replica/{entity}")
        if through <= view.base_position or (table is not None and through < table.floor):
            return None
        plan = self._plan(replace(view, position=through), table)
        if not plan.tasks:
            return None
        # Outside the lock: this takes long, and files without a commit are invisible.
        files = self._write(plan)
        crash_point("pipeline.maintain.after_files")
        self._commit(plan, files)
        counters["pipeline.objects_folded"] += 1
        rows = sum(file.rows for file in files)
        _log.info("pipeline.object_folded", extra={"entity": entity, "position": through, "rows": rows})
        return FoldReport(entity, through, rows, len(files))

    def _is_due(self, pending: Pending, now_ms: int) -> bool:
        rules = self._rules
        is_much = pending.rows >= max(rules.least_rows, rules.share * pending.base_rows)
        return is_much or now_ms - pending.since_ms >= rules.longest_s * 1000

    def _plan(self, view: ReplicaView, newest: OpenTable | None) -> _Plan:
        present = view.base_kinds
        touched, has_object_wide, pending = _read_touched(view)
        wanted = max(1, (count_rows(view.base) + pending) // self._rules.rows_per_bucket)
        buckets = _count_buckets(view.base)
        # Single buckets can be replaced only in the version that the manifest names. If a dead fold has left a newer
        # one, its other buckets are of another position: write all of them anew.
        is_current = view.base is not None and newest is not None and newest.floor == view.base_position
        # Also with new columns or types, and once buckets have grown to twice their size.
        is_new = not is_current or present != dict(view.kinds) or wanted >= 2 * buckets
        if is_new:
            buckets = wanted
        # A change about all records touches every bucket; otherwise only those of the touched records are read.
        if is_new or has_object_wide:
            numbers: Iterable[int] = range(buckets)
        else:
            numbers = sorted({bucket_of(each, buckets) for each in touched})
        directory = self._lake.table(f"replica/{view.entity}")
        base_files = view.base_files()
        tasks = tuple(
            BucketTask(
                directory=directory,
                bucket=number,
                buckets=buckets,
                base_paths=tuple(base_files if is_new else _of_bucket(base_files, number)),
                base_kinds=present,
                change_files=tuple(view.change_files()),
                through=view.position,
                kinds=dict(view.kinds),
                retyped=view.retyped,
            )
            for number in numbers
        )
        return _Plan(view, tasks, buckets, is_new, count_rows(view.base) + pending)

    def _write(self, plan: _Plan) -> list[BucketFile]:
        if self._spark is None or plan.rows < self._rules.spark_rows or len(plan.tasks) < 2:
            return [write_bucket(task) for task in plan.tasks]
        context = self._spark.sparkContext
        # A separate scheduler pool, so that a large fold does not delay the archive.
        context.setLocalProperty("spark.scheduler.pool", "maintain")
        return list(context.parallelize(plan.tasks, len(plan.tasks)).map(write_bucket).collect())

    def _commit(self, plan: _Plan, files: list[BucketFile]) -> None:
        view, name = plan.view, f"replica/{plan.view.entity}"
        schema = pa.schema([*replica_schema(view.kinds), (BUCKET, pa.int32())])
        now_ms = self._clock.now_ms()
        adds = [action for file in files if (action := add_bucket(file, now_ms)) is not None]
        lost = [
            Dirty(view.entity, each.record_id, each.replay_id, each.reason)
            for file in files
            for each in file.lost
            if each.reason != LOST_FOR_GOOD
        ]
        with manifest.lock:
            # Before the manifest row, the records that the fold found incomplete: once a row names the new base, no
            # later fold sees their changes and reports them again.
            versions = append_counted(
                self._lake, DIRTY_TABLE, render_control(lost, now_ms, OPEN), self._epoch, WRITER
            )
            crash_point("pipeline.maintain.after_control")
            # Then the base, files in place of files in one commit, so that other engines never see half of it.
            _create(self._lake, name, schema, plan.buckets)
            table = open_table(self._lake, name, schema)
            if plan.is_new:
                self._replace_all(table, adds, schema, view.position)
            else:
                removes = _remove_buckets(table, {file.bucket for file in files}, now_ms)
                append_files(table, [*adds, *removes], view.position, self._epoch)
            crash_point("pipeline.maintain.after_base")
            # Properties are a second commit; the version named below includes it, so readers see both or neither.
            versions[name] = self._describe(name, schema, plan)
            crash_point("pipeline.maintain.before_manifest")
            # Last the manifest row: only now do readers start from the new base.
            manifest.append(
                self._lake,
                self._epoch,
                now_ms,
                cause=WRITER,
                versions=versions,
                bases={view.entity: view.position},
            )

    def _replace_all(self, table: OpenTable, adds: list[AddAction], schema: pa.Schema, position: int) -> None:
        properties = commit_properties(table, position, self._epoch)
        with reporting_conflict(table):
            table.delta.create_write_transaction(
                [*adds], "overwrite", schema, partition_by=[BUCKET], commit_properties=properties
            )

    def _describe(self, name: str, schema: pa.Schema, plan: _Plan) -> int:
        """Set the base's properties for other engines and return its version."""
        table = open_table(self._lake, name, schema)
        table.delta.alter.set_table_properties(
            {BUCKETS: str(plan.buckets), POSITION: str(plan.view.position)},
            raise_if_not_exists=False,
            commit_properties=commit_properties(table, None, self._epoch, WRITER),
        )
        return DeltaTable(self._lake.table(name)).version()


def _iter_above(table: OpenTable | None, position: int) -> Iterator[tuple[int, int]]:
    """Yield the row count and time of the files with rows above a position."""
    for count, at_ms, last in list_actions(table, "num_records", "modification_time", "max.replay_id"):
        if last > position:
            yield count, at_ms


def _count_buckets(base: OpenTable | None) -> int:
    found = base.delta.metadata().configuration.get(BUCKETS) if base is not None else None
    return int(found or 1)


def _read_touched(view: ReplicaView) -> tuple[set[str], bool, int]:
    """Return the records that a view's changes touch, whether some touch all records, and their number."""
    columns = pa.schema([READS.field(name) for name in ("record_id", "replay_id", "settled")])
    touched: set[str] = set()
    has_object_wide, count = False, 0
    for rows in iter_changes(view.change_files(), columns, view.position):
        count += rows.num_rows
        has_object_wide = has_object_wide or bool(pc.any(is_object_wide(rows)).as_py())
        touched.update(pc.unique(rows["record_id"]).to_pylist())
    return touched, has_object_wide, count


def _of_bucket(paths: Iterable[str], bucket: int) -> list[str]:
    return [path for path in paths if os.path.basename(os.path.dirname(path)) == f"{BUCKET}={bucket}"]


def _remove_buckets(table: OpenTable, buckets: set[int], now_ms: int) -> list[RemoveAction]:
    """Return the actions that remove the current files of some buckets."""
    return [
        RemoveAction(path, True, now_ms, size_bytes, {BUCKET: str(bucket)})
        for path, size_bytes, bucket in list_actions(table, "path", "size_bytes", f"partition.{BUCKET}")
        if bucket in buckets
    ]


def _create(lake: Lake, name: str, schema: pa.Schema, buckets: int) -> None:
    """Create a replica's table if it does not exist."""
    if try_open_table(lake, name) is None:
        os.makedirs(lake.table(name), exist_ok=True)
        DeltaTable.create(
            lake.table(name),
            schema,
            mode="ignore",
            partition_by=[BUCKET],
            configuration={BUCKETS: str(buckets)},
            raise_if_key_not_exists=False,
        )
