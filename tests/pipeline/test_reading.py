"""Replicas and histories read with Spark equal those read without it, with bases and later changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import History, write_bronze
from tests.unit.pipeline.fold_base import make_base
from tests.unit.pipeline.oracle import ENTITIES, Org
from tidewire import pipeline
from tidewire.clock import ManualClock
from tidewire.errors import ConfigInvalid, ObjectUnknown
from tidewire.pipeline.apply.batch import apply_batch
from tidewire.pipeline.apply.bronze_source import plan_partitions, read_partition
from tidewire.pipeline.apply.history_files import plan_task
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.replicas.record_history import read_history
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.replicas.view import ReplicaView, count_groups

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def apply_by_spark(spark: SparkSession, lake: Lake, after: int, through: int) -> None:
    """One batch of the apply query."""
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    batches = [
        b
        for part in plan_partitions(bronze, Span(after, through))
        for b in plan_task(lake).write(read_partition(part))
    ]
    apply_batch(lake, 1, ManualClock())(spark.createDataFrame(pa.Table.from_batches(batches)), 0)


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["replay_id"], row["record_id"]))


def assert_spark_reads_the_same(
    spark: SparkSession, lake: Lake, entities: Sequence[str], as_of: int | None = None
) -> None:
    for entity in entities:
        expected = read_replica(lake, entity, as_of=as_of, with_deleted=True).sort_by("Id")
        found = pipeline.replica(spark, entity, as_of, lake=lake.path, with_deleted=True).toArrow()
        assert found.cast(expected.schema).sort_by("Id").to_pylist() == expected.to_pylist()
        told = read_history(lake, entity, as_of=as_of)
        traced = pipeline.history(spark, entity, as_of, lake=lake.path).toArrow().cast(told.schema)
        assert by_place(traced.to_pylist()) == by_place(told.to_pylist())


def test_spark_and_arrow_read_the_same_replicas_and_histories(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    org = Org(5)
    for _ in range(20):
        org.transact()
    first, seen = org.history.position, len(org.history.events)
    write_bronze(lake, org.history.events, first)
    apply_by_spark(spark, lake, 0, first)
    for entity in ("Account", "Bill__c"):
        make_base(lake, entity, 1)
    for _ in range(10):
        org.transact()
    write_bronze(lake, org.history.events[seen:], org.history.position)
    apply_by_spark(spark, lake, first, org.history.position)
    assert_spark_reads_the_same(spark, lake, ENTITIES)
    assert_spark_reads_the_same(spark, lake, ["Account"], first)
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert_spark_reads_the_same(elsewhere, lake, ["Account", "Bill__c"])

    names = pipeline.create_views(spark, lake=lake.path)
    assert set(names) == {name for entity in ENTITIES for name in (entity, f"{entity}_history")}
    (live,) = spark.sql("SELECT count(*) AS n FROM Account WHERE NOT _deleted").collect()
    assert live.n == read_replica(lake, "Account").num_rows
    (changes,) = spark.sql("SELECT count(*) AS n FROM Account_history").collect()
    assert changes.n == DeltaTable(lake.table("history/Account")).to_pyarrow_table().num_rows

    origins = read_history(lake, "Account")["origin"].to_pylist()
    own = next(origin for origin in origins if origin)
    for skipped in ([own], f"nobody, {own}"):
        kept = pipeline.history(spark, "Account", lake=lake.path, skip_origins=skipped).toArrow()
        assert kept.num_rows == len([origin for origin in origins if origin != own])
    middle = manifest.newest(lake, first)
    assert middle is not None
    numbered = pipeline.replica(spark, "Account", manifest=middle.number, lake=lake.path).count()
    assert numbered == read_replica(lake, "Account", as_of=first).num_rows
    with pytest.raises(ConfigInvalid):
        pipeline.replica(spark, "Account", first, manifest=middle.number, lake=lake.path)

    with pytest.raises(ObjectUnknown):
        pipeline.replica(spark, "Account", 1, lake=lake.path)
    with pytest.raises(ObjectUnknown):
        pipeline.replica(spark, "Account", datetime(2001, 1, 1, tzinfo=UTC), lake=lake.path)
    row = manifest.newest(lake)
    assert row is not None
    then = datetime.fromtimestamp(row.applied_ms / 1000, UTC)
    assert (
        pipeline.replica(spark, "Contact", then, lake=lake.path).count()
        == read_replica(lake, "Contact").num_rows
    )


def test_replica_read_while_the_pipeline_writes_has_each_record_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, history = Lake(str(tmp_path / "lake")), History()
    ids = [history.create("Account", {"Name": f"n{i}"}) for i in range(8)]

    def say(phone: str) -> None:
        after = history.events[-1].replay_id if history.events else 0
        history.update("Account", ids, {"Phone": phone})
        history.commit()
        write_bronze(lake, [e for e in history.events if e.replay_id > after], history.position)
        apply_all(lake)

    def count_and_write(view: ReplicaView) -> int:
        found = count_groups(view)
        say("2")
        return found

    say("0")
    make_base(lake, "Account", 1)
    say("1")
    expected = read_replica(lake, "Account").sort_by("Id")
    monkeypatch.setattr("tidewire.pipeline.replicas.view.ROWS_PER_GROUP", 1)
    monkeypatch.setattr("tidewire.pipeline.replicas.replica.count_groups", count_and_write)
    found = pipeline.replica(spark, "Account", lake=lake.path).toArrow()
    assert found.cast(expected.schema).sort_by("Id").to_pylist() == expected.to_pylist()
