"""Forwarding: the changes in a lake, handed on through any sink that Spark has a writer for.

A sink is the name of a Spark format and its options. Kafka, Delta and Iceberg come as jars that the operator
supplies (`spark.jars`, `spark.jars.packages`); parquet, JSON and the rest are built in. A turn forwards what
history holds after the position forwarded last, up to the newest row of the manifest: whole transactions, in
the order of the log. It takes part in nothing that the pipeline does, so it may run beside it or not at all.

Turns are counted. What a turn covers is noted in `<lake>/forward/<name>.json` before it is written and struck
off after, so one that is interrupted comes again under its number with the same rows. A sink that can tell a
repeated number then has every change once: options may say `{number}`, as in a path that is overwritten or in
Delta's `txnVersion`. Kafka has no such word; there a repeated change is told by its replay id and sequence.
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
from tidewire.pipeline.lake.files import list_files, sync_file
from tidewire.pipeline.lake.manifest import NO_POSITION, newest
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import HISTORY, Lake, try_open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "forward"
KAFKA = "kafka"
_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
_PLACES = ("{number}", "{entity}")


@dataclass(frozen=True, slots=True)
class Sink:
    """Where changes go. `name` is whose progress it is; `format`, `options` and `mode` are for Spark's writer.

    In options `{number}` stands for the turn and `{entity}` for an object, each of which is then written by itself.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "append"

    def options_for(self, number: int, entity: str) -> dict[str, str]:
        """The options of one write."""
        values = {"{number}": str(number), "{entity}": entity}
        filled = dict(self.options)
        for place in _PLACES:
            filled = {name: text.replace(place, values[place]) for name, text in filled.items()}
        return filled

    @property
    def is_by_entity(self) -> bool:
        """Whether each object is written by itself."""
        return any("{entity}" in text for text in self.options.values())


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """What one turn forwards: the changes after one position, up to another."""

    number: int
    after: int
    through: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The last turn that is done, and the one that was begun after it, if any."""

    done: ForwardBatch
    begun: ForwardBatch | None = None


def forward(spark: SparkSession, lake: Lake, sink: Sink) -> ForwardBatch | None:
    """Forward what is new; the turn, or None if there was nothing. Blocks.

    Raises StoreLocked if somebody else forwards under this name, ConfigInvalid if Spark has no such sink or it
    refuses the options, StoreClosed if writing fails.
    """
    if not is_api_name(sink.name):
        raise ConfigInvalid(f"{sink.name!r} is no name of a sink: letters, digits and _ only", setting="name")
    with hold_name(lake, sink.name):
        progress = load_progress(lake, sink.name)
        turn = progress.begun or _next_turn(lake, progress.done)
        if turn is None:
            return None
        _keep_progress(lake, sink.name, Progress(progress.done, turn))
        crash_point("pipeline.forward.before_write")
        _write(spark, lake, sink, turn)
        crash_point("pipeline.forward.after_write")
        _keep_progress(lake, sink.name, Progress(turn))
        return turn


def load_progress(lake: Lake, name: str) -> Progress:
    """How far a sink has come. Raises LogCorrupt if its file cannot be read."""
    path = os.path.join(lake.path, FOLDER, f"{name}.json")
    try:
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        return Progress(_parse_turn(told["done"]), _parse_turn(told["begun"]) if told["begun"] else None)
    except FileNotFoundError:
        return Progress(ForwardBatch(0, NO_POSITION, NO_POSITION))
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorrupt(f"{path} cannot be read; take it away to forward everything again") from error


def _parse_turn(told: Mapping[str, Any]) -> ForwardBatch:
    return ForwardBatch(int(told["number"]), int(told["after"]), int(told["through"]))


def _keep_progress(lake: Lake, name: str, progress: Progress) -> None:
    def render(turn: ForwardBatch | None) -> dict[str, int] | None:
        return None if turn is None else asdict(turn)

    path = os.path.join(lake.path, FOLDER, f"{name}.json")
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump({"done": render(progress.done), "begun": render(progress.begun)}, file)
    sync_file(f"{path}.new")
    os.replace(f"{path}.new", path)


@contextmanager
def hold_name(lake: Lake, name: str) -> Iterator[None]:
    """Be the only one who forwards under a name; the lock dies with its process."""
    os.makedirs(os.path.join(lake.path, FOLDER), exist_ok=True)
    descriptor = os.open(os.path.join(lake.path, FOLDER, f"{name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreLocked(f"somebody else forwards {lake.path} under the name {name}") from error
    finally:
        os.close(descriptor)


def _next_turn(lake: Lake, done: ForwardBatch) -> ForwardBatch | None:
    row = newest(lake)
    if row is None or row.position <= done.through:
        return None
    return ForwardBatch(done.number + 1, done.through, row.position)


def _write(spark: SparkSession, lake: Lake, sink: Sink, turn: ForwardBatch) -> None:
    by_entity = {
        entity: rows
        for entity in lake.names("history")
        if (rows := _changes(spark, lake, entity, turn)) is not None
    }
    if not by_entity:
        return
    if sink.is_by_entity:
        for entity, rows in by_entity.items():
            _write_rows(rows, sink, turn.number, entity.partition("/")[2])
    else:
        joined = reduce(lambda left, right: left.unionByName(right), by_entity.values())
        _write_rows(joined, sink, turn.number, "")


def _changes(spark: SparkSession, lake: Lake, name: str, turn: ForwardBatch) -> DataFrame | None:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    table = try_open_table(lake, name)
    files = [] if table is None else list_files(table, Span(turn.after, turn.through))
    if not files:
        return None
    rows = spark.read.schema(from_arrow_schema(HISTORY)).parquet(
        *(os.path.join(lake.table(name), path) for path in files)
    )
    wanted = (f.col("replay_id") > turn.after) & (f.col("replay_id") <= turn.through)
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
    """The two columns that Kafka has: the record's id, and the change as JSON."""
    from pyspark.sql import functions as f

    columns = [
        f.parse_json(name).alias(name.removesuffix("_json")) if name.endswith("_json") else f.col(name)
        for name in rows.columns
    ]
    return rows.select(f.col("record_id").alias("key"), f.to_json(f.struct(*columns)).alias("value"))


def _reason(error: Exception) -> str:
    """The line that says why: what the bridge to Java says first is only where."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return told[0] if told else type(error).__name__
