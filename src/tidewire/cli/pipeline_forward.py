"""`tidewire pipeline forward`: write the changes in a lake to a sink of Spark."""

from __future__ import annotations

from dataclasses import asdict

import click

from tidewire.cli.output import json_option, show
from tidewire.cli.pipeline_options import (
    find_lake,
    lake_option,
    needing_extra,
    parse_pairs,
    spark_options,
    stop_on_signals,
)
from tidewire.telemetry import configure_logging

_EVERY_S = 1.0


@click.command()
@lake_option
@click.option("--to", "sink_format", required=True, metavar="FORMAT", help="kafka, delta, parquet, json, ...")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _ctx, _param, value: parse_pairs(value, "sink option"),
    help="an option of the format; {entity} and {number} are replaced; repeatable",
)
@click.option("--name", default="", help="name under which progress is stored; default: the format")
@click.option(
    "--mode",
    type=click.Choice(["append", "overwrite"]),
    default="append",
    show_default=True,
    help="write mode",
)
@spark_options("local[1]")
@click.option("--once", is_flag=True, help="forward what is available now, then exit")
@json_option
def forward(
    lake_path: str,
    sink_format: str,
    options: dict[str, str],
    name: str,
    mode: str,
    master: str,
    settings: dict[str, str],
    once: bool,
    as_json: bool,
) -> None:
    """Forward the changes in a lake to any sink that Spark can write, in log order and whole transactions.

    Add jars for further formats with --conf spark.jars=...

    Example: tidewire pipeline forward --once --to json --option path=./changes --lake ./data/lake
    """
    configure_logging("WARNING")
    lake = find_lake(lake_path)
    with needing_extra():
        from tidewire.pipeline.forwarding import Sink, load_progress
        from tidewire.pipeline.forwarding import forward as forward_batch
        from tidewire.pipeline.spark import start_session
    sink = Sink(name or sink_format.replace("-", "_"), sink_format, options, mode)
    stop = stop_on_signals()
    session = start_session(master, settings)
    try:
        while not stop.is_set():
            batch = forward_batch(session, lake, sink)
            if batch is None and (once or stop.wait(_EVERY_S)):
                break
        done = load_progress(lake, sink.name).done
        show(asdict(done), as_json=as_json, text=f"forwarded up to {done.through} in {done.number} batches")
    finally:
        session.stop()
