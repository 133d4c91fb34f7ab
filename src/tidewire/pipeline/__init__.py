"""The pipeline: keep every change in a lake, with one replica per object, written and read by Spark.

Reads from: the public Pub/Sub and REST APIs of a server, through `tidewire.client`. Feeds: plain Delta tables under
one directory (lake/tables.py). Guarantee: every event of the channel is in every table exactly once, whichever
process dies at whatever time; readers of the manifest see whole transactions across all objects; an event that
cannot be applied is in dead_letter with its reason, or its record is read again through the records API. Never does:
import server code, or touch the server's own store.

The steps, one package each; a package imports only those above it:

    lake      the tables, the commit rule, the manifest, the lease
    source    bus or log export -> event_source -> archive -> bronze; records through REST
    replicas  base + history + reads -> fold -> replicas and record history for readers
    apply     bronze_source (whole transactions) -> decode -> history_files -> batch -> manifest
    upkeep    fenced reads of records, resync, audit; history folded into bases; compaction, purge
    status    what the tables say, health while running, metrics, usage
    driver    the Spark driver: queries, supervision, the worker thread

`replica`, `history` and `create_views` are for Spark jobs; without Spark use `read_replica` and `read_history` of
`tidewire.pipeline.replicas`.
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
    """Return the records of an object as a DataFrame, at the newest snapshot point or a given one.

    `as_of` is a replay id (the newest batch at or before it) or a time (the newest batch applied at or before
    it); `manifest` is the number of a row of the manifest. Replicas read with one `as_of` or `manifest` are
    consistent: no transaction shows in one and not in the other. The lake is that of the setting
    `spark.tidewire.lake`, by default `data/lake`. Raises ObjectUnknown if the lake holds nothing of the
    object there, ReplayIdExpired if it no longer does.
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
    """Return every change of an object's records, with the record before and after it.

    Each row has the user, time and transaction, and the time range of the new state. Changes whose origin is,
    or names as its client, one of `skip_origins` (names, or one comma-separated text) are omitted. Raises as
    `replica` does.
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
    """Create temporary views `<Entity>` and `<Entity>_history` of each object; return their names.

    All are at one snapshot point. Call again to update them.
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
