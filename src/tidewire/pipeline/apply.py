"""The apply query: whole transactions from bronze into history and replicas.

Each table of a batch is committed on its own, in a fixed order: histories, dead letters, replicas, and last
the manifest row that names one version of every table. A crash in between is normal: each table drops what
it already holds when the batch comes again. Dead letters go before the replicas they come from, because a
replica that has moved on cannot tell them again.

If a batch ends before the position that some table already has (a crash, then other batch limits), its
manifest row would pair tables of different positions; such a batch moves the manifest on without a row.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.faults import crash_point
from tidewire.pipeline.decode import (
    CHANGES,
    UNDECODABLE,
    RecordChange,
    decode_batches,
    parse_changes,
    render_change,
)
from tidewire.pipeline.fold import DeadLetter
from tidewire.pipeline.replica import ReplicaPlan, commit_replica, plan_replica
from tidewire.pipeline.spans import Span, check_continues, join_spans
from tidewire.pipeline.tables import (
    DEAD_LETTER,
    HISTORY,
    MANIFEST,
    Lake,
    OpenTable,
    append_rows,
    load_schemas,
    open_table,
    try_open_table,
)
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidewire.clock import Clock

_log = logging.getLogger(__name__)

CHANGES_DDL = (
    "entity STRING, record_id STRING, replay_id LONG, sequence LONG, change_type STRING, "
    "transaction_key STRING, commit_number LONG, commit_ms LONG, user_id STRING, origin STRING, "
    "schema_id STRING, changed ARRAY<STRING>, values_json STRING, problem STRING, detail STRING, "
    "mark_after LONG"
)


class Applier:
    """Applies batches to a lake. One per lake and process; the lease sees to that."""

    def __init__(self, lake: Lake, epoch: int, clock: Clock) -> None:
        self._lake = lake
        self._epoch = epoch
        self._clock = clock
        self._versions: dict[str, int] | None = None
        self._ahead = -1

    def apply(self, rows: pa.Table, schemas: Mapping[str, str]) -> Span | None:
        """Apply rows of CHANGES with their marks; returns the span applied, None if all of it was there
        already.

        Raises LogCorrupt if events are missing, WriteConflict if another writer interfered.
        """
        span = join_spans(
            Span(row["mark_after"], row["replay_id"])
            for row in rows.filter(pc.is_valid(rows["mark_after"])).to_pylist()
        )
        manifest = open_table(self._lake, "manifest", MANIFEST)
        if span is None or span.through <= manifest.floor:
            return None
        check_continues(span, manifest.committed, "manifest")
        versions = self._load_versions()
        by_entity = _group(parse_changes(rows))
        for entity, changes in by_entity.items():
            if entity:
                self._append_history(entity, changes, span, versions)
        plans = [
            plan_replica(self._lake, entity, changes, schemas)
            for entity, changes in by_entity.items()
            if entity
        ]
        dead = self._append_dead_letters(by_entity.get("", []), plans, span, versions)
        for plan in plans:
            if plan.rows:
                versions[plan.name] = commit_replica(
                    self._lake, plan, span.through, self._epoch
                ).delta.version()
                crash_point("pipeline.apply.after_replica")
        crash_point("pipeline.apply.before_manifest")
        count = sum(len(changes) for changes in by_entity.values())
        self._append_manifest(manifest, span, versions, count, dead)
        return span

    def _load_versions(self) -> dict[str, int]:
        """The version of every table, kept up to date from then on; and how far a crash may have left one
        ahead.
        """
        if self._versions is None:
            self._versions = {}
            names = [*self._lake.names("history"), *self._lake.names("replica"), "dead_letter"]
            for name in names:
                table = try_open_table(self._lake, name)
                if table is not None:
                    self._versions[name] = table.delta.version()
                    self._ahead = max(self._ahead, table.floor)
        return self._versions

    def _append_history(
        self, entity: str, changes: Sequence[RecordChange], span: Span, versions: dict[str, int]
    ) -> None:
        table = open_table(self._lake, f"history/{entity}", HISTORY)
        versions[table.name] = table.delta.version()
        fresh = [
            render_change(change)
            for change in changes
            if change.replay_id > table.floor and change.problem not in UNDECODABLE
        ]
        if fresh:
            rows = pa.Table.from_pylist(fresh, schema=CHANGES).select(HISTORY.names)
            self._append(table, rows, span, versions)
            crash_point("pipeline.apply.after_history")

    def _append_dead_letters(
        self,
        undecodable: Iterable[RecordChange],
        plans: Iterable[ReplicaPlan],
        span: Span,
        versions: dict[str, int],
    ) -> int:
        letters = [letter for plan in plans for letter in plan.dead]
        letters += [DeadLetter(change, change.problem or "", change.detail or "") for change in undecodable]
        letters.sort(key=lambda letter: letter.change.replay_id)
        if not letters:
            return 0
        table = open_table(self._lake, "dead_letter", DEAD_LETTER)
        versions[table.name] = table.delta.version()
        fresh = [render_letter(letter) for letter in letters if letter.change.replay_id > table.floor]
        if fresh:
            self._append(table, pa.Table.from_pylist(fresh, schema=DEAD_LETTER), span, versions)
            counters["pipeline.changes_dead_lettered"] += len(fresh)
        return len(fresh)

    def _append(self, table: OpenTable, rows: pa.Table, span: Span, versions: dict[str, int]) -> None:
        append_rows(table, rows, span.through, self._epoch)
        versions[table.name] = table.delta.version()

    def _append_manifest(
        self, manifest: OpenTable, span: Span, versions: Mapping[str, int], changes: int, dead: int
    ) -> None:
        row = {
            "position": span.through,
            "after": span.after,
            "applied_ms": self._clock.now_ms(),
            "epoch": self._epoch,
            "changes": changes,
            "dead_letters": dead,
            "table_versions": json.dumps(versions, sort_keys=True),
        }
        is_whole = span.through >= self._ahead
        rows = pa.Table.from_pylist([row] if is_whole else [], schema=MANIFEST)
        append_rows(manifest, rows, span.through, self._epoch)
        counters["pipeline.changes_applied"] += changes
        _log.info("pipeline.batch_applied", extra={"changes": changes, "position": span.through})


def apply_batch(lake: Lake, epoch: int, clock: Clock) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch` of the apply query. Executors decode, the driver folds and commits."""
    applier = Applier(lake, epoch, clock)

    def apply(batch: DataFrame, batch_id: int) -> None:
        schemas = load_schemas(lake)
        rows = batch.mapInArrow(decode_batches(schemas), CHANGES_DDL).toArrow()
        applier.apply(rows, schemas)

    return apply


def render_letter(letter: DeadLetter) -> dict[str, object]:
    """A dead letter as a row of its table."""
    change = letter.change
    return {
        "replay_id": change.replay_id,
        "entity": change.entity,
        "record_id": change.record_id,
        "change_type": change.change_type,
        "schema_id": change.schema_id,
        "reason": letter.reason,
        "detail": letter.detail,
    }


def _group(changes: Iterable[RecordChange]) -> dict[str, list[RecordChange]]:
    by_entity: dict[str, list[RecordChange]] = {}
    for change in changes:
        by_entity.setdefault(change.entity, []).append(change)
    return dict(sorted(by_entity.items()))
