"""Count the records of a replica without reading their values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.lake.columns import DELETED, RECORD_ID, STALE, replica_schema
from tidewire.pipeline.lake.files import read_file
from tidewire.pipeline.lake.tables import READS
from tidewire.pipeline.replicas.fold import WILDCARD, fold_records
from tidewire.pipeline.replicas.view import ReplicaView, is_object_wide, iter_changes

_NARROW = pa.schema([field for field in READS if field.name not in ("values_json", "enriched_json")])
_KEYS = pa.schema([replica_schema({}).field(name) for name in (RECORD_ID, DELETED, STALE)])


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Row counts of one replica, and the position of its base."""

    entity: str
    live: int
    deleted: int
    stale: int
    base_position: int
    pending: int


def count_replica(view: ReplicaView) -> ReplicaStatus:
    """Count an object's rows at a snapshot point.

    `pending` counts changes that its base lacks. A row whose text difference does not fit is stale only once
    that is known (control/dirty).
    """
    changes = _read_narrow(view)
    touched = pc.unique(changes.filter(pc.invert(is_object_wide(changes)))["record_id"])
    object_wide = changes.filter(is_object_wide(changes))["problem"]
    is_all_stale = bool(pc.any(pc.not_equal(object_wide, WILDCARD)).as_py())
    live = deleted = stale = 0
    base = [replica_schema({}).empty_table()]
    for path in view.base_files():
        keys = read_file(path, _KEYS)
        is_touched = pc.is_in(keys[RECORD_ID], touched)
        if pc.any(is_touched).as_py():
            rows = read_file(path, replica_schema({}))
            base.append(rows.filter(is_touched))
        rest = keys.filter(pc.invert(is_touched))
        gone = _count(rest[DELETED])
        deleted += gone
        live += rest.num_rows - gone
        stale += rest.num_rows - gone if is_all_stale else _count(rest[STALE])
    folded = fold_records(pa.concat_tables(base), changes, {}, view.position).rows
    gone = _count(folded[DELETED])
    return ReplicaStatus(
        view.entity,
        live + folded.num_rows - gone,
        deleted + gone,
        stale + _count(folded[STALE]),
        view.base_position,
        changes.num_rows,
    )


def _read_narrow(view: ReplicaView) -> pa.Table:
    parts = iter_changes(view.change_files(), _NARROW, view.position)
    return pa.concat_tables([READS.empty_table(), *parts], promote_options="default")


def _count(flags: pa.ChunkedArray) -> int:
    return int(pc.sum(flags).as_py() or 0)
