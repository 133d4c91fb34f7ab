"""The data sources alone, in a plain Spark session, against the real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import tidewire
from tests.pipeline.plain_job import drain
from tests.running import Rest
from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import ReplayIdInvalid
from tidewire.pipeline.driver.run import parse_failure
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.source.archive import archive_batch
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
TOPIC = "/data/AccountChangeEvent"


def options_for(server: ServerProcess, **more: str) -> dict[str, str]:
    return {
        "endpoint": server.grpc,
        "topic": TOPIC,
        "username": DEV_USERNAME,
        "password": DEV_PASSWORD,
        "login_url": server.http,
        "settle_s": "20",  # of a server that is only slow to answer, not quiet
    } | more


def make_accounts(rest: Rest, count: int) -> list[str]:
    return [rest.create("Account", {"Name": f"Source {i}", "AnnualRevenue": i}) for i in range(count)]


def run_query(rows: DataFrame, checkpoint: Path) -> list[dict[str, Any]]:
    """What a query that takes all there is now hands to its batches."""
    seen: list[dict[str, Any]] = []
    lock = threading.Lock()

    def take(batch: DataFrame, batch_id: int) -> None:
        found = [row.asDict() for row in batch.collect()]
        with lock:
            seen.extend(found)

    drain(rows.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)))
    return seen


def test_stream_is_the_same_by_export_and_subscription_and_resumes_after_a_stop(
    spark: SparkSession, fresh_server: ServerProcess, tmp_path: Path
) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    seen: dict[str, list[dict[str, Any]]] = {"": [], "off": []}
    for count in (12, 7):
        make_accounts(rest, count)
        for export, rows in seen.items():
            options = options_for(fresh_server, max_rows="8", rows_per_partition="3", export=export)
            stream = spark.readStream.format("tidewire").options(**options).load()
            rows += run_query(stream, tmp_path / f"cp{export}")
    by_export, by_bus = (sorted(rows, key=lambda row: row["replay_id"]) for rows in seen.values())
    assert len(by_export) == 19
    assert by_export == by_bus
    rest.close()


def test_stream_of_another_servers_log_is_rejected_by_its_incarnation(
    spark: SparkSession, tmp_path: Path
) -> None:
    first_id = ("--first-replay-id", "100")
    for name in ("one", "two"):
        with ServerProcess(tmp_path / name, options=first_id) as server:
            rest = Rest(server.http, server.login())
            make_accounts(rest, 3)
            rest.close()
            stream = spark.readStream.format("tidewire").options(**options_for(server)).load()
            if name == "one":
                assert len(run_query(stream, tmp_path / "cp")) == 3
                continue
            with pytest.raises(StreamingQueryException) as failure:
                run_query(stream, tmp_path / "cp")
            error = parse_failure("q", str(failure.value))
            assert isinstance(error, ReplayIdInvalid)
            assert "another org, or its data was recreated" in error.message


def test_replay_from_the_archive_and_the_bus_equals_the_bus(
    spark: SparkSession, fresh_server: ServerProcess, tmp_path: Path
) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    make_accounts(rest, 9)
    lake = Lake(str(tmp_path / "lake"))
    options = options_for(fresh_server, bronze=lake.path)
    archive = archive_batch(lake, 1, SystemClock())
    stream = spark.readStream.format("tidewire").options(**options).load()
    drain(stream.writeStream.foreachBatch(archive).option("checkpointLocation", str(tmp_path / "archive")))
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    archived = read_rows(bronze)
    assert Counter(archived["change_type"].to_pylist()) == {"CREATE": 9}
    make_accounts(rest, 4)
    rows = {
        name: spark.read.format("tidewire").options(**options_for(fresh_server, **more)).load().toArrow()
        for name, more in {"hybrid": {"archive": lake.path}, "bus": {"export": "off"}}.items()
    }
    hybrid, plain = (table.sort_by("replay_id") for table in rows.values())
    assert hybrid.num_rows == 13
    assert hybrid.equals(plain)
    rest.close()


def test_records_of_an_object_are_read_in_ranges_with_their_fence(
    spark: SparkSession, fresh_server: ServerProcess
) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    ids = make_accounts(rest, 30)
    rest.delete("Account", ids[3])
    options = options_for(fresh_server, entity="Account", rows_per_partition="8", page_rows="5")
    records = spark.read.format("tidewire-records").options(**options).load()
    assert records.rdd.getNumPartitions() == 4
    rows = {row["Id"]: row for row in records.collect()}
    assert set(ids) - set(rows) == {ids[3]}
    assert [rows[record_id]["AnnualRevenue"] for record_id in ids[4:]] == [float(i) for i in range(4, 30)]
    assert all(row["_fence"] == row["_settled"] > 0 for row in rows.values())
    rest.close()


def test_plain_spark_with_the_package_as_a_file_reads_on_its_executors(
    fresh_server: ServerProcess, tmp_path: Path
) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    make_accounts(rest, 12)
    rest.close()
    source = Path(tidewire.__file__).parent
    package = tmp_path / "tidewire.zip"
    with ZipFile(package, "w") as archive:
        for file in source.rglob("*.py"):
            archive.write(file, file.relative_to(source.parent))
    spark_home = Path(pyspark.__file__).parent
    # Executors work below Spark's home, which need not be a place to write to.
    home = tmp_path / "spark"
    home.mkdir()
    for entry in spark_home.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    # The interpreter below the virtual environment knows what is installed there by this path, without its .pth
    # files, and so without us.
    interpreter = os.path.realpath(sys.executable)
    environment = os.environ | {
        "PYTHONPATH": str(spark_home.parent),
        "PYSPARK_PYTHON": interpreter,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
    }
    # Spark's runner of streaming sources, beside the driver, does not see files that are shipped with a job.
    beside_driver = environment | {"PYTHONPATH": f"{spark_home.parent}{os.pathsep}{package}"}
    without = subprocess.run(
        [interpreter, "-c", "import tidewire"], env=environment, cwd=tmp_path, check=False
    )
    assert without.returncode != 0
    job = Path(__file__).parent / "plain_job.py"
    command = [interpreter, str(job), str(package), fresh_server.grpc, fresh_server.http, str(tmp_path)]
    ended = subprocess.run(
        command, env=beside_driver, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, "\n".join(
        line for line in ended.stderr.splitlines() if not line.startswith("\tat")
    )
    told = json.loads(ended.stdout.splitlines()[-1])
    assert "tidewire.zip" in told["driver"]
    assert {place.partition("/tidewire/")[0] for place in told["executors"]} == {"./tidewire.zip"}
    assert (told["events"], told["streamed"], told["records"]) == (12, 12, 12)
