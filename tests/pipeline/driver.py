"""A pipeline driver in a process of its own, to be killed: `python -m tests.pipeline.driver LAKE ENDPOINT`."""

from __future__ import annotations

import sys
import threading

from tests.pipeline.history_bus import TOKEN
from tidewire.pipeline.bus import BusSettings
from tidewire.pipeline.run import PipelineConfig, run_pipeline
from tidewire.pipeline.tables import Lake


def config_for(lake: Lake, endpoint: str, *, available_now: bool = True) -> PipelineConfig:
    """Small batches, so that a short history has several."""
    bus = BusSettings(endpoint, "/data/ChangeEvents", org_id="00D000000000001EAA", token=TOKEN, retry_s=30)
    return PipelineConfig(lake, bus, available_now=available_now, max_rows=60, settle_s=5)


if __name__ == "__main__":
    run_pipeline(config_for(Lake(sys.argv[1]), sys.argv[2]), threading.Event())
