"""The whole pipeline on Spark against a foreign-looking bus."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.histories import History
from tests.pipeline.history_bus import TOKEN, HistoryBus
from tests.pipeline.verdict import (
    assert_bronze_exact,
    assert_history_complete,
    assert_replicas_true_at_every_batch,
)
from tidewire.errors import ObjectUnknown, ReplayIdInvalid, StoreLocked
from tidewire.pipeline.driver.run import PipelineConfig, run_pipeline
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.replicas.replica import replica
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.status.lake_status import read_status

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def config_for(lake: Lake, endpoint: str, *, available_now: bool = True) -> PipelineConfig:
    """Small batches, so that a short history has several."""
    bus = BusSettings(endpoint, "/data/ChangeEvents", org_id="00D000000000001EAA", token=TOKEN, retry_s=30)
    return PipelineConfig(lake, bus, available_now=available_now, max_rows=60, settle_s=60)


def make_history(transactions: int = 40, *, has_last: bool = True) -> History:
    history = History()
    accounts: list[str] = []
    for i in range(transactions):
        accounts.append(
            history.create("Account", {"Name": f"account {i}", "BillingAddress.City": "Bonn", "Phone": "1"})
        )
        history.create("Invoice__c", {"Name": f"I-{i}", "Total__c": i / 4}, version=0 if i < 20 else 1)
        if i % 3 == 2:
            history.update("Account", accounts[-3:], {"BillingAddress.City": None, "Phone": f"+{i}"})
        if i % 10 == 9:
            history.delete("Account", [accounts[i - 5]])
        history.commit(hidden=i % 2, has_last=has_last)
    return history


@pytest.fixture(scope="module")
def history() -> History:
    return make_history()


@pytest.fixture
def bus(history: History) -> Iterator[HistoryBus]:
    with HistoryBus(history.events, history.position) as server:
        yield server


def reader_options(bus: HistoryBus) -> dict[str, str]:
    return {
        "endpoint": bus.endpoint,
        "topic": "/data/ChangeEvents",
        "org_id": "00D",
        "token": TOKEN,
        "settle_s": "60",
    }


def test_batch_read_over_dropped_streams_gives_every_event_once(
    spark: SparkSession, bus: HistoryBus, history: History
) -> None:
    bus.drop_every = 2
    options = {**reader_options(bus), "rows_per_partition": "50"}
    rows = spark.read.format("tidewire").options(**options).load().collect()
    found = sorted((row.replay_id, row.payload, row.transaction_last) for row in rows)
    assert found == [(e.replay_id, bytes(e.payload), e.transaction_last) for e in history.events]


def test_pipeline_drains_the_bus_and_the_replicas_are_true(
    spark: SparkSession, lake: Lake, bus: HistoryBus, history: History
) -> None:
    bus.drop_every = 2
    status = run_pipeline(config_for(lake, bus.endpoint), threading.Event(), spark=spark)
    assert (status.archived, status.waiting, status.applied_through) == (
        len(history.events),
        0,
        history.position,
    )
    assert status.dead_letters == {}
    assert_bronze_exact(lake, history)
    assert_history_complete(lake, history)
    assert_replicas_true_at_every_batch(lake, history)
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    assert len(bronze.delta.file_uris()) >= len(history.events) / 60

    accounts = {row.Id: row for row in replica(spark, lake, "Account").collect()}
    live = {i: values for (entity, i), values in history.truth.live.items() if entity == "Account"}
    assert {i: (row.Name, row.Phone, row.BillingAddress_City) for i, row in accounts.items()} == {
        i: (v.get("Name"), v.get("Phone"), v.get("BillingAddress_City")) for i, v in live.items()
    }
    assert replica(spark, lake, "Account", with_deleted=True).count() == len(live) + 4
    first_position = history.truths[0][0]
    with pytest.raises(ObjectUnknown):
        replica(spark, lake, "Account", as_of=first_position - 10)


def test_pipeline_without_transaction_marks_applies_whole_transactions(
    spark: SparkSession, lake: Lake
) -> None:
    history = make_history(12, has_last=False)
    with HistoryBus(history.events, history.position + 1) as bus:
        run_pipeline(config_for(lake, bus.endpoint), threading.Event(), spark=spark)
    assert_history_complete(lake, history)
    assert read_status(lake).applied_through == history.position + 1


def test_pipeline_with_deleted_checkpoints_continues_where_the_tables_end(
    spark: SparkSession, lake: Lake
) -> None:
    history = make_history(6)
    with HistoryBus(history.events, history.position) as bus:
        run_pipeline(config_for(lake, bus.endpoint), threading.Event(), spark=spark)
        for query in ("archive", "apply"):
            subprocess.run(["rm", "-r", lake.checkpoint(query)], check=True)
        history.create("Contact", {"Name.LastName": "Late"})
        history.commit(hidden=1)
        bus.events, bus.head = history.events, history.position
        run_pipeline(config_for(lake, bus.endpoint), threading.Event(), spark=spark)
    assert_bronze_exact(lake, history)
    assert_history_complete(lake, history)
    assert_replicas_true_at_every_batch(lake, history)


def test_running_pipeline_follows_the_bus_and_refuses_a_second_driver(
    spark: SparkSession, lake: Lake
) -> None:
    history = make_history(6)
    stop = threading.Event()
    failures: list[BaseException] = []
    with HistoryBus(history.events, history.position) as bus:
        config = config_for(lake, bus.endpoint, available_now=False)

        def run() -> None:
            try:
                run_pipeline(config, stop, spark=spark)
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                failures.append(error)

        worker = threading.Thread(target=run)
        worker.start()
        try:
            wait_until_applied(lake, history.position, worker)
            history.create("Contact", {"Name.LastName": "Later"})
            history.commit()
            bus.events, bus.head = list(history.events), history.position
            wait_until_applied(lake, history.position, worker)
            with pytest.raises(StoreLocked, match="another pipeline"):
                run_pipeline(config, threading.Event(), spark=spark)
        finally:
            stop.set()
            worker.join(120)
    assert failures == []
    assert not worker.is_alive()
    assert_bronze_exact(lake, history)
    assert_replicas_true_at_every_batch(lake, history)


def wait_until_applied(lake: Lake, position: int, worker: threading.Thread) -> None:
    pause = threading.Event()
    applied_through = read_status(lake).applied_through
    for _ in range(2_400):
        if applied_through >= position or not worker.is_alive():
            break
        pause.wait(0.1)
        # One look at a lake that is being written may find it unreadable, and then tells no position.
        applied_through = read_status(lake).applied_through
    assert applied_through == position


def test_pipeline_whose_position_has_expired_says_so(spark: SparkSession, lake: Lake) -> None:
    history = make_history(6)
    with HistoryBus(history.events, history.position) as bus:
        run_pipeline(config_for(lake, bus.endpoint), threading.Event(), spark=spark)
        bus.first_kept = bus.head = history.position + 1000
        with pytest.raises(ReplayIdInvalid, match="the server no longer has the events after replay id"):
            run_pipeline(config_for(lake, bus.endpoint), threading.Event(), spark=spark)
