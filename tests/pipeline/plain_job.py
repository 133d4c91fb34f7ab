"""A job of somebody who has Spark and the package as a file, and nothing else of ours.

`python plain_job.py ZIP ENDPOINT URL FOLDER` prints, as JSON, where driver and executors have the package from and what
they read with it. Neither has it installed; executors have nothing but the shipped file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

_LATE = "Python worker failed to connect back"


def where(_: Iterable[int]) -> Iterator[str]:
    """Where an executor has the package from."""
    import tidewire.pipeline.source.event_source

    yield str(tidewire.pipeline.source.event_source.__file__)


def drain(writer: DataStreamWriter) -> None:
    """Let a query take all there is now."""
    for tries_left in reversed(range(8)):
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as error:
            # Spark gives a planner's process ten seconds to start, which are not enough on a busy machine.
            if not tries_left or _LATE not in str(error):
                raise
        else:
            return


def main(package: str, endpoint: str, url: str, folder: str) -> None:
    """Read a channel once and as a stream, and the records of an object."""
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
    context = spark.sparkContext
    context.addPyFile(package)
    import tidewire
    from tidewire.pipeline.source.event_source import TidewireSource
    from tidewire.pipeline.source.records_source import RecordsSource

    spark.dataSource.register(TidewireSource)
    spark.dataSource.register(RecordsSource)
    server = {
        "endpoint": endpoint,
        "login_url": url,
        "username": "admin@tidewire.local",
        "password": "tidewire",
    }
    channel = server | {"topic": "/data/AccountChangeEvent", "rows_per_partition": "4"}
    by_bus = spark.read.format("tidewire").options(**channel, export="off", settle_s="60").load()
    events = spark.readStream.format("tidewire").options(**channel).load()
    drain(
        events.writeStream.format("parquet")
        .option("path", f"{folder}/events")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    records = spark.read.format("tidewire-records").options(**server, entity="Account").load()
    told = {
        "driver": tidewire.__file__,
        "executors": context.parallelize(range(4), 4).mapPartitions(where).collect(),
        "events": by_bus.count(),
        "streamed": spark.read.parquet(f"{folder}/events").count(),
        "records": records.count(),
    }
    spark.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
