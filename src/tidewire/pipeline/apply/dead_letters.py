"""Dead letters: events that could not be applied, and their retries.

A retry reads the event from bronze, decodes it with the schemas that the lake now has, and appends the
changes to history at the event's own position, where they replace the row with the problem. If the base has
already passed that position, or bronze does not know the record, the records become dirty too: only reading
them again gives a true row. So do records that an event names without their values; an event about all
records causes a resync of the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.faults import crash_point
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.apply.decode import Decoded, Decoder, Note
from tidewire.pipeline.apply.planning import plan_notes, plan_schemas
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import (
    DIRTY_TABLE,
    OPEN,
    PENDING,
    RESYNC_TABLE,
    Dirty,
    Resync,
    render_control,
)
from tidewire.pipeline.lake.files import read_rows, read_span
from tidewire.pipeline.lake.schemas import load_schemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import (
    BRONZE,
    HISTORY,
    Lake,
    OpenTable,
    append_counted,
    append_rows,
    open_table,
    try_open_table,
)
from tidewire.pipeline.replicas.fold import UNDECODED

if TYPE_CHECKING:
    from tidewire.clock import Clock

DEAD_LETTER_TABLE = "dead_letter"
APPLIED, FAILED = "applied", "failed"
WRITER = "retry"
_KEPT = ("replay_id", "entity", "record_id", "change_type", "schema_id", "reason", "detail")
"""What a dead letter keeps of a note."""


@dataclass(frozen=True, slots=True)
class RetryReport:
    """The result of a retry: letters applied, records and objects to read again, letters still dead."""

    applied: int
    dirty: int
    failed: int


def render_letter(letter: Note) -> dict[str, object]:
    """Return a dead letter as a row of its table."""
    return {name: getattr(letter, name) for name in _KEPT}


def open_letters(lake: Lake) -> list[Note]:
    """Return the dead letters that no retry has applied, in log order. A record id is empty if unknown."""
    table = try_open_table(lake, DEAD_LETTER_TABLE)
    if table is None:
        return []
    rows = read_rows(table).to_pylist()
    applied = {(row["replay_id"], row["record_id"]) for row in rows if row["outcome"] == APPLIED}
    letters = {
        (row["replay_id"], row["record_id"]): Note(**{name: row[name] for name in _KEPT})
        for row in rows
        if row["outcome"] is None and (row["replay_id"], row["record_id"]) not in applied
    }
    return [letters[key] for key in sorted(letters)]


def retry(lake: Lake, epoch: int, clock: Clock, *, replay_ids: Iterable[int] | None = None) -> RetryReport:
    """Retry all dead letters, or those of some events. The lease must be held. Raises WriteConflict."""
    wanted = None if replay_ids is None else set(replay_ids)
    letters = [letter for letter in open_letters(lake) if wanted is None or letter.replay_id in wanted]
    if not letters:
        return RetryReport(0, 0, 0)
    positions = sorted({letter.replay_id for letter in letters})
    texts = load_schemas(lake)
    decoder = Decoder(texts)
    events = _read_events(lake, positions)
    for batch in events.to_batches():
        decoder.add(batch)
    decoded = decoder.decoded
    still_dead = {note.replay_id for note in decoded.notes if note.reason in UNDECODED}
    # Retention may have dropped them from the archive.
    still_dead.update(set(positions).difference(events["replay_id"].to_pylist()))
    applied = [letter for letter in letters if letter.replay_id not in still_dead]
    with manifest.lock:
        before = manifest.entities(lake)
        versions = _append_histories(lake, epoch, decoded, still_dead)
        crash_point("pipeline.retry.after_history")
        now_ms = clock.now_ms()
        dirty, resyncs = _plan_reads(decoded, still_dead, before, texts)
        versions |= append_counted(lake, DIRTY_TABLE, render_control(dirty, now_ms, OPEN), epoch, WRITER)
        asked = render_control(resyncs, now_ms, PENDING)
        versions |= append_counted(lake, RESYNC_TABLE, asked, epoch, WRITER)
        rows = [
            render_letter(letter)
            | {"retried_ms": now_ms, "outcome": FAILED if letter.replay_id in still_dead else APPLIED}
            for letter in letters
        ]
        versions |= append_counted(lake, DEAD_LETTER_TABLE, rows, epoch, WRITER)
        schemas = {
            entity: _in_order(before.get(entity, manifest.EntityState()), used)
            for entity, used in decoded.schemas.items()
        }
        manifest.append(lake, epoch, now_ms, cause=WRITER, versions=versions, schemas=schemas)
    return RetryReport(len(applied), len(dirty) + len(resyncs), len(letters) - len(applied))


def _in_order(state: manifest.EntityState, used: Mapping[str, int]) -> list[str]:
    """Return the schemas of retried events for the manifest: an old event must not make its own the newest."""
    return [*sorted(used, key=lambda schema_id: used[schema_id]), *state.schemas[-1:]]


def _read_events(lake: Lake, positions: list[int]) -> pa.Table:
    bronze = try_open_table(lake, "bronze")
    if bronze is None:
        return BRONZE.empty_table()
    wanted = pa.array(positions, pa.int64())
    parts = [
        rows.filter(pc.is_in(rows["replay_id"], wanted))
        for rows in read_span(bronze, Span(positions[0] - 1, positions[-1]), BRONZE)
    ]
    return pa.concat_tables([BRONZE.empty_table(), *parts]).sort_by("replay_id")


def _append_histories(lake: Lake, epoch: int, decoded: Decoded, still_dead: set[int]) -> dict[str, int]:
    versions: dict[str, int] = {}
    for entity, rows in decoded.rows.items():
        found = rows.render()
        table = open_table(lake, f"history/{entity}")
        present = _good_keys(table, found)
        keys = zip(found["replay_id"].to_pylist(), found["record_id"].to_pylist(), strict=True)
        found = found.filter([key[0] not in still_dead and key not in present for key in keys])
        if not found.num_rows:
            continue
        append_rows(table, found, None, epoch, WRITER)
        versions[table.name] = table.delta.version()
    return versions


def _good_keys(table: OpenTable, rows: pa.Table) -> set[tuple[int, str]]:
    """Return the changes that history already has without a problem: an earlier retry may have died."""
    if not rows.num_rows:
        return set()
    columns = pa.schema([HISTORY.field(name) for name in ("replay_id", "record_id", "problem")])
    span = Span(pc.min(rows["replay_id"]).as_py() - 1, pc.max(rows["replay_id"]).as_py())
    found: set[tuple[int, str]] = set()
    for present in read_span(table, span, columns):
        present = present.filter(pc.is_null(present["problem"]))
        found.update(zip(present["replay_id"].to_pylist(), present["record_id"].to_pylist(), strict=True))
    return found


def _plan_reads(
    decoded: Decoded,
    still_dead: set[int],
    entities: Mapping[str, manifest.EntityState],
    texts: Mapping[str, str],
) -> tuple[list[Dirty], list[Resync]]:
    """Plan the reads that retried events call for, and those of events that the base has passed."""
    notes = [note for note in decoded.notes if note.replay_id not in still_dead]
    plan = plan_notes(notes)
    dirty, resyncs = list(plan.dirty), list(plan.resyncs)
    for entity, used in decoded.schemas.items():
        before = entities.get(entity, manifest.EntityState()).schemas
        found = plan_schemas(entity, before, used, notes, texts)
        resyncs += [found] if found is not None else []
    for entity, rows in decoded.rows.items():
        base_position = entities.get(entity, manifest.EntityState()).base_position
        for record_id, replay_id in zip(rows.columns[0], rows.columns[1], strict=True):
            if replay_id in still_dead or replay_id > base_position or record_id == EMPTY_ID:
                continue
            if record_id.endswith("*"):
                resyncs.append(Resync(entity, "schema", replay_id))
            else:
                dirty.append(Dirty(entity, record_id, replay_id, "late"))
    # Of several events about one record or object, the newest decides how new the read must be.
    dirty.sort(key=lambda each: each.replay_id)
    resyncs.sort(key=lambda each: each.since)
    newest = {(each.entity, each.record_id): each for each in dirty}
    return list(newest.values()), list({each.entity: each for each in resyncs}.values())
