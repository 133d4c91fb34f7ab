"""The Spark pipeline in a process of its own: takes all that the bus holds, and prints the replica of an
object.

    python -m tests.clients.replicate LAKE ENDPOINT CA_PATH URL TOKEN ORG_ID ENTITY FIELD...

Prints one JSON array of the records, each with its Id and the fields.
"""

from __future__ import annotations

import json
import sys
import threading

from tidewire.pipeline.driver.run import PipelineConfig, run_pipeline
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.replicas.replica import replica
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.spark import start_session


def main() -> None:
    """Replicate, then print."""
    path, endpoint, ca_path, url, token, org_id, entity, *fields = sys.argv[1:]
    spark = start_session("local[2]")
    lake = Lake(path)
    bus = BusSettings(
        endpoint, "/data/ChangeEvents", org_id=org_id, token=token, login_url=url, tls_ca=ca_path, retry_s=30
    )
    run_pipeline(PipelineConfig(lake, bus, available_now=True), threading.Event(), spark=spark)
    rows = replica(spark, lake, entity).select("Id", *fields).collect()
    sys.stdout.write(json.dumps([row.asDict() for row in rows]) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
