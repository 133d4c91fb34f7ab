"""History for readers: every change of an object's records, with what it made of them.

`history/<Entity>` holds what each event said. Here each of its rows also has the record before and after it
(all columns that are not null, as JSON), and from when to when that was its state. What was read through the
records API takes its place in between, as a row of its own where it tells something new, so that a change
after a gap stands on the true row; an event about every record that changes a record has a row for it too.
So the states of a record join: what it was at any replay id or time is the `after_json` of the newest row
before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.lake.columns import Kind
from tidewire.pipeline.lake.manifest import Moment
from tidewire.pipeline.lake.tables import HISTORY, READS, Lake
from tidewire.pipeline.replicas.fold import READS as READ_TYPES
from tidewire.pipeline.replicas.fold import (
    UNKNOWN,
    Folder,
    RecordState,
    Step,
    counting,
    find_retried,
    parse_steps,
)
from tidewire.pipeline.replicas.view import (
    GROUP,
    IS_GENERAL,
    count_groups,
    group_key,
    is_general,
    open_view,
    read_changes,
    read_generals,
    read_spark_changes,
    whole,
)
from tidewire.pipeline.source.change_origin_filter import own_column, parse_origins

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
"""History with states. `before_json` is null where the record was not there, `after_json` where it is gone;
`valid_to` is null for the newest change of a record. Change type READ or MISSING: the records API told so.
Problem `unknown`: an update of a record of which nothing older is known, or kept, so its states are not either.
"""


def read_history(
    lake: Lake, entity: str, *, as_of: Moment | None = None, ids: Iterable[str] | None = None
) -> pa.Table:
    """The history of an object (or of some of its records) in the order of the log, read without Spark.
    Raises ObjectUnknown.
    """
    view = whole(open_view(lake, entity, as_of))
    changes = read_changes(view, None if ids is None else set(ids))
    traced = trace_records(changes, view.kinds, view.position, view.retyped)
    return traced.sort_by([("replay_id", "ascending"), ("sequence", "ascending")])


def history(
    spark: SparkSession,
    lake: Lake | str,
    entity: str,
    as_of: Moment | None = None,
    *,
    skip_origins: Iterable[str] = (),
) -> DataFrame:
    """The history of an object up to the newest row of the manifest, or the newest at or before `as_of`,
    without changes of some origins: their rows are left out, what they made of the records is not.
    Raises ObjectUnknown.
    """
    rows = _read_history(spark, Lake(lake) if isinstance(lake, str) else lake, entity, as_of)
    names = parse_origins(skip_origins) if isinstance(skip_origins, str) else frozenset(skip_origins)
    return rows.where(~own_column(names)) if names else rows


def _read_history(spark: SparkSession, place: Lake, entity: str, as_of: Moment | None) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    view = whole(open_view(place, entity, as_of))
    schema = from_arrow_schema(TRACED)
    changes = read_spark_changes(spark, view)
    if changes is None:
        return spark.createDataFrame([], schema)
    kinds, through, retyped = view.kinds, view.position, view.retyped
    generals = read_generals(changes)

    def trace(group: pa.Table) -> pa.Table:
        own = group.select(READS.names).cast(READS)
        traced = trace_records(pa.concat_tables([own, generals]), kinds, through, retyped)
        return traced.filter(pc.invert(is_general(traced)))

    own = changes.where(f"NOT ({IS_GENERAL})").withColumn(GROUP, group_key("record_id", count_groups(view)))
    traced = own.groupBy(GROUP).applyInArrow(trace, schema)
    if not generals.num_rows:
        return traced
    return traced.unionByName(spark.createDataFrame(trace_records(generals, kinds, through), schema))


@dataclass(frozen=True, slots=True)
class _Traced:
    """A row in the making: which of the changes it is, of which record, and its states."""

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
    """Events among `changes` (rows of HISTORY or READS, any order) with the states they make; and reads, as far
    as they change a state.
    """
    folder = Folder(kinds, retyped or {})
    found_steps = list(parse_steps(changes, through))
    retried = find_retried(found_steps)
    steps = [(i, step) for i, step in enumerate(found_steps) if i not in retried]
    rows = changes.filter(counting(changes, through)).select(HISTORY.names)
    generals = [pair for pair in steps if pair[1].is_general]
    by_record: dict[str, list[tuple[int, Step]]] = {}
    for pair in steps:
        if not pair[1].is_general:
            by_record.setdefault(pair[1].record_id, []).append(pair)
    traced = [_Traced(i, step.record_id, from_ms=step.commit_ms or None) for i, step in generals]
    for record_id, own in by_record.items():
        traced += _trace(folder, record_id, sorted([*own, *generals], key=lambda pair: pair[1].order))
    found = rows.take(pa.array([each.place for each in traced], pa.int64()))
    columns = {
        "record_id": pa.array([each.record_id for each in traced], pa.string()),
        "before_json": pa.array([each.before and each.before.decode() for each in traced], pa.string()),
        "problem": _mark_unknown(found["problem"], [each.is_unknown for each in traced]),
        "after_json": pa.array([each.after and each.after.decode() for each in traced], pa.string()),
        "valid_from": _times([each.from_ms for each in traced]),
        "valid_to": _times([each.to_ms for each in traced]),
    }
    arrays = [columns[name] if name in columns else found[name] for name in TRACED.names]
    return pa.Table.from_arrays(arrays, schema=TRACED)


def _trace(folder: Folder, record_id: str, steps: Iterable[tuple[int, Step]]) -> list[_Traced]:
    """The rows of one record, of its changes in order."""
    state = RecordState(record_id)
    traced: list[_Traced] = []
    newest: int | None = None
    known: bytes | None = None
    for i, step in steps:
        folder.fold(state, step)
        before, known = known, _render_state(state)
        is_event = not step.is_general and step.change_type not in READ_TYPES
        if not is_event and before == known:
            continue
        from_ms = step.commit_ms or None  # of an event that did not decode nobody knows when it happened
        if from_ms is not None and newest is not None:
            if not is_event:  # a record that was changed unseen may say that it is older than what was seen
                from_ms = max(from_ms, traced[newest].from_ms or 0)
            traced[newest] = replace(traced[newest], to_ms=from_ms)
        if from_ms is not None:
            newest = len(traced)
        is_unknown = is_event and step.problem is None and UNKNOWN in state.lost
        traced.append(_Traced(i, record_id, before, known, from_ms, is_unknown=is_unknown))
    return traced


def _mark_unknown(problems: pa.ChunkedArray, flags: list[bool]) -> pa.ChunkedArray:
    return pc.if_else(pa.array(flags, pa.bool_()), pa.scalar(UNKNOWN, pa.string()), problems)


def _render_state(state: RecordState) -> bytes | None:
    return orjson.dumps(state.values) if state.exists and not state.is_deleted else None


def _times(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_TIME)
