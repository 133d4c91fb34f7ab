"""The status of a pipeline.

Positions and counts come from the tables alone, so they are available when the pipeline is dead. A running
pipeline adds what only it knows and writes the status to `<lake>/status.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from tidewire.clock import Clock, SystemClock
from tidewire.errors import PlatformError
from tidewire.pipeline.apply.dead_letters import open_letters
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.dirty import failed_records
from tidewire.pipeline.lake.files import count_rows, read_span
from tidewire.pipeline.lake.lease import is_held
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.lake.status_file import SILENT_MS, load_report, write_report
from tidewire.pipeline.lake.tables import Lake, OpenTable, committed_position, load_shared_table, parse_ddl
from tidewire.pipeline.replicas.replica_counts import ReplicaStatus, count_replica
from tidewire.pipeline.replicas.view import try_open_view

HEALTH = ("starting", "ok", "behind", "retrying", "failed", "stopped")
STARTING, OK, BEHIND, RETRYING, FAILED, STOPPED = HEALTH
BEHIND_MS = 30_000
UNREADABLE = (PlatformError, DeltaError, pa.ArrowException, OSError)
"""The errors of reading a damaged lake."""
_WAITING = parse_ddl("replay_id LONG, transaction_last LONG, transaction_key STRING, commit_ms LONG")


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Positions and counts of a lake, and the health of its pipeline.

    `waiting` counts archived events that are not applied yet; `lag_ms` is the age of the oldest of them, and
    `open_transaction_ms` that of events that wait for the rest of their transaction. `given_up` counts
    records that the server refuses to return. `resyncing` are the objects being read as a whole, `failed`
    those that cannot be. `unread` is how many positions the server is ahead of the archive, None if unknown.
    `problem` says what is wrong. `epoch` is that of the reporting driver.
    """

    archived_through: int = START
    applied_through: int = START
    archived: int = 0
    waiting: int = 0
    lag_ms: int = 0
    open_transaction_ms: int = 0
    dirty: int = 0
    given_up: int = 0
    resyncing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    dead_letters: dict[str, int] = field(default_factory=dict)
    replicas: tuple[ReplicaStatus, ...] = ()
    table_versions: dict[str, int] = field(default_factory=dict)
    health: str = STOPPED
    problem: str = ""
    unread: int | None = None
    at_ms: int = 0
    epoch: int = 0


def read_status(lake: Lake, clock: Clock | None = None) -> PipelineStatus:
    """Read the status of a lake; an empty one has zeros.

    Health and problem come from the last report of a pipeline that is running or has ended by itself.
    """
    clock = clock or SystemClock()
    now_ms = clock.now_ms()
    try:
        status = StatusReader(lake, clock).read()
    except UNREADABLE as error:
        status = PipelineStatus(health=FAILED, problem=describe_damage(error), at_ms=now_ms)
    report = load_report(lake)
    if report is None:
        return status
    problem = str(report.fields.get("problem", ""))
    unread, epoch = report.fields.get("unread"), report.fields.get("epoch")
    health = str(report.fields.get("health", STOPPED))
    silent_ms = now_ms - report.written_ms
    if silent_ms > SILENT_MS:
        unread = None
        if health not in (FAILED, STOPPED):
            health, problem = _describe_silence(lake, silent_ms)
    return replace(
        status,
        health=FAILED if status.health == FAILED else health,
        problem="; ".join(dict.fromkeys(filter(None, (status.problem, problem)))),
        unread=unread if isinstance(unread, int) else None,
        epoch=epoch if isinstance(epoch, int) else 0,
    )


def describe_damage(error: Exception) -> str:
    """Return in one line why a lake cannot be read."""
    if isinstance(error, PlatformError):
        return f"{error.code}: {error.message}"
    text = str(error).strip() or type(error).__name__
    return f"the lake cannot be read: {text.splitlines()[0][:300]}"


def _describe_silence(lake: Lake, silent_ms: int) -> tuple[str, str]:
    """Return health and problem of a pipeline that stopped reporting without ending properly."""
    silent_s = silent_ms // 1000
    if is_held(lake.path):
        return FAILED, f"the pipeline runs but has not reported for {silent_s} s: end it and start it again"
    return STOPPED, f"the pipeline was killed {silent_s} s ago; start it again to continue"


def write_status(lake: Lake, status: PipelineStatus) -> None:
    """Write a status to the lake's status file, unless a newer driver has written one."""
    write_report(lake, asdict(status), status.epoch)


class StatusReader:
    """Reads the status of one lake repeatedly.

    Counting the rows of replicas is expensive, so it takes at most a tenth of the time.
    """

    def __init__(self, lake: Lake, clock: Clock) -> None:
        self._lake = lake
        self._clock = clock
        self._replicas: tuple[ReplicaStatus, ...] = ()
        self._count_at_s = 0.0
        self._counted_number = -1

    def read(self) -> PipelineStatus:
        """Return the status according to the tables."""
        lake, now_ms = self._lake, self._clock.now_ms()
        bronze = load_shared_table(lake, "bronze")
        applied_table = load_shared_table(lake, manifest.TABLE)
        # Read after the table: a batch must not be reported as applied without the records it made dirty.
        row = manifest.newest(lake)
        applied = committed_position(applied_table)
        waiting = _read_waiting(bronze, applied)
        oldest_ms: int | None = pc.min(waiting["commit_ms"]).as_py()
        entities = row.entities if row is not None else {}
        reasons: dict[str, int] = {}
        for letter in open_letters(lake):
            reasons[letter.reason] = reasons.get(letter.reason, 0) + 1
        damage = ""
        try:
            self._count(row)
        except UNREADABLE as error:
            damage = describe_damage(error)
        return PipelineStatus(
            archived_through=committed_position(bronze),
            applied_through=applied,
            archived=count_rows(bronze),
            waiting=waiting.num_rows,
            lag_ms=max(0, now_ms - oldest_ms) if oldest_ms is not None else 0,
            open_transaction_ms=_open_age(waiting, committed_position(bronze), now_ms),
            dirty=sum(state.dirty for state in entities.values()),
            given_up=sum(len(found) for found in failed_records(lake).values()),
            resyncing=_in_state(entities, (manifest.SNAPSHOT, manifest.RESYNC)),
            failed=_in_state(entities, (FAILED,)),
            dead_letters=reasons,
            replicas=tuple(_with_dirty(each, entities) for each in self._replicas),
            table_versions=self._versions(row, bronze, applied_table),
            health=FAILED if damage else STOPPED,
            problem=damage,
            at_ms=now_ms,
        )

    def _count(self, row: manifest.ManifestRow | None) -> None:
        started_s = self._clock.monotonic_s()
        if row is None or row.number == self._counted_number or started_s < self._count_at_s:
            return
        views = (try_open_view(self._lake, entity) for entity in sorted(row.entities))
        self._replicas = tuple(count_replica(view) for view in views if view is not None)
        self._counted_number = row.number
        now_s = self._clock.monotonic_s()
        self._count_at_s = now_s + 10 * (now_s - started_s)

    def _versions(
        self, row: manifest.ManifestRow | None, bronze: OpenTable | None, applied: OpenTable | None
    ) -> dict[str, int]:
        versions = dict(row.table_versions) if row is not None else {}
        versions |= {table.name: table.delta.version() for table in (bronze, applied) if table is not None}
        return dict(sorted(versions.items()))


def _with_dirty(counted: ReplicaStatus, entities: Mapping[str, manifest.EntityState]) -> ReplicaStatus:
    """Return the counts of a replica; records that became dirty since are stale too."""
    state = entities.get(counted.entity)
    return counted if state is None else replace(counted, stale=max(counted.stale, state.dirty))


def _in_state(entities: Mapping[str, manifest.EntityState], states: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(entity for entity, each in entities.items() if each.state in states))


def _read_waiting(bronze: OpenTable | None, applied: int) -> pa.Table:
    if bronze is None:
        return _WAITING.empty_table()
    span = Span(applied, committed_position(bronze))
    return pa.concat_tables([_WAITING.empty_table(), *read_span(bronze, span, _WAITING)])


def _open_age(waiting: pa.Table, archived: int, now_ms: int) -> int:
    """Return the age of the oldest event whose transaction is not known to be complete.

    Its last event is not archived or, on servers that do not name it, it belongs to the newest transaction.
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
