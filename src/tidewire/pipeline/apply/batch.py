"""The apply query: append whole transactions from bronze to history.

Executors decode and write files; the driver plans from their receipts and commits. Nothing is rewritten:
readers fold what apply appends (manifest.py). Each table is committed on its own, in a fixed order: dead
letters and control tables, histories, and last the manifest row. A crash in between is normal: each table
drops what it already holds when the batch is repeated, and history beyond the manifest is invisible. Control
rows precede the histories they come from, so that a batch that is cut differently after a crash cannot miss
them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.faults import crash_point
from tidewire.pipeline.apply.dead_letters import DEAD_LETTER_TABLE, render_letter
from tidewire.pipeline.apply.decode import DIFFERING
from tidewire.pipeline.apply.history_files import BatchReceipts, parse_batch_receipts
from tidewire.pipeline.apply.known_ids import KnownIds
from tidewire.pipeline.apply.planning import (
    Plan,
    find_unknown_updates,
    plan_notes,
    plan_schemas,
    update_live_ids,
)
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import (
    DIRTY_TABLE,
    OPEN,
    PENDING,
    RESYNC_TABLE,
    Dirty,
    Resync,
    has_snapshot,
    open_resyncs,
    render_control,
)
from tidewire.pipeline.lake.files import DataFile, read_file
from tidewire.pipeline.lake.schemas import load_schemas
from tidewire.pipeline.lake.spans import Span, check_continues
from tidewire.pipeline.lake.tables import (
    HISTORY,
    TABLES,
    Lake,
    OpenTable,
    append_files,
    append_rows,
    conflict,
    load_shared_table,
    open_table,
)
from tidewire.pipeline.replicas.view import ReplicaView, fold_view, try_open_view
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidewire.clock import Clock

_log = logging.getLogger(__name__)

COMMIT_THREADS = 4
"""Concurrent commits of history tables: each waits for the disk."""
_PLANNED = pa.schema(
    [HISTORY.field(name) for name in ("record_id", "replay_id", "sequence", "change_type", "problem")]
)


class Applier:
    """Applies batches to a lake. One per lake and process, which the lease guarantees."""

    def __init__(self, lake: Lake, epoch: int, clock: Clock) -> None:
        self._lake = lake
        self._epoch = epoch
        self._clock = clock
        self._known = KnownIds(lake)

    def commit(self, receipts: BatchReceipts) -> Span | None:
        """Commit the files of a batch and return the span applied; None if it was already applied.

        Raises LogCorrupt if events are missing, WriteConflict if another writer interfered.
        """
        try:
            return self._commit(receipts)
        except BaseException:
            # Histories that were committed contribute no rows when the batch is repeated, so reload the ids.
            self._known = KnownIds(self._lake)
            raise

    def _commit(self, receipts: BatchReceipts) -> Span | None:
        span = receipts.span
        before = load_shared_table(self._lake, manifest.TABLE)
        if span is None or (before is not None and span.through <= before.floor):
            return None
        check_continues(span, before.committed if before is not None else None, manifest.TABLE)
        files = _group(receipts.files)
        changes = {entity: self._read(found, _PLANNED) for entity, found in files.items()}
        plan = self._plan(load_schemas(self._lake), receipts, files, changes)
        versions: dict[str, int] = {}
        with manifest.lock:
            dead = self._append(DEAD_LETTER_TABLE, [*map(render_letter, plan.dead)], span, versions)
            now_ms = self._clock.now_ms()
            self._append(DIRTY_TABLE, render_control(plan.dirty, now_ms, OPEN), span, versions)
            resyncs = render_control(plan.resyncs, now_ms, PENDING)
            self._append(RESYNC_TABLE, resyncs, span, versions, key="since")
            crash_point("pipeline.apply.after_control")
            versions |= self._append_histories(files, span)
            crash_point("pipeline.apply.before_manifest")
            count = sum(file.rows for file in receipts.files)
            used = {
                entity: sorted(ids, key=lambda schema_id: ids[schema_id])
                for entity, ids in receipts.schemas.items()
            }
            manifest.append(
                self._lake,
                self._epoch,
                now_ms,
                cause="apply",
                span=span,
                changes=count,
                dead_letters=dead,
                versions=versions,
                schemas={entity: used.get(entity, []) for entity in {*used, *files}},
            )
        for entity, rows in changes.items():
            update_live_ids(rows, self._known.of(entity))
        counters["pipeline.changes_applied"] += count
        counters["pipeline.changes_dead_lettered"] += dead
        _log.info("pipeline.batch_applied", extra={"changes": count, "position": span.through})
        return span

    def _read(self, files: Iterable[DataFile], schema: pa.Schema) -> pa.Table:
        paths = [os.path.join(self._lake.table(f"history/{file.entity}"), file.path) for file in files]
        return pa.concat_tables([schema.empty_table(), *(read_file(path, schema) for path in paths)])

    def _plan(
        self,
        texts: Mapping[str, str],
        receipts: BatchReceipts,
        files: Mapping[str, list[DataFile]],
        changes: Mapping[str, pa.Table],
    ) -> Plan:
        plan = plan_notes(receipts.notes)
        dirty, resyncs = list(plan.dirty), {resync.entity: resync for resync in plan.resyncs}
        known = manifest.entities(self._lake)
        for entity, used in receipts.schemas.items():
            state = known.get(entity)
            before = state.schemas if state is not None else ()
            found = plan_schemas(entity, before, used, receipts.notes, texts)
            if state is None and has_snapshot(self._lake):
                # Selected or renamed after the snapshot: its older records are in no event.
                found = Resync(entity, "new", max(used.values()))
            # Of several reasons, the latest decides how new the read must be.
            if found is not None and (entity not in resyncs or found.since > resyncs[entity].since):
                resyncs[entity] = found
        being_read = {*open_resyncs(self._lake), *resyncs}
        for entity, rows in changes.items():
            if entity not in being_read:
                dirty += self._find_unknown_updates(entity, rows)
        dirty += self._find_misfits(texts, receipts, files)
        dirty.sort(key=lambda each: each.replay_id)
        return Plan(tuple(dirty), tuple(resyncs.values()), plan.dead)

    def _find_unknown_updates(self, entity: str, rows: pa.Table) -> list[Dirty]:
        found = find_unknown_updates(entity, rows, self._known.of(entity))
        if found:
            self._known.refresh(entity)
            found = find_unknown_updates(entity, rows, self._known.of(entity))
        return found

    def _find_misfits(
        self, texts: Mapping[str, str], receipts: BatchReceipts, files: Mapping[str, list[DataFile]]
    ) -> list[Dirty]:
        """Return the records whose text differences do not match the lake's text. Only these are folded."""
        ids: dict[str, set[str]] = {}
        for note in receipts.notes:
            if note.reason == DIFFERING:
                ids.setdefault(note.entity, set()).add(note.record_id)
        dirty: list[Dirty] = []
        for entity, wanted in ids.items():
            rows = self._read(files.get(entity, ()), HISTORY)
            extra = rows.filter(pc.is_in(rows["record_id"], pa.array(sorted(wanted), pa.string())))
            view = self._view(entity, receipts.schemas.get(entity, {}), texts)
            dirty += [
                Dirty(entity, lost.record_id, lost.replay_id, DIFFERING)
                for lost in fold_view(view, wanted, extra).lost
                if lost.reason == DIFFERING
            ]
        return dirty

    def _view(self, entity: str, used: Mapping[str, int], texts: Mapping[str, str]) -> ReplicaView:
        """Return an object as the manifest shows it, with the columns that this batch adds."""
        nowhere = manifest.NO_POSITION
        nothing = ReplicaView(self._lake, entity, nowhere, None, nowhere, {})
        view = try_open_view(self._lake, entity) or nothing
        return replace(
            view, kinds={**view.kinds, **manifest.kinds_from(sorted(used, key=used.__getitem__), texts)}
        )

    def _append(
        self,
        name: str,
        rows: Sequence[Mapping[str, Any]],
        span: Span,
        versions: dict[str, int],
        key: str = "replay_id",
    ) -> int:
        """Append the rows that a control table does not have yet and return how many."""
        if not rows:
            return 0
        table = open_table(self._lake, name)
        fresh = [row for row in rows if row[key] > table.floor]
        if fresh:
            added = pa.Table.from_pylist(fresh, schema=TABLES[name])
            append_rows(table, added, span.through, self._epoch)
        versions[name] = table.delta.version()
        return len(fresh)

    def _append_histories(self, files: Mapping[str, list[DataFile]], span: Span) -> dict[str, int]:
        now_ms = self._clock.now_ms()

        def append(entity: str) -> OpenTable:
            table = open_table(self._lake, f"history/{entity}")
            if table.floor > min(file.floor for file in files[entity]):
                raise conflict(table)
            actions = [file.add_action(now_ms) for file in files[entity]]
            append_files(table, actions, span.through, self._epoch)
            crash_point("pipeline.apply.after_history")
            return table

        if len(files) == 1:
            tables = [append(entity) for entity in files]
        else:
            with ThreadPoolExecutor(COMMIT_THREADS) as pool:
                tables = list(pool.map(append, sorted(files)))
        return {table.name: table.delta.version() for table in tables}


def apply_batch(lake: Lake, epoch: int, clock: Clock) -> Callable[[DataFrame, int], None]:
    """Return the `foreachBatch` function of the apply query, whose rows are receipts (bronze_source.py)."""
    applier = Applier(lake, epoch, clock)

    def apply(batch: DataFrame, batch_id: int) -> None:
        applier.commit(parse_batch_receipts(row.asDict() for row in batch.collect()))

    return apply


def _group(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    by_entity: dict[str, list[DataFile]] = {}
    for file in files:
        by_entity.setdefault(file.entity, []).append(file)
    return dict(sorted(by_entity.items()))
