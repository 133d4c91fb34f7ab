"""Gap recovery: continue after the server has dropped events that the archive lacks (an expired replay id).

If another archive of the channel has the events, they are copied from there. Otherwise they are lost, and
only their effect can be read: bronze continues with the oldest event that the server keeps, and every object
is read again at fences after the hole. Until then readers see such an object as resyncing. Bronze lists its
holes, so that nobody takes it for complete there. Either way the archive query restarts where bronze ends,
without its old checkpoint.

A replay id of another log is not recovered: positions of two logs cannot share a lake.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewire.errors import ReplayIdExpired, ReplayIdInvalid
from tidewire.faults import crash_point
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import Resync
from tidewire.pipeline.lake.files import list_files, read_file, rows_in, write_sorted
from tidewire.pipeline.lake.schemas import append_schemas, load_schemas
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.lake.tables import (
    BRONZE,
    Lake,
    append_files,
    commit_properties,
    open_table,
    reporting_conflict,
    try_committed,
)
from tidewire.pipeline.source.archive_replay import HOLES, Archive, read_holes, try_open_archive
from tidewire.pipeline.source.log_export import LogExport, find_export
from tidewire.pipeline.upkeep.resync import request_resyncs
from tidewire.pipeline.upkeep.snapshot import read_position
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from tidewire.clock import Clock
    from tidewire.pipeline.source.bus import Bus
    from tidewire.pipeline.upkeep.fenced_reads import Records

_log = logging.getLogger(__name__)

ARCHIVE_QUERY = "archive"
CAUSE = "expired"
WRITER = "healing"
RESUMED, REFILLED, RESYNCED = "resumed", "refilled", "resynced"
FIRST_EVENT_S = 30.0
"""How long to wait for the oldest event of a server that reports no position otherwise."""


@dataclass(frozen=True, slots=True)
class GapRecovery:
    """What was done, and the position after which the archive continues.

    `resumed` if nothing is missing, `refilled` from another archive, `resynced` if every object is being read
    again.
    """

    action: str
    position: int


def recover_expired(
    lake: Lake, epoch: int, reader: Records, bus: Bus, clock: Clock, archive: Lake | None = None
) -> GapRecovery:
    """Close the gap after bronze, so that the archive query can be started again.

    The query must not be running, and the lease must be held. Repeating it after a crash does what is left to
    do. Raises ReplayIdInvalid if the server's log is not the one that bronze was filled from.
    """
    action = RESUMED
    oldest = _find_oldest(bus, _archived(lake))
    source = try_open_archive(archive) if archive is not None else None
    if archive is not None and source is not None and _archived(lake) < oldest:
        action = _refill(lake, epoch, archive, source, clock)
    if _archived(lake) < oldest:
        action = RESYNCED
        _resync(lake, epoch, reader, clock)
        crash_point("pipeline.healing.after_asking")
        _note_hole(lake, epoch, Span(_archived(lake), oldest))
        append_files(open_table(lake, "bronze"), [], oldest, epoch)
    crash_point("pipeline.healing.before_checkpoint")
    # It holds the expired position. A new checkpoint begins where bronze ends.
    shutil.rmtree(lake.checkpoint(ARCHIVE_QUERY), ignore_errors=True)
    position = _archived(lake)
    counters[f"pipeline.healed_{action}"] += 1
    _log.warning("pipeline.expired_healed", extra={"action": action, "position": position})
    return GapRecovery(action, position)


def _archived(lake: Lake) -> int:
    return try_committed(lake, "bronze") or START


def _find_oldest(bus: Bus, archived: int) -> int:
    """Return the position before the oldest event that the server keeps."""
    url = find_export(bus)
    if url is None:
        return _find_first_event(bus) - 1
    with closing(LogExport(bus, url)) as export:
        state = export.plan(START, limit=0)
    if archived > state.head:
        raise ReplayIdInvalid(
            f"the lake holds events up to {archived} and the server's log ends at {state.head}: it is another "
            "log, or was restored from an older backup. Start a new lake with a snapshot.",
            replay_id=archived,
        )
    return state.after


def _find_first_event(bus: Bus) -> int:
    ended = threading.Event()

    def give_up() -> None:
        ended.set()
        bus.close()

    timer = threading.Timer(FIRST_EVENT_S, give_up)
    timer.start()
    try:
        for fetched in bus.stream(START, ended):
            if fetched.events:
                return fetched.events[0].replay_id
    finally:
        timer.cancel()
    raise ReplayIdExpired("the server keeps no events, so the position at which its log continues is unknown")


def _resync(lake: Lake, epoch: int, reader: Records, clock: Clock) -> None:
    entities = sorted({*reader.entities(), *manifest.entities(lake)})
    if entities:
        # Requested at the current end of the log: every read from here on is after the hole.
        position = read_position(reader, entities[0])
        request_resyncs(lake, epoch, clock.now_ms(), [Resync(entity, CAUSE, position) for entity in entities])


def _note_hole(lake: Lake, epoch: int, hole: Span) -> None:
    """List a hole before bronze continues after it; repeating this after a crash lists the same one."""
    bronze = open_table(lake, "bronze")
    holes = [*(each for each in read_holes(bronze) if each.after != hole.after), hole]
    with reporting_conflict(bronze):
        bronze.delta.alter.set_table_properties(
            {HOLES: json.dumps([[each.after, each.through] for each in holes])},
            raise_if_not_exists=False,
            commit_properties=commit_properties(bronze, None, epoch, WRITER),
        )


def _refill(lake: Lake, epoch: int, other: Lake, source: Archive, clock: Clock) -> str:
    """Copy the events after bronze from another archive, up to its next hole."""
    if not source.covers(_archived(lake)):
        return RESUMED
    through = source.end_after(_archived(lake))
    known = load_schemas(lake)
    missing = {key: (text, START) for key, text in load_schemas(other).items() if key not in known}
    append_schemas(lake, missing, epoch)
    for path in list_files(source.bronze, Span(_archived(lake), through)):
        bronze = open_table(lake, "bronze")
        rows = rows_in(read_file(path, BRONZE), Span(bronze.floor, through)).sort_by("replay_id")
        if rows.num_rows:
            file = write_sorted(bronze.directory, rows)
            append_files(bronze, [file.add_action(clock.now_ms())], file.last, epoch)
            crash_point("pipeline.healing.after_file")
    if through > _archived(lake):
        append_files(open_table(lake, "bronze"), [], through, epoch)
    return REFILLED
