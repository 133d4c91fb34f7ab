"""`tidewire pipeline ...`: the lake, from the command line.

Spark, Arrow and Delta are an extra, so each command imports what it needs when it is called.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from tidewire.cli.client_options import credentials_options
from tidewire.cli.output import json_option, show, show_table
from tidewire.client.login import Credentials
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid
from tidewire.telemetry import configure_logging

if TYPE_CHECKING:
    from tidewire.pipeline.bus import BusSettings
    from tidewire.pipeline.progress import Progress
    from tidewire.pipeline.records_reading import RecordsReader
    from tidewire.pipeline.tables import Lake

_LAKE = click.option(
    "--lake",
    "lake_path",
    default="data/lake",
    show_default=True,
    envvar="TIDEWIRE_LAKE",
    help="directory of the Delta tables",
)
_MASTER = click.option(
    "--master", default="local[2]", show_default=True, help="Spark master: local[N], spark://... or k8s://..."
)
_MISSING_EXTRA = "pip install 'tidewire[spark]'"


@click.group()
def pipeline() -> None:
    """Keep a lake of every change: archive, history and replicas, on Spark."""


def _server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds where events and records come from, handed over as one `bus` argument."""

    @wraps(command)
    def with_bus(
        endpoint: str, topic: str, tls_ca: str, tls: bool, credentials: Credentials, **others: Any
    ) -> Any:
        with _needing_extra():
            from tidewire.pipeline.bus import BusSettings

        bus = BusSettings(
            endpoint=endpoint,
            topic=topic,
            username=credentials.username,
            password=credentials.password,
            login_url=credentials.login_url,
            client_id=credentials.client_id,
            client_secret=credentials.client_secret,
            tls_ca=tls_ca,
            tls=tls,
        )
        return command(bus=bus, **others)

    wrapped: Callable[..., Any] = credentials_options(with_bus)
    for option in (
        click.option("--tls", is_flag=True, help="TLS with the usual public certificates"),
        click.option("--tls-ca", default="", help="certificate to trust; the connection is then TLS"),
        click.option("--topic", default="/data/ChangeEvents", show_default=True, help="the channel to keep"),
        click.option(
            "--endpoint", default="localhost:7011", show_default=True, help="the Pub/Sub API, HOST:PORT"
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


@contextmanager
def _needing_extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigInvalid(
            f"the pipeline needs {error.name}, which is not installed: {_MISSING_EXTRA}", setting="spark"
        ) from error


@pipeline.command()
@_LAKE
@_MASTER
@click.option("--once", is_flag=True, help="take what is there now, then end")
@click.option(
    "--snapshot/--no-snapshot",
    "has_snapshot",
    default=True,
    show_default=True,
    help="begin a new lake with a copy of all records",
)
@click.option("--metrics", default="", metavar="HOST:PORT", help="answer GET /metrics for Prometheus there")
@click.option("--trigger-ms", default=200, show_default=True, help="how often to look for events")
@click.option("--max-rows", default=20_000, show_default=True, help="events a batch, more or less")
@click.option("--keep-bronze-days", type=float, help="drop archived events of this age; default: never")
@click.option(
    "--keep-history-days", type=float, help="drop changes of this age that bases hold; default: never"
)
@click.option("--readable-hours", default=168.0, show_default=True, help="how long past moments can be read")
@click.option("--heal-from", default="", help="another lake to take expired events from")
@json_option
@_server_options
def run(
    lake_path: str,
    master: str,
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
    """Archive and apply until told to stop, and keep the lake in order.

    Example: tidewire pipeline run --once --lake ./data/lake
    """
    configure_logging("WARNING")
    with _needing_extra():
        from tidewire.pipeline.compaction import CompactionRules
        from tidewire.pipeline.run import PipelineConfig, run_pipeline
        from tidewire.pipeline.tables import Lake
    stop = _stop_on_signals()
    config = PipelineConfig(
        lake=Lake(lake_path),
        bus=bus,
        master=master,
        available_now=once,
        snapshot=has_snapshot,
        metrics=metrics,
        trigger_ms=trigger_ms,
        max_rows=max_rows,
        heal_from=Lake(heal_from) if heal_from else None,
        compaction=CompactionRules(
            readable_s=readable_hours * 3600,
            keep_bronze_days=keep_bronze_days,
            keep_history_days=keep_history_days,
        ),
    )
    status = asdict(run_pipeline(config, stop, report=_progress().say))
    show(status, as_json=as_json, text=_describe(status))


@pipeline.command()
@_LAKE
@json_option
def status(lake_path: str, as_json: bool) -> None:
    """Show how far the lake has come. Works while the pipeline runs, and when it does not."""
    with _needing_extra():
        from tidewire.pipeline.status import read_status
        from tidewire.pipeline.tables import Lake
    found = asdict(read_status(Lake(lake_path)))
    show(found, as_json=as_json, text=_describe(found))


@pipeline.command()
@_LAKE
@click.argument("entities", nargs=-1)
@json_option
@_server_options
def snapshot(lake_path: str, entities: tuple[str, ...], as_json: bool, bus: BusSettings) -> None:
    """Copy all records, or those of some objects, into the lake. What is missing in it is filled in, what is
    wrong put right, and an interrupted copy goes on where it was; `run` then applies what has changed since.

    Example: tidewire pipeline snapshot Account Contact
    """
    with _reading(lake_path, bus) as (lake, epoch, reader):
        from tidewire.pipeline import manifest
        from tidewire.pipeline import snapshot as snapshots
        from tidewire.pipeline.resync import Resyncer

        clock, stop, progress = SystemClock(), _stop_on_signals(), _progress()
        position = snapshots.start(lake, epoch, reader, clock, list(entities) or None)
        manifest.refresh(lake, epoch, clock.now_ms())
        resyncer = Resyncer(lake, epoch, reader, clock)
        rows: dict[str, int] = {}
        last: dict[str, str] = {}
        while not stop.is_set():
            found = resyncer.advance()
            for each in found:
                rows[each.entity], last[each.entity] = each.rows, each.state
                progress.show(f"reading {each.entity}", each.rows, None)
            if not any(each.state == "reading" for each in found):
                break
        progress.done()
        result = {"position": position, "rows": rows, "states": last}
        text = "\n".join(f"{entity}: {n:,} records, {last[entity]}" for entity, n in sorted(rows.items()))
        show(result, as_json=as_json, text=text or "nothing to read")


@pipeline.command()
@_LAKE
@json_option
@_server_options
def reconcile(lake_path: str, as_json: bool, bus: BusSettings) -> None:
    """Read again the records that gap events and the like have made uncertain. A running pipeline does this
    by itself.
    """
    with _reading(lake_path, bus) as (lake, epoch, reader):
        from tidewire.pipeline.control import open_dirty
        from tidewire.pipeline.reconcile import Reconciler

        clock, stop, progress = SystemClock(), _stop_on_signals(), _progress()
        total = sum(len(records) for records in open_dirty(lake).values())
        reconciler = Reconciler(lake, epoch, reader, clock)
        done = 0
        while not stop.is_set() and (count := reconciler.once()) > 0:
            done += count
            progress.show("reading records", done, max(total, done))
        progress.done()
        left = sum(len(records) for records in open_dirty(lake).values())
        show({"read": done, "left": left}, as_json=as_json, text=f"{done} records read, {left} left")


@pipeline.command()
@_LAKE
@click.argument("entities", nargs=-1)
@click.option("--heal/--no-heal", default=True, show_default=True, help="read again what differs")
@json_option
@_server_options
def audit(lake_path: str, entities: tuple[str, ...], heal: bool, as_json: bool, bus: BusSettings) -> None:
    """Compare replicas with the server by counts and content, and put right what differs."""
    with _reading(lake_path, bus) as (lake, epoch, reader):
        from tidewire.pipeline import manifest
        from tidewire.pipeline.audit import audit as audit_entity

        clock, stop, progress = SystemClock(), _stop_on_signals(), _progress()
        row = manifest.newest(lake)
        names = list(entities) or sorted(row.entities if row is not None else ())
        reports: list[dict[str, Any]] = []
        for number, entity in enumerate(names):
            if stop.is_set():
                break
            progress.show(f"comparing {entity}", number, len(names))
            reports.append(asdict(audit_entity(lake, epoch, reader, entity, clock, heal=heal)))
        progress.done()
        columns = [name for name in reports[0] if not isinstance(reports[0][name], dict)] if reports else []
        show_table(reports, columns, as_json=as_json)


@pipeline.command()
@_LAKE
@json_option
@_server_options
def usage(lake_path: str, as_json: bool, bus: BusSettings) -> None:
    """Take over the server's hourly counts of published and delivered events."""
    with _reading(lake_path, bus) as (lake, epoch, reader):
        from tidewire.pipeline import usage as usages

        count = usages.roll_up(lake, epoch, reader, SystemClock())
        show({"rows": count}, as_json=as_json, text=f"{count} rows written to usage/hourly")


@pipeline.command()
@_LAKE
@click.option("--readable-hours", default=168.0, show_default=True, help="how long past moments can be read")
@json_option
def compact(lake_path: str, readable_hours: float, as_json: bool) -> None:
    """Fold all replicas now, join small files, and delete what nothing needs. A running pipeline does this by
    itself, little by little.
    """
    with _lease(lake_path) as (lake, epoch):
        from tidewire.pipeline import manifest
        from tidewire.pipeline.compaction import CompactionRules, Compactor
        from tidewire.pipeline.maintain import Maintainer

        clock, stop, progress = SystemClock(), _stop_on_signals(), _progress()
        row = manifest.newest(lake)
        entities = sorted(row.entities if row is not None else ())
        maintainer = Maintainer(lake, epoch, clock)
        compactor = Compactor(lake, epoch, clock, CompactionRules(readable_s=readable_hours * 3600))
        names = compactor.names()
        total = len(entities) + len(names) + 1
        folded = joined = 0
        for number, entity in enumerate(entities):
            if stop.is_set():
                return
            progress.show(f"folding {entity}", number, total)
            folded += maintainer.fold(entity) is not None
        for number, name in enumerate(compactor.names()):
            if stop.is_set():
                return
            progress.show(f"joining {name}", len(entities) + number, total)
            report = compactor.join(name, at_least=2)
            joined += report.joined if report is not None else 0
        progress.show("deleting what nothing needs", total - 1, total)
        compactor.forget_done()
        compactor.drop_old()
        deleted = sum(report.deleted for report in compactor.delete_unnamed())
        progress.done()
        result = {"folded": folded, "joined": joined, "deleted": deleted}
        show(
            result,
            as_json=as_json,
            text=f"{folded} replicas folded, {joined} files joined, {deleted} deleted",
        )


@pipeline.command()
@_LAKE
@click.argument("entity")
@click.argument("record_id")
@click.option("--yes", is_flag=True, help="do not ask")
@json_option
def purge(lake_path: str, entity: str, record_id: str, yes: bool, as_json: bool) -> None:
    """Remove one record from archive, history, reads and replica, for good."""
    if not yes:
        click.confirm(f"Remove every trace of {entity} {record_id} from {lake_path}?", abort=True)
    with _lease(lake_path) as (lake, epoch):
        from tidewire.pipeline import purge as purging

        result = asdict(purging.purge(lake, epoch, entity, record_id, SystemClock()))
        show(result, as_json=as_json, text=_lines(result))


@pipeline.command()
@_LAKE
@click.argument("replay_ids", nargs=-1, type=int)
@json_option
def retry(lake_path: str, replay_ids: tuple[int, ...], as_json: bool) -> None:
    """Try dead letters again: all of them, or those of the given events."""
    with _lease(lake_path) as (lake, epoch):
        from tidewire.pipeline import dead_letters

        report = dead_letters.retry(lake, epoch, SystemClock(), replay_ids=replay_ids or None)
        text = f"{report.applied} applied, {report.dirty} to be read again, {report.failed} still dead"
        show(asdict(report), as_json=as_json, text=text)


@contextmanager
def _lease(path: str) -> Iterator[tuple[Lake, int]]:
    """Hold a lake's lease; yields the lake and the epoch. No Spark is started."""
    configure_logging("WARNING")
    with _needing_extra():
        from tidewire.pipeline.lease import hold_lease
        from tidewire.pipeline.tables import Lake
    with hold_lease(path) as epoch:
        yield Lake(path), epoch


@contextmanager
def _reading(path: str, bus: BusSettings) -> Iterator[tuple[Lake, int, RecordsReader]]:
    """Hold a lake's lease and read records of a server."""
    with _lease(path) as (lake, epoch):
        from tidewire.pipeline.records_reading import RecordsReader

        reader = RecordsReader(bus)
        try:
            yield lake, epoch, reader
        finally:
            reader.close()


def _progress() -> Progress:
    from tidewire.pipeline.progress import Progress

    return Progress(sys.stderr, SystemClock())


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _describe(status: dict[str, Any]) -> str:
    """A status for people."""
    unread = status["unread"]
    lines = [
        f"health            {status['health']}" + (f" ({status['problem']})" if status["problem"] else ""),
        f"archived          {status['archived']:,} events, through {status['archived_through']}"
        + ("" if unread is None else f", {unread:,} positions behind the server"),
        f"applied           through {status['applied_through']}",
        f"lag               {status['waiting']:,} events, {status['lag_ms'] / 1000:.1f} s",
        f"open transaction  {status['open_transaction_ms'] / 1000:.1f} s",
        f"dirty records     {status['dirty']:,}",
        f"resyncing         {', '.join(status['resyncing']) or 'none'}",
    ]
    if status["failed"]:
        lines.append(f"cannot be read    {', '.join(status['failed'])}")
    for reason, count in sorted(status["dead_letters"].items()):
        lines.append(f"dead letters      {count:,} {reason}")
    for row in status["replicas"]:
        version = status["table_versions"].get(f"replica/{row['entity']}", "-")
        lines.append(
            f"replica           {row['entity']}: {row['live']:,} live, {row['deleted']:,} deleted, "
            f"{row['stale']:,} stale, {row['pending']:,} changes since version {version}"
        )
    return "\n".join(lines)


def _lines(values: dict[str, Any]) -> str:
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in values.items())
