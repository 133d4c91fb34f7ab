"""How a pipeline stands, read from its tables alone, so it works also when the pipeline is dead."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.columns import DELETED, STALE
from tidewire.pipeline.spans import START, Span
from tidewire.pipeline.tables import Lake, OpenTable, list_files, read_file, read_rows, try_open_table


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Rows of one replica."""

    entity: str
    live: int
    deleted: int
    stale: int


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Positions and counts of a lake.

    `waiting` counts archived events that are not applied yet; `lag_ms` is the commit time between the
    newest archived and the newest applied event, 0 if nothing waits.
    """

    archived_through: int
    applied_through: int
    archived: int
    waiting: int
    lag_ms: int
    dead_letters: dict[str, int]
    replicas: tuple[ReplicaStatus, ...]


def read_status(lake: Lake) -> PipelineStatus:
    """Read the state of a lake; an empty one has zeros."""
    bronze = try_open_table(lake, "bronze")
    manifest = try_open_table(lake, "manifest")
    applied = _committed(manifest)
    archived, waiting, lag_ms = _bronze_counts(lake, bronze, applied)
    versions = _newest_versions(manifest)
    return PipelineStatus(
        archived_through=_committed(bronze),
        applied_through=applied,
        archived=archived,
        waiting=waiting,
        lag_ms=lag_ms,
        dead_letters=_count_reasons(try_open_table(lake, "dead_letter")),
        replicas=tuple(
            _replica_status(lake, name, version)
            for name, version in sorted(versions.items())
            if name.startswith("replica/")
        ),
    )


def _committed(table: OpenTable | None) -> int:
    return START if table is None or table.committed is None else table.committed


def _bronze_counts(lake: Lake, bronze: OpenTable | None, applied: int) -> tuple[int, int, int]:
    if bronze is None:
        return 0, 0, 0
    actions = pa.table(bronze.delta.get_add_actions(flatten=True))
    archived = sum(actions["num_records"].to_pylist()) if actions.num_rows else 0
    columns = pa.schema([("replay_id", pa.int64()), ("commit_ms", pa.int64())])
    waiting: list[int | None] = []
    for name in list_files(bronze, Span(applied, _committed(bronze))):
        rows = read_file(os.path.join(lake.table("bronze"), name), columns)
        waiting += rows.filter(pc.greater(rows["replay_id"], applied))["commit_ms"].to_pylist()
    times = [time_ms for time_ms in waiting if time_ms is not None]
    return archived, len(waiting), max(times) - min(times) if times else 0


def _newest_versions(manifest: OpenTable | None) -> dict[str, int]:
    if manifest is None:
        return {}
    rows = read_rows(manifest, ["position", "table_versions"]).sort_by("position")
    versions: dict[str, int] = json.loads(rows["table_versions"][-1].as_py()) if rows.num_rows else {}
    return versions


def _count_reasons(table: OpenTable | None) -> dict[str, int]:
    if table is None:
        return {}
    counts: pa.Array = pc.value_counts(read_rows(table, ["reason"])["reason"])
    return {row["values"]: row["counts"] for row in counts.to_pylist()}


def _replica_status(lake: Lake, name: str, version: int) -> ReplicaStatus:
    table = try_open_table(lake, name, version)
    if table is None:
        return ReplicaStatus(name.partition("/")[2], 0, 0, 0)
    rows = read_rows(table, [DELETED, STALE])
    deleted = pc.sum(rows[DELETED]).as_py() or 0
    stale = pc.sum(rows[STALE]).as_py() or 0
    return ReplicaStatus(name.partition("/")[2], rows.num_rows - deleted, deleted, stale)
