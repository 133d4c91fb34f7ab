"""Archive without Spark: the same steps in one process, from the export of a live server."""

from __future__ import annotations

from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.pipeline.lake.receipts import parse_receipts
from tidewire.pipeline.lake.schemas import append_schemas, load_schemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake, append_files, open_table
from tidewire.pipeline.source.archive import merge_schemas
from tidewire.pipeline.source.bronze_files import BronzeTask
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.source.event_source import ROWS
from tidewire.pipeline.source.log_export import MAX_ROWS, LogExport
from tidewire.testing import ServerProcess


def settings_for(server: ServerProcess, topic: str = "/data/ChangeEvents") -> BusSettings:
    """The server's events, read as its administrator."""
    return BusSettings(
        server.grpc, topic, username=DEV_USERNAME, password=DEV_PASSWORD, login_url=server.http, retry_s=60
    )


def archive_all(lake: Lake, settings: BusSettings, epoch: int = 1) -> int:
    """Archive what the server has after bronze; returns how far it goes."""
    bus = Bus(settings, SystemClock())
    export = LogExport(bus)
    try:
        bronze = open_table(lake, "bronze")
        after = max(bronze.floor, 0)
        plan = export.plan(after, limit=MAX_ROWS)
        if plan.through <= bronze.floor:
            return bronze.floor
        task = BronzeTask(lake.table("bronze"), bronze.floor, load_schemas(lake), settings, bus.session())
        batches = [batch.select(ROWS.names) for batch in export.read(Span(plan.after, plan.through))]
        rows = [row for found in task.write(batches) for row in found.to_pylist()]
        receipts = parse_receipts(rows)
        append_schemas(lake, merge_schemas(receipts), epoch)
        actions = [file.add_action(0) for file in receipts.files]
        append_files(bronze, actions, plan.through, epoch)
        return plan.through
    finally:
        export.close()
        bus.close()
