"""Replicas for readers: the records of an object at one row of the manifest, with Spark or without.

Rows of the base that nothing has touched since go through Spark as they are; only records with changes after
the base are folded, by executors. Replicas read with one `as_of` belong together: no transaction shows in one
and not in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.columns import DELETED, RECORD_ID, STALE, Kind, kinds_of, replica_schema
from tidewire.pipeline.decode import WILDCARD
from tidewire.pipeline.fold import fold_records
from tidewire.pipeline.manifest import newest
from tidewire.pipeline.reading import (
    GROUP,
    IS_GENERAL,
    ReplicaView,
    count_groups,
    fold_view,
    group_key,
    open_view,
    read_generals,
    read_spark_changes,
)
from tidewire.pipeline.record_history import history
from tidewire.pipeline.tables import READS, Lake, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_replica(
    lake: Lake,
    entity: str,
    *,
    as_of: int | datetime | None = None,
    ids: Iterable[str] | None = None,
    with_deleted: bool = False,
) -> pa.Table:
    """The records of an object (or those with the given ids), read without Spark. Raises ObjectUnknown."""
    rows = fold_view(open_view(lake, entity, as_of), None if ids is None else set(ids)).rows
    return rows if with_deleted else rows.filter(pc.invert(rows[DELETED]))


def replica(
    spark: SparkSession,
    lake: Lake | str,
    entity: str,
    as_of: int | datetime | None = None,
    *,
    with_deleted: bool = False,
) -> DataFrame:
    """The records of an object, as of the newest row of the manifest, or of the newest one at or before a
    replay id or applied at or before a time. Raises ObjectUnknown if the lake has nothing of it there.
    """
    place = Lake(lake) if isinstance(lake, str) else lake
    rows = _read_rows(spark, open_view(place, entity, as_of))
    return rows if with_deleted else rows.where(f"NOT `{DELETED}`")


def create_views(spark: SparkSession, lake: Lake | str, as_of: int | datetime | None = None) -> list[str]:
    """A temporary view `<Entity>` and `<Entity>_history` for each object, all at one row of the manifest;
    returns their names. Calling it again moves them on.
    """
    place = Lake(lake) if isinstance(lake, str) else lake
    row = newest(place, as_of)
    names: list[str] = []
    for entity in row.entities if row is not None else ():
        position = row.position if row is not None else None
        replica(spark, place, entity, position).createOrReplaceTempView(entity)
        history(spark, place, entity, position).createOrReplaceTempView(f"{entity}_history")
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
    generals = read_generals(changes)
    own = changes.where(f"NOT {IS_GENERAL}").withColumn(GROUP, group_key("record_id", count_groups(view)))
    fold = _folder(view.kinds, generals, view.position)
    if base is None:
        return own.groupBy(GROUP).applyInArrow(lambda group: fold(None, group), wanted)
    touched = own.select(f.col("record_id").alias("_touched")).distinct()
    match = base[RECORD_ID] == touched["_touched"]
    concerned = base if _is_retyped(view) else base.join(touched, match, "left_semi")
    keyed = concerned.withColumn(GROUP, group_key(RECORD_ID, count_groups(view)))
    folded = keyed.groupBy(GROUP).cogroup(own.groupBy(GROUP)).applyInArrow(fold, wanted)
    if _is_retyped(view):
        return folded
    untouched = base.join(touched, match, "left_anti")
    return _project(untouched, view.kinds, generals.to_pylist()).unionByName(folded)


def _read_base(spark: SparkSession, view: ReplicaView) -> DataFrame | None:
    from pyspark.sql.pandas.types import from_arrow_schema

    files = view.base_files()
    if view.base is None or not files:
        return None
    schema = from_arrow_schema(replica_schema(kinds_of(arrow_schema(view.base))))
    return spark.read.schema(schema).parquet(*files)


def _is_retyped(view: ReplicaView) -> bool:
    """Whether columns of the base have another type by now, so that every row must be made anew."""
    present = kinds_of(arrow_schema(view.base)) if view.base is not None else {}
    return any(view.kinds.get(name, kind) is not kind for name, kind in present.items())


def _project(
    rows: DataFrame, kinds: Mapping[str, Kind], generals: Sequence[Mapping[str, object]]
) -> DataFrame:
    """Rows of the base that only changes about every record concern."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    nulled: set[str] = set()
    is_stale = False
    for row in generals:
        if row["problem"] == WILDCARD and isinstance(row["changed"], list):
            nulled.update(row["changed"])
        else:
            is_stale = True
    columns = []
    for field in from_arrow_schema(replica_schema(kinds)):
        column = f.col(field.name) if field.name in rows.columns else f.lit(None).cast(field.dataType)
        if field.name in nulled:
            column = f.when(f.col(DELETED), column)
        elif field.name == STALE and is_stale:
            column = column | ~f.col(DELETED)
        columns.append(column.alias(field.name))
    return rows.select(columns)


def _folder(
    kinds: Mapping[str, Kind], generals: pa.Table, through: int
) -> Callable[[pa.Table | None, pa.Table], pa.Table]:
    """The function for `applyInArrow`: folds the records of one group, on an executor."""

    def fold(base: pa.Table | None, changes: pa.Table) -> pa.Table:
        own = changes.select(READS.names).cast(READS)
        present = None if base is None else base.drop_columns([GROUP])
        return fold_records(present, pa.concat_tables([own, generals]), kinds, through).rows

    return fold
