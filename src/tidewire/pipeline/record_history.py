"""History for readers: every change of an object's records, with what it made of them.

`history/<Entity>` holds what each event said. Here each of its rows also has the record before and after it
(all columns that are not null, as JSON), and from when to when that was its state. What was read through the
records API takes its place in between, so that a change after a gap stands on the true row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.columns import Kind
from tidewire.pipeline.fold import READS as READ_TYPES
from tidewire.pipeline.fold import Folder, RecordState, Step, counting, parse_steps
from tidewire.pipeline.reading import (
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
from tidewire.pipeline.tables import HISTORY, READS, Lake

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
`valid_to` is null for the newest change of a record.
"""


def read_history(
    lake: Lake, entity: str, *, as_of: int | datetime | None = None, ids: Iterable[str] | None = None
) -> pa.Table:
    """The history of an object (or of some of its records) in the order of the log, read without Spark.
    Raises ObjectUnknown.
    """
    view = whole(open_view(lake, entity, as_of))
    changes = read_changes(view, None if ids is None else set(ids))
    traced = trace_records(changes, view.kinds, view.position)
    return traced.sort_by([("replay_id", "ascending"), ("sequence", "ascending")])


def history(
    spark: SparkSession, lake: Lake | str, entity: str, as_of: int | datetime | None = None
) -> DataFrame:
    """The history of an object up to the newest row of the manifest, or the newest at or before `as_of`.
    Raises ObjectUnknown.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    place = Lake(lake) if isinstance(lake, str) else lake
    view = whole(open_view(place, entity, as_of))
    schema = from_arrow_schema(TRACED)
    changes = read_spark_changes(spark, view)
    if changes is None:
        return spark.createDataFrame([], schema)
    kinds, through = view.kinds, view.position
    generals = read_generals(changes)

    def trace(group: pa.Table) -> pa.Table:
        own = group.select(READS.names).cast(READS)
        traced = trace_records(pa.concat_tables([own, generals]), kinds, through)
        return traced.filter(pc.invert(is_general(traced)))

    own = changes.where(f"NOT ({IS_GENERAL})").withColumn(GROUP, group_key("record_id", count_groups(view)))
    traced = own.groupBy(GROUP).applyInArrow(trace, schema)
    if not generals.num_rows:
        return traced
    return traced.unionByName(spark.createDataFrame(trace_records(generals, kinds, through), schema))


def trace_records(changes: pa.Table, kinds: Mapping[str, Kind], through: int) -> pa.Table:
    """Events among `changes` (rows of HISTORY or READS, any order) with the states they make."""
    folder = Folder(kinds)
    steps = list(enumerate(parse_steps(changes, through)))
    rows = changes.filter(counting(changes, through)).select(HISTORY.names)
    before: list[bytes | None] = [None] * len(steps)
    after: list[bytes | None] = [None] * len(steps)
    valid_to: list[int | None] = [None] * len(steps)
    generals = [pair for pair in steps if pair[1].is_general]
    by_record: dict[str, list[tuple[int, Step]]] = {}
    for pair in steps:
        if not pair[1].is_general:
            by_record.setdefault(pair[1].record_id, []).append(pair)
    for record_id, own in by_record.items():
        state = RecordState(record_id)
        newest: int | None = None
        known: bytes | None = None
        for i, step in sorted([*own, *generals], key=lambda pair: pair[1].order):
            folder.fold(state, step)
            then, known = known, _render_state(state)
            if step.is_general or step.change_type in READ_TYPES:
                continue
            before[i], after[i] = then, known
            if not step.commit_ms:
                continue  # an event that did not decode: when it happened is not known
            if newest is not None:
                valid_to[newest] = step.commit_ms
            newest = i
    columns = {
        "before_json": pa.array([text and text.decode() for text in before], pa.string()),
        "after_json": pa.array([text and text.decode() for text in after], pa.string()),
        "valid_from": _times(rows["commit_ms"].to_pylist()),
        "valid_to": _times(valid_to),
    }
    arrays = [columns[name] if name in columns else rows[name] for name in TRACED.names]
    traced = pa.Table.from_arrays(arrays, schema=TRACED)
    return traced.filter(pc.invert(pc.is_in(traced["change_type"], pa.array(sorted(READ_TYPES)))))


def _render_state(state: RecordState) -> bytes | None:
    return orjson.dumps(state.values) if state.exists and not state.is_deleted else None


def _times(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_TIME)
