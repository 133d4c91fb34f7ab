"""Record history for readers: every change of an object's records, with the states before and after.

`history/<Entity>` holds the events. Here each row also has the record before and after it (all non-null
columns, as JSON) and the time range of that state. Reads through the records API are rows too where they
change a state, so that a change after a gap starts from the true row; so are events about all records, for
each record that they change. So the states of a record join: its state at any replay id or time is the
`after_json` of the newest row before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.lake.columns import Kind
from tidewire.pipeline.lake.manifest import SnapshotPoint
from tidewire.pipeline.lake.tables import HISTORY, READS, Lake
from tidewire.pipeline.replicas.fold import READS as READ_TYPES
from tidewire.pipeline.replicas.fold import (
    UNKNOWN,
    Folder,
    RecordState,
    Step,
    find_retried,
    parse_steps,
    visible_at,
)
from tidewire.pipeline.replicas.view import (
    GROUP,
    IS_OBJECT_WIDE,
    count_groups,
    group_key,
    is_object_wide,
    open_view,
    read_changes,
    read_object_wide,
    read_spark_changes,
    without_base,
)
from tidewire.pipeline.source.change_origin_filter import matches_origin, parse_origins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIME = pa.timestamp("us", tz="UTC")
TRACED = pa.schema(
    [
        *HISTORY,
        ("before_json", pa.string()),
        ("after_json", pa.string()),
        ("valid_from", _TIME),
        ("valid_to", _TIME),
    ]
)
"""History with states.

`before_json` is null where the record did not exist, `after_json` where it is deleted; `valid_to` is null for
a record's newest change. Change types READ and MISSING come from the records API. Problem `unknown`: an
update of a record without known older state, so its states are unknown too.
"""


def read_history(
    lake: Lake, entity: str, *, as_of: SnapshotPoint | None = None, ids: Iterable[str] | None = None
) -> pa.Table:
    """Read the history of an object, or of some records, in log order and without Spark.

    Raises ObjectUnknown.
    """
    view = without_base(open_view(lake, entity, as_of))
    changes = read_changes(view, None if ids is None else set(ids))
    traced = trace_records(changes, view.kinds, view.position, view.retyped)
    return traced.sort_by([("replay_id", "ascending"), ("sequence", "ascending")])


def history(
    spark: SparkSession,
    lake: Lake | str,
    entity: str,
    as_of: SnapshotPoint | None = None,
    *,
    skip_origins: Iterable[str] = (),
) -> DataFrame:
    """Read the history of an object at the newest row of the manifest, or at a snapshot point.

    Raises ObjectUnknown.

    Rows of changes by `skip_origins` are omitted; their effect on the records is not.
    """
    rows = _read_history(spark, Lake(lake) if isinstance(lake, str) else lake, entity, as_of)
    names = parse_origins(skip_origins) if isinstance(skip_origins, str) else frozenset(skip_origins)
    return rows.where(~matches_origin(names)) if names else rows


def _read_history(spark: SparkSession, place: Lake, entity: str, as_of: SnapshotPoint | None) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    view = without_base(open_view(place, entity, as_of))
    schema = from_arrow_schema(TRACED)
    changes = read_spark_changes(spark, view)
    if changes is None:
        return spark.createDataFrame([], schema)
    kinds, through, retyped = view.kinds, view.position, view.retyped
    object_wide = read_object_wide(changes)

    def trace(group: pa.Table) -> pa.Table:
        own = group.select(READS.names).cast(READS)
        traced = trace_records(pa.concat_tables([own, object_wide]), kinds, through, retyped)
        return traced.filter(pc.invert(is_object_wide(traced)))

    own = changes.where(f"NOT ({IS_OBJECT_WIDE})").withColumn(
        GROUP, group_key("record_id", count_groups(view))
    )
    traced = own.groupBy(GROUP).applyInArrow(trace, schema)
    if not object_wide.num_rows:
        return traced
    return traced.unionByName(spark.createDataFrame(trace_records(object_wide, kinds, through), schema))


@dataclass(frozen=True, slots=True)
class _Traced:
    """A row under construction: the index of its change, its record, and its states."""

    place: int
    record_id: str
    before: bytes | None = None
    after: bytes | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    is_unknown: bool = False


def trace_records(
    changes: pa.Table,
    kinds: Mapping[str, Kind],
    through: int,
    retyped: Mapping[str, Mapping[str, Kind]] | None = None,
) -> pa.Table:
    """Return the events among `changes` (HISTORY or READS, any order) with states, and reads that change one."""
    folder = Folder(kinds, retyped or {})
    found_steps = list(parse_steps(changes, through))
    retried = find_retried(found_steps)
    steps = [(i, step) for i, step in enumerate(found_steps) if i not in retried]
    rows = changes.filter(visible_at(changes, through)).select(HISTORY.names)
    object_wide = [pair for pair in steps if pair[1].is_object_wide]
    by_record: dict[str, list[tuple[int, Step]]] = {}
    for pair in steps:
        if not pair[1].is_object_wide:
            by_record.setdefault(pair[1].record_id, []).append(pair)
    traced = [_Traced(i, step.record_id, from_ms=step.commit_ms or None) for i, step in object_wide]
    for record_id, own in by_record.items():
        traced += _trace(folder, record_id, sorted([*own, *object_wide], key=lambda pair: pair[1].order))
    found = rows.take(pa.array([each.place for each in traced], pa.int64()))
    is_unknown = pa.array([each.is_unknown for each in traced], pa.bool_())
    columns = {
        "record_id": pa.array([each.record_id for each in traced], pa.string()),
        "before_json": pa.array([each.before and each.before.decode() for each in traced], pa.string()),
        "problem": pc.if_else(is_unknown, UNKNOWN, found["problem"]),
        "after_json": pa.array([each.after and each.after.decode() for each in traced], pa.string()),
        "valid_from": _times([each.from_ms for each in traced]),
        "valid_to": _times([each.to_ms for each in traced]),
    }
    arrays = [columns[name] if name in columns else found[name] for name in TRACED.names]
    return pa.Table.from_arrays(arrays, schema=TRACED)


def _trace(folder: Folder, record_id: str, steps: Iterable[tuple[int, Step]]) -> list[_Traced]:
    """Return the rows of one record from its changes in order."""
    state = RecordState(record_id)
    traced: list[_Traced] = []
    newest: int | None = None
    known: bytes | None = None
    for i, step in steps:
        folder.fold(state, step)
        before, known = known, _render_state(state)
        is_event = not step.is_object_wide and step.change_type not in READ_TYPES
        if not is_event and before == known:
            continue
        from_ms = step.commit_ms or None  # unknown for an event that did not decode
        if from_ms is not None and newest is not None:
            if not is_event:  # LastModifiedDate may lie before an event seen earlier
                from_ms = max(from_ms, traced[newest].from_ms or 0)
            traced[newest] = replace(traced[newest], to_ms=from_ms)
        if from_ms is not None:
            newest = len(traced)
        is_unknown = is_event and step.problem is None and UNKNOWN in state.lost
        traced.append(_Traced(i, record_id, before, known, from_ms, is_unknown=is_unknown))
    return traced


def _render_state(state: RecordState) -> bytes | None:
    return orjson.dumps(state.values) if state.exists and not state.is_deleted else None


def _times(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_TIME)
