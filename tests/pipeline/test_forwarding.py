"""Forwarding through Spark's writers: to a real Kafka with its jars, and to files without any."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import write_bronze
from tests.unit.pipeline.oracle import Org
from tidewire.errors import ConfigInvalid, LogCorrupt, StoreLocked
from tidewire.pipeline.forwarding import FOLDER, ForwardBatch, Sink, forward, hold_name, load_progress
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.testing.process import choose_ports

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
KAFKA = Path(__file__).parent / "kafka"
CONNECTOR = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class GrowingLake:
    """A lake of a made-up org that does a few transactions at a time."""

    def __init__(self, path: Path) -> None:
        self.lake = Lake(str(path))
        self._org = Org(11)
        self._seen = 0

    def grow(self, transactions: int) -> None:
        for _ in range(transactions):
            self._org.transact()
        history = self._org.history
        write_bronze(self.lake, history.events[self._seen :], history.position)
        self._seen = len(history.events)
        apply_all(self.lake)

    def changes(self) -> list[tuple[int, int, str]]:
        """Every change in history by its place."""
        tables = [try_open_table(self.lake, name) for name in self.lake.names("history")]
        rows = [row for table in tables if table is not None for row in read_rows(table).to_pylist()]
        return sorted(place_of(row) for row in rows)


def place_of(row: dict[str, Any]) -> tuple[int, int, str]:
    return row["replay_id"], row["sequence"], row["record_id"]


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    made = GrowingLake(tmp_path / "lake")
    made.grow(8)
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """A Kafka of one node; its address."""
    port, controller_port = choose_ports(2)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(tmp_path / "kafka"),
        "offsets.topic.replication.factor": "1",
    }
    file = tmp_path / "kafka.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx256m", "-cp", f"{KAFKA}/lib/*"]
    format_ = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
    subprocess.run(format_, check=True, capture_output=True)
    log = (tmp_path / "kafka.log").open("wb")
    process = subprocess.Popen([*java, "kafka.Kafka", str(file)], stdout=log, stderr=log)
    try:
        wait_for_port(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        log.close()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            continue
        return
    raise AssertionError("Kafka has not started")


def kafka_options(broker: str) -> list[str]:
    jars = sorted(str(jar) for jar in (KAFKA / "lib").glob("*.jar") if jar.name.startswith(CONNECTOR))
    options = ["--to", "kafka", "--conf", f"spark.jars={','.join(jars)}"]
    return [*options, "--option", f"kafka.bootstrap.servers={broker}", "--option", "topic=changes"]


def forward_to_kafka(lake: Lake, broker: str) -> dict[str, int]:
    """The command as an operator would give it."""
    command = [sys.executable, "-m", "tidewire.cli", "pipeline", "forward", "--once", "--json"]
    command += ["--lake", lake.path, *kafka_options(broker)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    told: dict[str, int] = json.loads(ended.stdout)
    return told


def read_topic(broker: str) -> list[tuple[str, dict[str, Any]]]:
    reader = ["java", "-cp", f"{KAFKA}/lib/*", str(KAFKA / "ReadTopic.java"), broker, "changes"]
    lines = subprocess.run(reader, capture_output=True, text=True, check=True).stdout.splitlines()
    return [(line.partition("\t")[0], json.loads(line.partition("\t")[2])) for line in lines]


def test_changes_reach_a_real_kafka_once_in_the_order_of_the_log(growing: GrowingLake, broker: str) -> None:
    assert forward_to_kafka(growing.lake, broker)["number"] == 1
    assert [place_of(value) for _, value in read_topic(broker)] == growing.changes()
    growing.grow(4)
    assert forward_to_kafka(growing.lake, broker)["number"] == 2
    messages = read_topic(broker)
    assert [place_of(value) for _, value in messages] == growing.changes()
    assert all(key == value["record_id"] for key, value in messages)
    created = next(value for _, value in messages if value["change_type"] == "CREATE")
    assert isinstance(created["values"], dict)
    assert created["entity"]


def test_turn_killed_after_it_reached_kafka_comes_again_whole_and_in_order(
    growing: GrowingLake, broker: str
) -> None:
    run_killed(growing.lake, kafka_options(broker), "pipeline.forward.after_write")
    once = growing.changes()
    growing.grow(2)
    assert forward_to_kafka(growing.lake, broker)["number"] == 2
    # The turn twice over, then what is new: each in the order of the log, and nothing missing.
    assert [place_of(value) for _, value in read_topic(broker)] == once + growing.changes()


def read_files(folder: Path) -> list[tuple[int, int, str]]:
    lines = [line for file in folder.rglob("*.json") for line in file.read_text().splitlines()]
    return sorted(place_of(json.loads(line)) for line in lines)


def test_turn_that_was_interrupted_comes_again_under_its_number(
    spark: SparkSession, growing: GrowingLake, tmp_path: Path
) -> None:
    options = {"path": f"{tmp_path}/out/{{entity}}/{{number}}"}
    sink = Sink("files", "json", options, "overwrite")
    progress = Path(growing.lake.path, FOLDER, "files.json")
    first = forward(spark, growing.lake, sink)
    assert first is not None
    assert forward(spark, growing.lake, sink) is None
    growing.grow(3)
    second = forward(spark, growing.lake, sink)
    assert second == ForwardBatch(2, first.through, load_progress(growing.lake, "files").done.through)
    whole = read_files(tmp_path / "out")
    assert whole == growing.changes()
    # As a crash right after the write leaves it, with more in the lake by the time of the next start.
    noted = {"done": json.loads(progress.read_text())["done"] | {"number": 1, "through": first.through}}
    begun = {"number": 2, "after": second.after, "through": second.through}
    progress.write_text(json.dumps({**noted, "begun": begun}))
    growing.grow(3)
    assert forward(spark, growing.lake, sink) == second
    assert read_files(tmp_path / "out") == whole
    third = forward(spark, growing.lake, sink)
    assert third is not None
    assert (third.number, third.after) == (3, second.through)
    assert read_files(tmp_path / "out") == growing.changes()


def run_killed(lake: Lake, options: list[str], point: str) -> None:
    """The command, until it dies at the first pass of a crash point."""
    command = [sys.executable, "-m", "tidewire.cli", "pipeline", "forward", "--once", "--lake", lake.path]
    ended = subprocess.run(
        [*command, *options],
        env={**os.environ, "TIDEWIRE_CRASH_AT": f"{point}:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def read_parquet(folder: Path) -> list[tuple[int, int, str]]:
    files = sorted(folder.rglob("*.parquet"))
    return sorted(place_of(row) for file in files for row in pq.read_table(file).to_pylist())


def test_command_killed_at_each_of_its_points_leaves_every_change_once_in_files(
    spark: SparkSession, growing: GrowingLake, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--to", "parquet", "--mode", "overwrite", "--option", f"path={out}/{{entity}}/{{number}}"]
    sink = Sink("parquet", "parquet", {"path": f"{out}/{{entity}}/{{number}}"}, "overwrite")
    run_killed(growing.lake, options, "pipeline.forward.before_write")
    assert not out.exists()
    first = growing.changes()
    growing.grow(2)
    run_killed(growing.lake, options, "pipeline.forward.after_write")
    assert read_parquet(out) == first  # the turn that was begun, and no more than that
    assert load_progress(growing.lake, "parquet").begun is not None
    numbers = []
    while (turn := forward(spark, growing.lake, sink)) is not None:
        numbers.append(turn.number)
    assert numbers == [1, 2]
    assert read_parquet(out) == growing.changes()


def test_sink_that_spark_does_not_have_is_rejected_with_what_helps(
    spark: SparkSession, growing: GrowingLake
) -> None:
    for unknown in ("kafka", "nonsense"):
        with pytest.raises(ConfigInvalid, match=r"spark\.jars"):
            forward(spark, growing.lake, Sink("one", unknown, {"topic": "t"}))
    with pytest.raises(ConfigInvalid, match="is not a valid sink name"):
        forward(spark, growing.lake, Sink("../one", "json"))
    assert not os.path.exists(os.path.join(growing.lake.path, FOLDER, "..one.json"))


def test_two_cannot_forward_under_one_name_and_a_damaged_note_is_reported(
    spark: SparkSession, growing: GrowingLake, tmp_path: Path
) -> None:
    sink = Sink("mine", "json", {"path": str(tmp_path / "out")})
    with hold_name(growing.lake, "mine"), pytest.raises(StoreLocked):
        forward(spark, growing.lake, sink)
    Path(growing.lake.path, FOLDER, "mine.json").write_text("{")
    with pytest.raises(LogCorrupt, match=r"mine\.json cannot be read"):
        forward(spark, growing.lake, sink)
