"""Replicas read by engines that know nothing of us, DuckDB and delta-rs, agree with the manifest."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.control_work import main as read_until_nothing_is_open
from tests.pipeline.histories import write_bronze
from tests.pipeline.maintain_lake import maintain_all
from tests.unit.pipeline.oracle import Org
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.replicas.replica import read_replica


@pytest.fixture(scope="module", params=["changes", "reads"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A folded lake with deletes, undeletes, gaps and several schemas; in the second one also objects read again."""
    made = Lake(str(tmp_path_factory.mktemp("engines") / "lake"))
    if request.param == "reads":
        read_until_nothing_is_open(made, 3)
        maintain_all(made)
        return made
    org = Org(7)
    seen = 0
    for _ in range(3):
        for _ in range(8):
            org.transact()
        write_bronze(made, org.history.events[seen:], org.history.position)
        seen = len(org.history.events)
        apply_all(made, 20)
        maintain_all(made)
    return made


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: str(row["Id"]))


def read_with_duckdb(table: DeltaTable, columns: list[str]) -> pa.Table:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    rows = connection.read_parquet(table.file_uris(), hive_partitioning=True, union_by_name=True)
    found: pa.Table = rows.project(", ".join(f'"{name}"' for name in columns)).to_arrow_table()
    return found


def test_every_base_agrees_with_the_manifest_in_other_engines(lake: Lake) -> None:
    row = manifest.newest(lake)
    assert row is not None
    assert row.entities
    for entity, state in row.entities.items():
        own = read_replica(lake, entity, as_of=state.base_position, with_deleted=True)
        assert state.base_position == row.position
        pinned = DeltaTable(lake.table(f"replica/{entity}"), version=row.table_versions[f"replica/{entity}"])
        expected = by_id(own)
        assert by_id(read_with_duckdb(pinned, own.schema.names).cast(own.schema)) == expected
        assert by_id(pinned.to_pyarrow_table(columns=own.schema.names).cast(own.schema)) == expected


def test_duckdb_finds_the_versions_that_belong_together_in_the_manifest(lake: Lake) -> None:
    rows = duckdb.read_parquet(DeltaTable(lake.table("manifest")).file_uris())
    ((position, versions),) = (
        rows.order("number DESC").limit(1).project("position, table_versions").fetchall()
    )
    row = manifest.newest(lake)
    assert row is not None
    assert position == row.position
    assert json.loads(versions) == row.table_versions


def test_duckdb_queries_a_replica_up_to_the_newest_change(lake: Lake) -> None:
    row = manifest.newest(lake)
    assert row is not None
    for entity in row.entities:
        records = read_replica(lake, entity)
        found = duckdb.connect().from_arrow(records).aggregate("count(*), count(DISTINCT Id)").fetchall()
        assert found == [(records.num_rows, records.num_rows)]
