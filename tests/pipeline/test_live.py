"""The pipeline against the real server: SOQL and the replica return the same records."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.running import Rest
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.pipeline.driver.run import PipelineConfig, run_pipeline
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.replicas.replica import replica
from tidewire.pipeline.source.bus import BusSettings
from tidewire.testing import LocalServer, ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
FIELDS = ("Id", "Name", "Phone", "AnnualRevenue", "NumberOfEmployees", "BillingCity", "LastModifiedDate")


def config_for(
    server: ServerProcess | LocalServer, lake: Lake, *, by_oauth: bool, snapshot: bool = False
) -> PipelineConfig:
    bus = BusSettings(
        server.grpc_tls,
        "/data/ChangeEvents",
        username=DEV_USERNAME,
        password=DEV_PASSWORD,
        login_url=server.https,
        tls_ca=str(server.ca_path),
        client_id=DEV_CLIENT_ID if by_oauth else "",
        client_secret=DEV_CLIENT_SECRET if by_oauth else "",
    )
    return PipelineConfig(lake, bus, available_now=True, max_rows=40, settle_s=3, snapshot=snapshot)


def soql_accounts(rest: Rest) -> dict[str, tuple[Any, ...]]:
    records = rest.query(f"SELECT {', '.join(FIELDS)} FROM Account")
    return {record["Id"]: tuple(record[name] for name in FIELDS[1:]) for record in records}


def replica_accounts(spark: SparkSession, lake: Lake) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for row in replica(spark, lake, "Account").collect():
        modified: datetime = row.LastModifiedDate.astimezone(UTC)
        text = modified.strftime("%Y-%m-%dT%H:%M:%S.000+0000")
        found[row.Id] = (
            row.Name,
            row.Phone,
            row.AnnualRevenue,
            row.NumberOfEmployees,
            row.BillingAddress_City,
            text,
        )
    return found


def write_accounts(rest: Rest, count: int) -> None:
    ids = [
        rest.create(
            "Account",
            {"Name": f"Live {i}", "Phone": str(i), "BillingCity": "Bonn", "AnnualRevenue": i / 2},
        )
        for i in range(count)
    ]
    for i, record_id in enumerate(ids):
        if i % 3 == 0:
            rest.update("Account", record_id, {"Phone": None, "BillingCity": "Lyon", "NumberOfEmployees": i})
        if i % 5 == 0:
            rest.delete("Account", record_id)


def test_replica_of_a_live_server_equals_soql_over_a_server_kill(
    spark: SparkSession, fresh_server: ServerProcess, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    rest = Rest(fresh_server.http, fresh_server.login())
    write_accounts(rest, 30)
    status = run_pipeline(config_for(fresh_server, lake, by_oauth=True), threading.Event(), spark=spark)
    assert status.waiting == 0
    assert status.dead_letters == {}
    assert replica_accounts(spark, lake) == soql_accounts(rest) != {}
    rest.close()

    fresh_server.kill()
    fresh_server.restart()
    rest = Rest(fresh_server.http, fresh_server.login())
    write_accounts(rest, 12)
    run_pipeline(config_for(fresh_server, lake, by_oauth=False), threading.Event(), spark=spark)
    assert replica_accounts(spark, lake) == soql_accounts(rest)
    rest.close()


def test_position_that_the_server_has_dropped_is_made_up_for_by_reading(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with LocalServer(form="process") as server:
        rest = Rest(server.http, server.login())
        write_accounts(rest, 6)
        config = config_for(server, lake, by_oauth=True, snapshot=True)
        run_pipeline(config, threading.Event(), spark=spark)
        write_accounts(rest, 6)
        rest.close()
        server.advance(4 * 86_400)
        rest = Rest(server.http, server.login())
        write_accounts(rest, 3)
        lines: list[str] = []
        status = run_pipeline(config, threading.Event(), spark=spark, report=lines.append)
        assert "the server has dropped the next events; recovering" in lines
        assert (status.health, status.problem, status.resyncing, status.waiting) == ("stopped", "", (), 0)
        assert replica_accounts(spark, lake) == soql_accounts(rest) != {}
        rest.close()


def test_new_lake_of_a_quiet_server_is_copied_without_a_query_that_finds_nothing(
    spark: SparkSession, fresh_server: ServerProcess, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    rest = Rest(fresh_server.http, fresh_server.login())
    rest.create("Account", {"Name": "Only"})
    config = config_for(fresh_server, lake, by_oauth=True, snapshot=True)
    lines: list[str] = []
    status = run_pipeline(config, threading.Event(), spark=spark, report=lines.append)
    # What a busy machine makes Spark do again is no step of its own.
    assert [line for line in lines if not line.startswith("retrying: ")] == [
        "requesting a snapshot of all records",
        "archiving what the server has",
        "reading records",
        "folding replicas",
    ]
    assert (status.resyncing, status.dirty) == ((), 0)
    assert replica_accounts(spark, lake) == soql_accounts(rest) != {}
    rest.close()
