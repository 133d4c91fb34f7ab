"""The lake: every change kept, and one replica per object, written and read by Spark.

Reads from: the public Pub/Sub API of a server, through `tidewire.client`. Feeds: plain Delta tables under
one directory (tables.py). Guarantee: every event of the channel is in every table exactly once whatever dies
when, readers of the manifest see whole transactions over all objects, and what cannot be applied is in
dead_letter with its reason or read again through the records API. Never does: import server code, or touch
the server's own store.

The flow, one module a step:

    bus -> source -> archive -> bronze -> bronze_source -> decode -> history_files -> apply -> manifest
                                            (transactions cut it)    (planning: dirty, resync, dead letters)
    records API -> records_reading -> reads              history + reads + base -> fold -> replicas
                                                                                    fold -> maintain -> base

`replica`, `history` and `create_views` are what a Spark job calls; without Spark there are
`replicas.read_replica` and `record_history.read_history`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAKE_SETTING = "spark.tidewire.lake"
DEFAULT_LAKE = "data/lake"

__all__ = ["create_views", "history", "replica"]


def replica(
    spark: SparkSession,
    entity: str,
    as_of: int | datetime | None = None,
    *,
    lake: str | None = None,
    with_deleted: bool = False,
) -> DataFrame:
    """The records of an object as one DataFrame, as of the newest applied batch, or of the newest one at or
    before a replay id, or applied at or before a time.

    Replicas read with one `as_of` belong together: no transaction shows in one and not in the other. The
    lake is the one that the setting `spark.tidewire.lake` names, or `data/lake`. Raises ObjectUnknown.
    """
    from tidewire.pipeline.replicas import replica as read

    return read(spark, _lake_of(spark, lake), entity, as_of, with_deleted=with_deleted)


def history(
    spark: SparkSession, entity: str, as_of: int | datetime | None = None, *, lake: str | None = None
) -> DataFrame:
    """Every change of an object's records: who, when, in which transaction, the record before and after it,
    and from when to when that was its state. Raises ObjectUnknown.
    """
    from tidewire.pipeline.record_history import history as read

    return read(spark, _lake_of(spark, lake), entity, as_of)


def create_views(
    spark: SparkSession, as_of: int | datetime | None = None, *, lake: str | None = None
) -> list[str]:
    """A temporary view `<Entity>` and one `<Entity>_history` for each object, all at one moment; returns
    their names. Calling it again moves them on.
    """
    from tidewire.pipeline.replicas import create_views as create

    return create(spark, _lake_of(spark, lake), as_of)


def _lake_of(spark: SparkSession, lake: str | None) -> str:
    return lake or spark.conf.get(LAKE_SETTING, DEFAULT_LAKE) or DEFAULT_LAKE
