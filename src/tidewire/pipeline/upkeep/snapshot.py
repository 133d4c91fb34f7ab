"""Snapshot: start a lake, or restart it, with every record as it is now, while writes continue.

It is a resync of all objects. For an empty lake the position of the log is taken first, and bronze and the
manifest begin there. Every event after it is archived and applied, and every chunk is read at or after it, so
nothing falls between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidewire.errors import ConfigInvalid
from tidewire.faults import crash_point
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import Resync, open_resyncs
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.lake.tables import Lake, append_files, open_table, try_committed
from tidewire.pipeline.upkeep.resync import request_resyncs

if TYPE_CHECKING:
    from tidewire.clock import Clock
    from tidewire.pipeline.upkeep.fenced_reads import Records

CAUSE = "snapshot"


def start(
    lake: Lake, epoch: int, reader: Records, clock: Clock, entities: Sequence[str] | None = None
) -> int:
    """Request a snapshot of these objects, or of all objects of the channel, and return its position.

    An empty lake begins at the log's current position. The lease must be held. The resync does the reading,
    and continues what an earlier snapshot of a started lake has left open. Raises ConfigInvalid if there are
    no objects, ObjectUnknown if one does not exist.
    """
    wanted = list(entities) if entities is not None else reader.entities()
    if not wanted:
        raise ConfigInvalid(
            "the channel carries no changes of any object: select objects first", setting="topic"
        )
    for entity in wanted:
        reader.describe(entity)
    position = read_position(reader, wanted[0])
    interrupted = _find_interrupted(lake)
    # In this order, so that no crash leaves a lake that begins here without a request for older records.
    asked = [Resync(entity, CAUSE, position) for entity in wanted if entity not in interrupted]
    request_resyncs(lake, epoch, clock.now_ms(), asked)
    crash_point("pipeline.snapshot.after_asking")
    begin(lake, epoch, position, clock)
    return position


def _find_interrupted(lake: Lake) -> set[str]:
    """Return the objects with an open snapshot; none in a lake that has not begun, which starts over."""
    if try_committed(lake, "bronze") is None:
        return set()
    return {entity for entity, each in open_resyncs(lake).items() if each.cause == CAUSE}


def read_position(reader: Records, entity: str) -> int:
    """Return the position of the log from a read; START if the server does not report it."""
    fence = reader.read_range(entity, "", "", 1).fence
    return START if fence is None else fence


def begin(lake: Lake, epoch: int, position: int, clock: Clock) -> None:
    """Start an empty lake at a position; no-op for any other. Raises WriteConflict."""
    with manifest.lock:
        if try_committed(lake, "bronze") is None:
            if try_committed(lake, manifest.TABLE) is None:
                manifest.append(lake, epoch, clock.now_ms(), cause=CAUSE, span=Span(position, position))
            crash_point("pipeline.snapshot.before_bronze")
            append_files(open_table(lake, "bronze"), [], position, epoch)
