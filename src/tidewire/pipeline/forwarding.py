"""Forwarding: write the changes in a lake to any sink for which Spark has a writer.

A sink is the name of a Spark format and its options. Kafka, Delta and Iceberg need jars from the operator
(`spark.jars`, `spark.jars.packages`); parquet, JSON and others are built in. A batch forwards what history
holds after the last forwarded position, up to the newest row of the manifest: whole transactions, in log
order. It is independent of the pipeline and may run beside it.

Batches are numbered. The span of a batch is stored in `<lake>/forward/<name>.json` before it is written and
marked as done after, so an interrupted batch is repeated under its number with the same rows. A sink that
recognizes a repeated number then has every change once: options may contain `{number}`, as in a path that is
overwritten or in Delta's `txnVersion`. Kafka has no such option; there replay id and sequence identify a
repeated change.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from tidewire.errors import ConfigInvalid, LogCorrupt, StoreClosed, StoreLocked
from tidewire.faults import crash_point
from tidewire.names import is_api_name
from tidewire.pipeline.lake.files import list_files, replace_file
from tidewire.pipeline.lake.manifest import NO_POSITION, newest
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import HISTORY, Lake, try_open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "forward"
KAFKA = "kafka"
_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Sink:
    """Where changes go.

    `name` identifies its progress; `format`, `options` and `mode` are for Spark's writer.

    In options `{number}` is replaced by the batch's number and `{entity}` by an object, each of which is then
    written separately.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "append"

    def options_for(self, number: int, entity: str) -> dict[str, str]:
        """Return the options of one write."""
        return {
            name: text.replace("{number}", str(number)).replace("{entity}", entity)
            for name, text in self.options.items()
        }

    @property
    def is_by_entity(self) -> bool:
        """Return whether each object is written separately."""
        return any("{entity}" in text for text in self.options.values())


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """What one batch forwards: the changes after one position, up to another."""

    number: int
    after: int
    through: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch that is done, and the one begun after it, if any."""

    done: ForwardBatch
    begun: ForwardBatch | None = None


def forward(spark: SparkSession, lake: Lake, sink: Sink) -> ForwardBatch | None:
    """Forward what is new and return the batch; None if there was nothing. Blocks.

    Raises StoreLocked if another process forwards under this name, ConfigInvalid if Spark has no such sink or
    it rejects the options, StoreClosed if writing fails.
    """
    if not is_api_name(sink.name):
        raise ConfigInvalid(
            f"{sink.name!r} is not a valid sink name: use letters, digits and _ only", setting="name"
        )
    with hold_name(lake, sink.name):
        progress = load_progress(lake, sink.name)
        batch = progress.begun or _next_batch(lake, progress.done)
        if batch is None:
            return None
        _keep_progress(lake, sink.name, Progress(progress.done, batch))
        crash_point("pipeline.forward.before_write")
        _write(spark, lake, sink, batch)
        crash_point("pipeline.forward.after_write")
        _keep_progress(lake, sink.name, Progress(batch))
        return batch


def load_progress(lake: Lake, name: str) -> Progress:
    """Return the progress of a sink. Raises LogCorrupt if its file cannot be read."""
    path = os.path.join(lake.path, FOLDER, f"{name}.json")
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        return Progress(
            _parse_batch(stored["done"]), _parse_batch(stored["begun"]) if stored["begun"] else None
        )
    except FileNotFoundError:
        return Progress(ForwardBatch(0, NO_POSITION, NO_POSITION))
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorrupt(f"{path} cannot be read; delete it to forward everything again") from error


def _parse_batch(stored: Mapping[str, Any]) -> ForwardBatch:
    return ForwardBatch(int(stored["number"]), int(stored["after"]), int(stored["through"]))


def _keep_progress(lake: Lake, name: str, progress: Progress) -> None:
    replace_file(os.path.join(lake.path, FOLDER, f"{name}.json"), json.dumps(asdict(progress)))


@contextmanager
def hold_name(lake: Lake, name: str) -> Iterator[None]:
    """Hold the lock of a sink's name; it dies with its process. Raises StoreLocked."""
    os.makedirs(os.path.join(lake.path, FOLDER), exist_ok=True)
    descriptor = os.open(os.path.join(lake.path, FOLDER, f"{name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreLocked(f"another process is forwarding {lake.path} under the name {name}") from error
    finally:
        os.close(descriptor)


def _next_batch(lake: Lake, done: ForwardBatch) -> ForwardBatch | None:
    row = newest(lake)
    if row is None or row.position <= done.through:
        return None
    return ForwardBatch(done.number + 1, done.through, row.position)


def _write(spark: SparkSession, lake: Lake, sink: Sink, batch: ForwardBatch) -> None:
    by_entity = {
        entity: rows
        for entity in lake.names("history")
        if (rows := _changes(spark, lake, entity, batch)) is not None
    }
    if not by_entity:
        return
    if sink.is_by_entity:
        for entity, rows in by_entity.items():
            _write_rows(rows, sink, batch.number, entity.partition("/")[2])
    else:
        joined = reduce(lambda left, right: left.unionByName(right), by_entity.values())
        _write_rows(joined, sink, batch.number, "")


def _changes(spark: SparkSession, lake: Lake, name: str, batch: ForwardBatch) -> DataFrame | None:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    table = try_open_table(lake, name)
    files = [] if table is None else list_files(table, Span(batch.after, batch.through))
    if not files:
        return None
    rows = spark.read.schema(from_arrow_schema(HISTORY)).parquet(*files)
    wanted = (f.col("replay_id") > batch.after) & (f.col("replay_id") <= batch.through)
    return rows.where(wanted).select(f.lit(name.partition("/")[2]).alias("entity"), "*")


def _write_rows(rows: DataFrame, sink: Sink, number: int, entity: str) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, PySparkException

    # One task: the order of the log is the order of the sink.
    ordered = rows.coalesce(1).sortWithinPartitions("replay_id", "sequence", "record_id")
    shaped = _as_messages(ordered) if sink.format == KAFKA else ordered
    writer = shaped.write.format(sink.format).options(**sink.options_for(number, entity)).mode(sink.mode)
    try:
        writer.save()
    except (PySparkException, Py4JError) as error:
        reason = _reason(error)
        if isinstance(error, AnalysisException) or _NOT_FOUND in str(error):
            raise ConfigInvalid(
                f"Spark cannot write to {sink.format!r}: {reason} (jars of a sink are named by "
                "--conf spark.jars=... or --conf spark.jars.packages=...)",
                setting="format",
            ) from error
        raise StoreClosed(f"the sink {sink.name} failed: {reason}") from error


def _as_messages(rows: DataFrame) -> DataFrame:
    """Return the two columns of Kafka: the record's id, and the change as JSON."""
    from pyspark.sql import functions as f

    columns = [
        f.parse_json(name).alias(name.removesuffix("_json")) if name.endswith("_json") else f.col(name)
        for name in rows.columns
    ]
    return rows.select(f.col("record_id").alias("key"), f.to_json(f.struct(*columns)).alias("value"))


def _reason(error: Exception) -> str:
    """Return the line of a Spark error that has the reason; the first ones only say where."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
    stored = [line for line in lines if not line.startswith("An error occurred while calling")]
    return stored[0] if stored else type(error).__name__
