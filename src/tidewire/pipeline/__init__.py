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

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from tidewire.errors import ConfigInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidewire.pipeline.lake.manifest import SnapshotPoint

LAKE_SETTING = "spark.tidewire.lake"
DEFAULT_LAKE = "data/lake"

__all__ = ["create_views", "history", "replica"]


def replica(
    spark: SparkSession,
    entity: str,
    as_of: int | datetime | None = None,
    *,
    manifest: int | None = None,
    lake: str | None = None,
    with_deleted: bool = False,
) -> DataFrame:
    """The records of an object as one DataFrame: as of the newest applied batch; or, with `as_of`, of the newest
    one at or before a replay id, or applied at or before a time; or as of a row of the manifest, by its number.

    Replicas read with one `as_of` or `manifest` belong together: no transaction shows in one and not in the
    other. The lake is the one that the setting `spark.tidewire.lake` names, or `data/lake`. Raises ObjectUnknown
    if the lake holds nothing of the object there, ReplayIdExpired if it no longer does.
    """
    from tidewire.pipeline.replicas.replica import replica as read

    moment = _snapshot_point_of(as_of, manifest)
    return read(spark, _lake_of(spark, lake), entity, moment, with_deleted=with_deleted)


def history(
    spark: SparkSession,
    entity: str,
    as_of: int | datetime | None = None,
    *,
    manifest: int | None = None,
    lake: str | None = None,
    skip_origins: Iterable[str] = (),
) -> DataFrame:
    """Every change of an object's records: who, when, in which transaction, the record before and after it,
    and from when to when that was its state. Changes whose origin is, or names as its client, one of
    `skip_origins` (names, or one text with commas between them) are left out. Raises as `replica` does.
    """
    from tidewire.pipeline.replicas.record_history import history as read

    moment = _snapshot_point_of(as_of, manifest)
    return read(spark, _lake_of(spark, lake), entity, moment, skip_origins=skip_origins)


def create_views(
    spark: SparkSession,
    as_of: int | datetime | None = None,
    *,
    manifest: int | None = None,
    lake: str | None = None,
) -> list[str]:
    """A temporary view `<Entity>` and one `<Entity>_history` for each object, all at one moment; returns
    their names. Calling it again moves them on.
    """
    from tidewire.pipeline.replicas.replica import create_views as create

    return create(spark, _lake_of(spark, lake), _snapshot_point_of(as_of, manifest))


def _snapshot_point_of(as_of: int | datetime | None, number: int | None) -> SnapshotPoint | None:
    from tidewire.pipeline.lake.manifest import AtNumber

    if number is None:
        return as_of
    if as_of is not None:
        raise ConfigInvalid("give as_of or manifest, not both", setting="as_of")
    return AtNumber(number)


def _lake_of(spark: SparkSession, lake: str | None) -> str:
    return lake or spark.conf.get(LAKE_SETTING, DEFAULT_LAKE) or DEFAULT_LAKE
