"""`tidewire pipeline run` and `status`: run the pipeline of a lake, and show its status."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from tidewire.cli import pipeline_work
from tidewire.cli.output import json_option, show
from tidewire.cli.pipeline_forward import forward
from tidewire.cli.pipeline_options import (
    check_amount,
    find_lake,
    lake_option,
    make_progress,
    needing_extra,
    readable_option,
    server_options,
    spark_options,
    stop_on_signals,
)
from tidewire.telemetry import configure_logging

if TYPE_CHECKING:
    from tidewire.pipeline.lake.tables import Lake
    from tidewire.pipeline.source.bus import BusSettings

_GRACE_S = 10.0
"""How long a stop may take. The current batch is waited for; a start that cannot be interrupted is not."""


@click.group()
def pipeline() -> None:
    """Keep every change in a lake: archive, history and replicas, with Spark."""


for _command in (*pipeline_work.COMMANDS, forward):
    pipeline.add_command(_command)


@pipeline.command()
@lake_option
@spark_options("local[2]")
@click.option("--once", is_flag=True, help="process what is available now, then exit")
@click.option(
    "--snapshot/--no-snapshot",
    "has_snapshot",
    default=True,
    show_default=True,
    help="start a new lake with a snapshot of all records",
)
@click.option(
    "--metrics", default="", metavar="HOST:PORT", help="serve GET /metrics for Prometheus at this address"
)
@click.option(
    "--trigger-ms",
    default=200,
    show_default=True,
    type=click.IntRange(0, 3_600_000),
    help="how often to poll for events",
)
@click.option(
    "--max-rows",
    default=20_000,
    show_default=True,
    type=click.IntRange(1, 10_000_000),
    help="approximate number of events per batch",
)
@click.option(
    "--keep-bronze-days",
    type=float,
    callback=check_amount,
    help="drop archived events older than this; default: never",
)
@click.option(
    "--keep-history-days",
    type=float,
    callback=check_amount,
    help="drop changes older than this that are folded into bases; default: never",
)
@readable_option
@click.option(
    "--heal-from", default="", help="another lake from which to copy events that the server has dropped"
)
@json_option
@server_options
def run(
    lake_path: str,
    master: str,
    settings: dict[str, str],
    once: bool,
    has_snapshot: bool,
    metrics: str,
    trigger_ms: int,
    max_rows: int,
    keep_bronze_days: float | None,
    keep_history_days: float | None,
    readable_hours: float,
    heal_from: str,
    as_json: bool,
    bus: BusSettings,
) -> None:
    """Run the pipeline until it is stopped: archive, apply, and maintain the lake.

    Example: tidewire pipeline run --once --lake ./data/lake
    """
    configure_logging("WARNING")
    with needing_extra():
        from tidewire.pipeline.driver.run import PipelineConfig, run_pipeline
        from tidewire.pipeline.lake.tables import Lake
        from tidewire.pipeline.upkeep.compaction import CompactionRules
    stop, ended, progress = stop_on_signals(), threading.Event(), make_progress()
    config = PipelineConfig(
        lake=Lake(lake_path),
        bus=bus,
        master=master,
        spark_settings=settings,
        available_now=once,
        snapshot=has_snapshot,
        metrics=metrics,
        trigger_ms=trigger_ms,
        max_rows=max_rows,
        heal_from=find_lake(heal_from) if heal_from else None,
        compaction=CompactionRules(
            readable_s=readable_hours * 3600,
            keep_bronze_days=keep_bronze_days,
            keep_history_days=keep_history_days,
        ),
    )
    threading.Thread(target=_end_in_time, args=(config.lake, stop, ended), daemon=True).start()
    try:
        found = asdict(run_pipeline(config, stop, report=progress.say, show=progress.show))
    finally:
        progress.done()
        ended.set()
    show(found, as_json=as_json, text=_describe(found))


def _end_in_time(lake: Lake, stop: threading.Event, ended: threading.Event) -> None:
    """End the process some time after a stop was requested, whatever it is doing.

    What was not committed is repeated by the next run.
    """
    stop.wait()
    if ended.wait(_GRACE_S):
        return
    from tidewire.pipeline.status.lake_status import STOPPED, read_status, write_status

    try:
        write_status(lake, replace(read_status(lake), health=STOPPED, problem=""))
    finally:
        os._exit(0)


@pipeline.command()
@lake_option
@json_option
def status(lake_path: str, as_json: bool) -> None:
    """Show the status of the lake, whether the pipeline is running or not."""
    lake = find_lake(lake_path)
    from tidewire.pipeline.status.lake_status import read_status

    found = asdict(read_status(lake))
    show(found, as_json=as_json, text=_describe(found))


def _describe(status: dict[str, Any]) -> str:
    """Return a status as text for people."""
    unread = status["unread"]
    lines = [
        f"health              {status['health']}" + (f" ({status['problem']})" if status["problem"] else ""),
        f"archived            {status['archived']:,} events, through {status['archived_through']}"
        + ("" if unread is None else f", {unread:,} positions behind the server"),
        f"applied             through {status['applied_through']}",
        f"lag                 {status['waiting']:,} events, {status['lag_ms'] / 1000:.1f} s",
        f"open transaction    {status['open_transaction_ms'] / 1000:.1f} s",
        f"dirty records       {status['dirty']:,}",
        f"resyncing           {', '.join(status['resyncing']) or 'none'}",
    ]
    if status["failed"]:
        lines.append(
            f"unreadable objects  {', '.join(status['failed'])}; see the log, then run: tidewire pipeline snapshot"
        )
    if status["given_up"]:
        lines.append(
            f"unreadable records  {status['given_up']:,}; see the log, then run: tidewire pipeline reconcile"
        )
    for reason, count in sorted(status["dead_letters"].items()):
        lines.append(f"dead letters        {count:,} {reason}; to retry, run: tidewire pipeline retry")
    others = {
        name: version for name, version in status["table_versions"].items() if not name.startswith("replica/")
    }
    if others:
        versions = ", ".join(f"{name} {version}" for name, version in others.items())
        lines.append(f"table versions      {versions}")
    for row in status["replicas"]:
        version = status["table_versions"].get(f"replica/{row['entity']}", "-")
        lines.append(
            f"replica             {row['entity']}: {row['live']:,} live, {row['deleted']:,} deleted, "
            f"{row['stale']:,} stale, {row['pending']:,} changes since version {version}"
        )
    return "\n".join(lines)
