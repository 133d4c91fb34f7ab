"""Replicas for readers: the records of an object at a snapshot point, with Spark or without.

Base rows without later changes pass through Spark unchanged; executors fold only records with changes after
the base. Replicas read with one `as_of` are consistent: no transaction shows in one and not in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.lake.columns import DELETED, RECORD_ID, STALE, Kind, replica_schema
from tidewire.pipeline.lake.manifest import AtNumber, SnapshotPoint, newest
from tidewire.pipeline.lake.tables import READS, Lake
from tidewire.pipeline.replicas.fold import WILDCARD, fold_records
from tidewire.pipeline.replicas.record_history import history
from tidewire.pipeline.replicas.view import (
    GROUP,
    IS_OBJECT_WIDE,
    ReplicaView,
    count_groups,
    find_snapshot_point,
    fold_view,
    group_key,
    open_view,
    read_object_wide,
    read_spark_changes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_replica(
    lake: Lake,
    entity: str,
    *,
    as_of: SnapshotPoint | None = None,
    ids: Iterable[str] | None = None,
    with_deleted: bool = False,
) -> pa.Table:
    """Read the records of an object, or some of them, without Spark. Raises ObjectUnknown."""
    rows = fold_view(open_view(lake, entity, as_of), None if ids is None else set(ids)).rows
    return rows if with_deleted else rows.filter(pc.invert(rows[DELETED]))


def replica(
    spark: SparkSession,
    lake: Lake | str,
    entity: str,
    as_of: SnapshotPoint | None = None,
    *,
    with_deleted: bool = False,
) -> DataFrame:
    """Read the records of an object at the newest row of the manifest, or at a snapshot point.

    Raises ObjectUnknown if the lake has nothing of the object there.
    """
    place = Lake(lake) if isinstance(lake, str) else lake
    rows = _read_rows(spark, open_view(place, entity, as_of))
    return rows if with_deleted else rows.where(f"NOT `{DELETED}`")


def create_views(spark: SparkSession, lake: Lake | str, as_of: SnapshotPoint | None = None) -> list[str]:
    """Create views of each object at one snapshot point and return their names.

    The views are `<Entity>` and `<Entity>_history`. Call again to update them.
    """
    place = Lake(lake) if isinstance(lake, str) else lake
    row = newest(place) if as_of is None else find_snapshot_point(place, as_of)
    names: list[str] = []
    for entity in row.entities if row is not None else ():
        moment = AtNumber(row.number) if row is not None else None
        replica(spark, place, entity, moment).createOrReplaceTempView(entity)
        history(spark, place, entity, moment).createOrReplaceTempView(f"{entity}_history")
        names += [entity, f"{entity}_history"]
    return names


def _read_rows(spark: SparkSession, view: ReplicaView) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = replica_schema(view.kinds)
    wanted = from_arrow_schema(schema)
    base = _read_base(spark, view)
    changes = read_spark_changes(spark, view)
    if changes is None:
        return _project(base, view.kinds, []) if base is not None else spark.createDataFrame([], wanted)
    object_wide = read_object_wide(changes)
    # Counted once for both sides of the join: the tables may grow between two counts.
    groups = count_groups(view)
    own = changes.where(f"NOT {IS_OBJECT_WIDE}").withColumn(GROUP, group_key("record_id", groups))
    fold = _folder(view, object_wide)
    if base is None:
        return own.groupBy(GROUP).applyInArrow(lambda group: fold(None, group), wanted)
    touched = own.select(f.col("record_id").alias("_touched")).distinct()
    match = base[RECORD_ID] == touched["_touched"]
    concerned = base if _is_retyped(view) else base.join(touched, match, "left_semi")
    keyed = concerned.withColumn(GROUP, group_key(RECORD_ID, groups))
    folded = keyed.groupBy(GROUP).cogroup(own.groupBy(GROUP)).applyInArrow(fold, wanted)
    if _is_retyped(view):
        return folded
    untouched = base.join(touched, match, "left_anti")
    return _project(untouched, view.kinds, object_wide.to_pylist()).unionByName(folded)


def _read_base(spark: SparkSession, view: ReplicaView) -> DataFrame | None:
    from pyspark.sql.pandas.types import from_arrow_schema

    files = view.base_files()
    if not files:
        return None
    return spark.read.schema(from_arrow_schema(replica_schema(view.base_kinds))).parquet(*files)


def _is_retyped(view: ReplicaView) -> bool:
    """Return whether columns of the base have another type now, so that every row must be folded."""
    return any(view.kinds.get(name, kind) is not kind for name, kind in view.base_kinds.items())


def _project(
    rows: DataFrame, kinds: Mapping[str, Kind], object_wide: Sequence[Mapping[str, object]]
) -> DataFrame:
    """Apply changes about all records to rows of the base that have no other changes."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    nulled: set[str] = set()
    is_stale = False
    for row in object_wide:
        if row["problem"] == WILDCARD and isinstance(row["changed"], list):
            nulled.update(row["changed"])
        else:
            is_stale = True
    columns = []
    for field in from_arrow_schema(replica_schema(kinds)):
        column = f.col(field.name) if field.name in rows.columns else f.lit(None).cast(field.dataType)
        if field.name in nulled:
            is_checkbox = kinds.get(field.name) is Kind.TRUTH
            column = f.when(f.col(DELETED), column).otherwise(f.lit(False if is_checkbox else None))
        elif field.name == STALE and is_stale:
            column = column | ~f.col(DELETED)
        columns.append(column.alias(field.name))
    return rows.select(columns)


def _folder(view: ReplicaView, object_wide: pa.Table) -> Callable[[pa.Table | None, pa.Table], pa.Table]:
    """Return the function for `applyInArrow` that folds the records of one group, on an executor."""
    # Not the view itself: an open table cannot be pickled for executors.
    kinds, through, retyped = view.kinds, view.position, view.retyped
    base_schema = replica_schema(view.base_kinds)

    def fold(base: pa.Table | None, changes: pa.Table) -> pa.Table:
        own = changes.select(READS.names).cast(READS)
        # Spark passes times in the session's time zone.
        present = None if base is None else base.drop_columns([GROUP]).cast(base_schema)
        return fold_records(present, pa.concat_tables([own, object_wide]), kinds, through, retyped).rows

    return fold
