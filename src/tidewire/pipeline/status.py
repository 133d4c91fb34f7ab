"""How a pipeline stands. Positions and counts are read from the tables alone, so they can be told also when
the pipeline is dead; a running one adds what only it knows and writes all of it to `<lake>/status.json`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.clock import Clock, SystemClock
from tidewire.errors import ObjectUnknown
from tidewire.pipeline import manifest
from tidewire.pipeline.dead_letters import open_letters
from tidewire.pipeline.reading import open_view
from tidewire.pipeline.replica_counts import ReplicaStatus, count_replica
from tidewire.pipeline.spans import START, Span
from tidewire.pipeline.tables import Lake, OpenTable, list_files, read_file, try_open_table

STATUS_FILE = "status.json"
SILENT_MS = 15_000
"""A running pipeline tells of itself every second; one that has been silent for so long is not running."""
STARTING, OK, BEHIND, RETRYING, FAILED, STOPPED = "starting", "ok", "behind", "retrying", "failed", "stopped"
BEHIND_MS = 30_000
_WAITING = pa.schema(
    [
        ("replay_id", pa.int64()),
        ("transaction_last", pa.int64()),
        ("transaction_key", pa.string()),
        ("commit_ms", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Positions and counts of a lake, and how its pipeline does.

    `waiting` counts archived events that are not applied yet, `lag_ms` says for how long the oldest of them
    has been committed, `open_transaction_ms` the same for events that wait for the rest of their transaction.
    `resyncing` are the objects that are being read as a whole, `failed` those that cannot be. `unread` is how
    many positions the server is ahead of the archive, None if that is not known. `problem` says what a
    pipeline that is not well is up against.
    """

    archived_through: int = START
    applied_through: int = START
    archived: int = 0
    waiting: int = 0
    lag_ms: int = 0
    open_transaction_ms: int = 0
    dirty: int = 0
    resyncing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    dead_letters: dict[str, int] = field(default_factory=dict)
    replicas: tuple[ReplicaStatus, ...] = ()
    table_versions: dict[str, int] = field(default_factory=dict)
    health: str = STOPPED
    problem: str = ""
    unread: int | None = None
    at_ms: int = 0


def read_status(lake: Lake, clock: Clock | None = None) -> PipelineStatus:
    """Read the state of a lake; an empty one has zeros. The words of a running pipeline are taken over."""
    clock = clock or SystemClock()
    status = StatusReader(lake, clock).read()
    told = read_told(lake, clock.now_ms())
    if told is None:
        return status
    unread = told.get("unread")
    return replace(
        status,
        health=str(told.get("health", STOPPED)),
        problem=str(told.get("problem", "")),
        unread=unread if isinstance(unread, int) else None,
    )


def read_told(lake: Lake, now_ms: int) -> Mapping[str, object] | None:
    """What a running pipeline said last, or None if none is running."""
    path = os.path.join(lake.path, STATUS_FILE)
    try:
        written_ms = os.stat(path).st_mtime_ns // 1_000_000
        with open(path, "rb") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return None
    is_fresh = isinstance(told, dict) and now_ms - written_ms <= SILENT_MS
    return told if is_fresh else None


def write_told(lake: Lake, status: PipelineStatus) -> None:
    """Say how the pipeline does. Whoever reads the file sees the old text or the new one."""
    path = os.path.join(lake.path, STATUS_FILE)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(asdict(status), file)
    os.replace(f"{path}.new", path)


class StatusReader:
    """Reads the state of one lake again and again. What costs more, the rows of replicas, is counted anew no
    more often than a tenth of the time allows.
    """

    def __init__(self, lake: Lake, clock: Clock) -> None:
        self._lake = lake
        self._clock = clock
        self._replicas: tuple[ReplicaStatus, ...] = ()
        self._count_at_s = 0.0
        self._counted_number = -1

    def read(self) -> PipelineStatus:
        """The state as the tables tell it."""
        lake, now_ms = self._lake, self._clock.now_ms()
        bronze = try_open_table(lake, "bronze")
        row = manifest.newest(lake)
        applied_table = try_open_table(lake, manifest.TABLE)
        applied = _committed(applied_table)
        waiting = _read_waiting(lake, bronze, applied)
        oldest_ms: int | None = pc.min(waiting["commit_ms"]).as_py()
        entities = row.entities if row is not None else {}
        reasons: dict[str, int] = {}
        for letter in open_letters(lake):
            reasons[letter.reason] = reasons.get(letter.reason, 0) + 1
        return PipelineStatus(
            archived_through=_committed(bronze),
            applied_through=applied,
            archived=_count_rows(bronze),
            waiting=waiting.num_rows,
            lag_ms=max(0, now_ms - oldest_ms) if oldest_ms is not None else 0,
            open_transaction_ms=_open_age(waiting, _committed(bronze), now_ms),
            dirty=sum(state.dirty for state in entities.values()),
            resyncing=_in_state(entities, (manifest.SNAPSHOT, manifest.RESYNC)),
            failed=_in_state(entities, (FAILED,)),
            dead_letters=reasons,
            replicas=self._count(row),
            table_versions=self._versions(row, bronze, applied_table),
            at_ms=now_ms,
        )

    def _count(self, row: manifest.ManifestRow | None) -> tuple[ReplicaStatus, ...]:
        started_s = self._clock.monotonic_s()
        if row is None or row.number == self._counted_number or started_s < self._count_at_s:
            return self._replicas
        found: list[ReplicaStatus] = []
        for entity in sorted(row.entities):
            try:
                found.append(count_replica(open_view(self._lake, entity)))
            except ObjectUnknown:
                continue
        self._replicas, self._counted_number = tuple(found), row.number
        now_s = self._clock.monotonic_s()
        self._count_at_s = now_s + 10 * (now_s - started_s)
        return self._replicas

    def _versions(
        self, row: manifest.ManifestRow | None, bronze: OpenTable | None, applied: OpenTable | None
    ) -> dict[str, int]:
        versions = dict(row.table_versions) if row is not None else {}
        versions |= {table.name: table.delta.version() for table in (bronze, applied) if table is not None}
        return dict(sorted(versions.items()))


def _in_state(entities: Mapping[str, manifest.EntityState], states: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(entity for entity, each in entities.items() if each.state in states))


def _committed(table: OpenTable | None) -> int:
    return START if table is None or table.committed is None else table.committed


def _count_rows(table: OpenTable | None) -> int:
    actions = pa.table(table.delta.get_add_actions(flatten=True)) if table is not None else None
    return int(pc.sum(actions["num_records"]).as_py()) if actions is not None and actions.num_rows else 0


def _read_waiting(lake: Lake, bronze: OpenTable | None, applied: int) -> pa.Table:
    parts = [_WAITING.empty_table()]
    if bronze is not None:
        for name in list_files(bronze, Span(applied, _committed(bronze))):
            rows = read_file(os.path.join(lake.table("bronze"), name), _WAITING)
            parts.append(rows.filter(pc.greater(rows["replay_id"], applied)))
    return pa.concat_tables(parts)


def _open_age(waiting: pa.Table, archived: int, now_ms: int) -> int:
    """For how long the oldest event has waited whose transaction is not known to be complete: its last event
    is not archived, or, where servers do not tell which that is, it may always be the newest transaction.
    """
    if not waiting.num_rows:
        return 0
    rows = waiting.sort_by("replay_id")
    is_open = pc.or_(
        pc.fill_null(pc.greater(rows["transaction_last"], archived), False),
        pc.and_(
            pc.is_null(rows["transaction_last"]),
            pc.fill_null(pc.equal(rows["transaction_key"], rows["transaction_key"][-1]), False),
        ),
    )
    oldest_ms: int | None = pc.min(rows.filter(is_open)["commit_ms"]).as_py()
    return max(0, now_ms - oldest_ms) if oldest_ms is not None else 0
