"""`tidewire pipeline ...`: the lake, from the command line."""

from __future__ import annotations

import json
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any

import click

from tidewire.cli.client_options import credentials_options
from tidewire.client.login import Credentials
from tidewire.telemetry import configure_logging

_LAKE = click.option("--lake", default="data/lake", show_default=True, help="directory of the Delta tables")


@click.group()
def pipeline() -> None:
    """Keep a lake of every change: archive, history and replicas, on Spark."""


@pipeline.command()
@_LAKE
@click.option("--endpoint", default="localhost:7011", show_default=True, help="the Pub/Sub API, HOST:PORT")
@click.option("--topic", default="/data/ChangeEvents", show_default=True, help="the channel to keep")
@click.option("--tls-ca", default="", help="certificate to trust; without it the connection is plain")
@click.option("--master", default="local[2]", show_default=True, help="Spark master")
@click.option("--once", is_flag=True, help="take what is there now, then end")
@credentials_options
def run(
    lake: str, endpoint: str, topic: str, tls_ca: str, master: str, once: bool, credentials: Credentials
) -> None:
    """Run the archive and apply queries until told to stop.

    Example: tidewire pipeline run --once --lake ./data/lake
    """
    configure_logging("WARNING")
    from tidewire.pipeline.bus import (
        BusSettings,
    )  # Spark and Arrow are an extra: only this command needs them
    from tidewire.pipeline.run import PipelineConfig, run_pipeline
    from tidewire.pipeline.tables import Lake

    bus = BusSettings(
        endpoint=endpoint,
        topic=topic,
        username=credentials.username,
        password=credentials.password,
        login_url=credentials.login_url,
        client_id=credentials.client_id,
        client_secret=credentials.client_secret,
        tls_ca=tls_ca,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    config = PipelineConfig(lake=Lake(lake), bus=bus, master=master, available_now=once)
    _show(asdict(run_pipeline(config, stop)))


@pipeline.command()
@_LAKE
def status(lake: str) -> None:
    """Show how far the lake has come, as JSON. Works while the pipeline runs, and when it does not."""
    from tidewire.pipeline.status import read_status
    from tidewire.pipeline.tables import Lake

    _show(asdict(read_status(Lake(lake))))


def _show(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
