"""`tidewire pipeline snapshot`, `reconcile`, `audit` and other commands on a lake that need no Spark."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tidewire.cli.output import json_option, show, show_table
from tidewire.cli.pipeline_options import (
    find_lake,
    holding,
    lake_option,
    make_progress,
    readable_option,
    reading,
    server_options,
    stop_on_signals,
)
from tidewire.clock import SystemClock
from tidewire.errors import IdMalformed
from tidewire.ids import try_normalise_id

if TYPE_CHECKING:
    from tidewire.pipeline.source.bus import BusSettings


@click.command()
@lake_option
@click.argument("entities", nargs=-1)
@json_option
@server_options
def snapshot(lake_path: str, entities: tuple[str, ...], as_json: bool, bus: BusSettings) -> None:
    """Copy all records, or those of some objects, into the lake.

    Missing records are added, wrong ones corrected, and an interrupted copy continues where it stopped. `run` then
    applies the changes since.

    Example: tidewire pipeline snapshot Account Contact
    """
    with reading(lake_path, bus, is_new=True) as (lake, epoch, reader):
        from tidewire.pipeline.lake import manifest
        from tidewire.pipeline.upkeep import snapshot as snapshots
        from tidewire.pipeline.upkeep.resync import Resyncer

        clock, stop, progress = SystemClock(), stop_on_signals(), make_progress()
        position = snapshots.start(lake, epoch, reader, clock, list(entities) or None)
        manifest.refresh(lake, epoch, clock.now_ms())
        resyncer = Resyncer(lake, epoch, reader, clock)
        rows: dict[str, int] = {}
        last: dict[str, str] = {}
        while not stop.is_set():
            found = resyncer.advance()
            for each in found:
                rows[each.entity], last[each.entity] = each.rows, each.state
                progress.show(f"reading {each.entity}", each.rows, each.expected)
            if not any(each.state == "reading" for each in found):
                break
        progress.done()
        result = {"position": position, "rows": rows, "states": last}
        text = "\n".join(f"{entity}: {n:,} records, {last[entity]}" for entity, n in sorted(rows.items()))
        show(result, as_json=as_json, text=text or "nothing to read")


@click.command()
@lake_option
@json_option
@server_options
def reconcile(lake_path: str, as_json: bool, bus: BusSettings) -> None:
    """Read records again whose events were incomplete (gap events, for example).

    A running pipeline does this by itself, except for records that the server has refused: this command retries them.
    """
    with reading(lake_path, bus) as (lake, epoch, reader):
        from tidewire.pipeline.lake.control import open_dirty
        from tidewire.pipeline.lake.dirty import failed_records
        from tidewire.pipeline.upkeep.reconcile import Reconciler

        clock, stop, progress = SystemClock(), stop_on_signals(), make_progress()
        total = sum(len(records) for records in open_dirty(lake).values())
        reconciler = Reconciler(lake, epoch, reader, clock)
        done = 0
        while not stop.is_set() and (count := reconciler.once()) > 0:
            done += count
            progress.show("reading records", done, max(total, done))
        refused = sum(len(records) for records in failed_records(lake).values())
        if refused and not stop.is_set():
            done += reconciler.retry_failed(refused)
        progress.done()
        left = sum(len(records) for records in open_dirty(lake).values())
        unreadable = sum(len(records) for records in failed_records(lake).values())
        text = f"{done} records read, {left} left, {unreadable} refused by the server"
        show({"read": done, "left": left, "given_up": unreadable}, as_json=as_json, text=text)


@click.command()
@lake_option
@click.argument("entities", nargs=-1)
@click.option("--heal/--no-heal", default=True, show_default=True, help="correct records that differ")
@json_option
@server_options
def audit(lake_path: str, entities: tuple[str, ...], heal: bool, as_json: bool, bus: BusSettings) -> None:
    """Compare replicas with the server by counts and content, and correct differences."""
    with reading(lake_path, bus) as (lake, epoch, reader):
        from tidewire.pipeline.lake import manifest
        from tidewire.pipeline.upkeep.audit import audit as audit_entity

        clock, stop, progress = SystemClock(), stop_on_signals(), make_progress()
        names = list(entities) or sorted(manifest.entities(lake))
        reports: list[dict[str, Any]] = []
        for number, entity in enumerate(names):
            if stop.is_set():
                break
            progress.show(f"comparing {entity}", number, len(names))
            reports.append(asdict(audit_entity(lake, epoch, reader, entity, clock, heal=heal)))
        progress.done()
        columns = [name for name in reports[0] if not isinstance(reports[0][name], dict)] if reports else []
        show_table(reports, columns, as_json=as_json)


@click.command()
@lake_option
@json_option
@server_options
def usage(lake_path: str, as_json: bool, bus: BusSettings) -> None:
    """Store the server's hourly counts of published and delivered events in the lake."""
    with reading(lake_path, bus) as (lake, epoch, reader):
        from tidewire.pipeline.status import usage as usages

        count = usages.roll_up(lake, epoch, reader, SystemClock())
        show({"rows": count}, as_json=as_json, text=f"{count} rows written to usage/hourly")


@click.command()
@lake_option
@readable_option
@json_option
def compact(lake_path: str, readable_hours: float, as_json: bool) -> None:
    """Fold all replicas, merge small files, and delete unneeded files.

    A running pipeline does this by itself, in small steps.
    """
    with holding(lake_path) as (lake, epoch):
        from tidewire.pipeline.lake import manifest
        from tidewire.pipeline.upkeep.compaction import CompactionRules, Compactor
        from tidewire.pipeline.upkeep.maintain import Maintainer

        clock, stop, progress = SystemClock(), stop_on_signals(), make_progress()
        entities = sorted(manifest.entities(lake))
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
            progress.show(f"merging {name}", len(entities) + number, total)
            report = compactor.join(name, at_least=2)
            joined += report.joined if report is not None else 0
        progress.show("deleting unneeded files", total - 1, total)
        compactor.forget_done()
        compactor.drop_old()
        deleted = sum(report.deleted for report in compactor.delete_unnamed())
        progress.done()
        result = {"folded": folded, "joined": joined, "deleted": deleted}
        show(
            result,
            as_json=as_json,
            text=f"{folded} replicas folded, {joined} files merged, {deleted} deleted",
        )


@click.command()
@lake_option
@click.argument("entity")
@click.argument("record_id")
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@json_option
def purge(lake_path: str, entity: str, record_id: str, yes: bool, as_json: bool) -> None:
    """Remove one record from archive, history, reads and replica, permanently."""
    if not yes:
        click.confirm(f"Remove every trace of {entity} {record_id} from {lake_path}?", abort=True)
    with holding(lake_path) as (lake, epoch):
        from tidewire.pipeline.upkeep import purge as purging

        result = asdict(purging.purge(lake, epoch, entity, record_id, SystemClock()))
        show(result, as_json=as_json, text=_lines(result))


@click.command()
@lake_option
@click.argument("replay_ids", nargs=-1, type=int)
@json_option
def retry(lake_path: str, replay_ids: tuple[int, ...], as_json: bool) -> None:
    """Retry dead letters: all of them, or those of the given events."""
    with holding(lake_path) as (lake, epoch):
        from tidewire.pipeline.apply import dead_letters

        report = dead_letters.retry(lake, epoch, SystemClock(), replay_ids=replay_ids or None)
        text = f"{report.applied} applied, {report.dirty} to read again, {report.failed} still dead"
        show(asdict(report), as_json=as_json, text=text)


@click.command()
@lake_option
@click.argument("entity")
@click.argument("record_id")
@json_option
def history(lake_path: str, entity: str, record_id: str, as_json: bool) -> None:
    """Show every change of one record: time, user, changed fields, and the record after it.

    Works while the pipeline runs.

    Example: tidewire pipeline history Account 001000000000001AAA
    """
    lake = find_lake(lake_path)
    from tidewire.pipeline.replicas.record_history import read_history

    wanted = try_normalise_id(record_id)
    if wanted is None:
        raise IdMalformed(f"{record_id[:40]!r} is not a record id")
    rows = read_history(lake, entity, ids=[wanted]).to_pylist()
    changes = [
        {name: str(value) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
        if row["record_id"] == wanted
    ]
    columns = ["replay_id", "valid_from", "change_type", "user_id", "changed", "after_json"]
    show_table(changes, columns, as_json=as_json)


def _lines(values: dict[str, Any]) -> str:
    return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in values.items())


COMMANDS = (snapshot, reconcile, audit, usage, compact, purge, retry, history)
