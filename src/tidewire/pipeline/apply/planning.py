"""What a batch calls for besides its rows of history: records and objects to be read again, dead letters.

Plain changes need nothing. A gap, an event that did not decode, an update of a record that is not known to
live, and a text difference that does not fit make their record dirty. An overflow, a wildcard event that
does not tell its fields, and a change of a column's type that may lose values make the object read again as
a whole; so do new columns that may have values already, as a renamed one has. Events that did not decode
are dead letters too: a retry may apply them yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.apply.decode import GAP, OVERFLOW, WILDCARD_UNKNOWN, Note
from tidewire.pipeline.apply.known_ids import LiveIds
from tidewire.pipeline.lake.columns import Kind, old_columns
from tidewire.pipeline.lake.control import Dirty, Resync
from tidewire.pipeline.lake.manifest import kinds_from
from tidewire.pipeline.replicas.fold import DELETES, FULL_ROWS, UNDECODED, WILDCARD, is_about_all


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write beside history, in the order of the log."""

    dirty: tuple[Dirty, ...]
    resyncs: tuple[Resync, ...]
    dead: tuple[Note, ...]


def plan_notes(notes: Sequence[Note]) -> Plan:
    """What the notes of a batch call for."""
    dirty: list[Dirty] = []
    resyncs: dict[str, Resync] = {}
    dead: list[Note] = []
    for note in notes:
        if note.reason == OVERFLOW:
            resyncs[note.entity] = Resync(note.entity, "overflow", note.replay_id)
        elif note.reason == WILDCARD_UNKNOWN:
            resyncs[note.entity] = Resync(note.entity, "schema", note.replay_id)
        elif note.reason == GAP:
            dirty.append(Dirty(note.entity, note.record_id, note.replay_id, GAP))
        elif note.reason in UNDECODED:
            dead.append(note)
            if note.entity and is_about_all(note.record_id):
                resyncs[note.entity] = Resync(note.entity, note.reason, note.replay_id)
            elif note.entity and note.record_id and note.change_type not in DELETES:
                dirty.append(Dirty(note.entity, note.record_id, note.replay_id, note.reason))
    return Plan(tuple(dirty), tuple(resyncs.values()), tuple(dead))


def plan_schemas(
    entity: str,
    before: Sequence[str],
    used: Mapping[str, int],
    notes: Sequence[Note],
    texts: Mapping[str, str],
) -> Resync | None:
    """Whether the schemas of a batch (id and last position) take values away from an object's columns that no
    wildcard event accounts for, or give its records values that no event tells.
    """
    ordered = sorted(used, key=lambda schema_id: used[schema_id])
    after = [*(schema_id for schema_id in before if schema_id not in used), *ordered]
    lost = set(old_columns(kinds_from(after, texts))) - set(old_columns(kinds_from(before, texts)))
    lost -= {
        name for note in notes if note.reason == WILDCARD and note.entity == entity for name in note.columns
    }
    has_untold = any(
        _has_untold([*before, *ordered[:i]], schema_id, texts) for i, schema_id in enumerate(ordered)
    )
    return Resync(entity, "schema", max(used.values())) if lost or has_untold else None


def _has_untold(before: Sequence[str], schema_id: str, texts: Mapping[str, str]) -> bool:
    """Whether records that are there already have values in columns that are new by a schema. A checkbox has
    one from the beginning; and where a column is gone as others come, it may have been renamed.
    """
    known, kinds = kinds_from(before, texts), kinds_from([schema_id], texts)
    added = [kind for name, kind in kinds.items() if name not in known]
    if not before or not added:
        return False
    return Kind.TRUTH in added or not kinds_from(before[-1:], texts).keys() <= kinds.keys()


def find_unknown(entity: str, changes: pa.Table, live: LiveIds) -> list[Dirty]:
    """Updates of records that are not known to live. `changes` are rows of history of the batch, with the
    columns record_id, replay_id, sequence, change_type and problem.
    """
    plain = changes.filter(pc.is_null(changes["problem"]))
    types = plain["change_type"]
    is_update = pc.equal(types, "UPDATE")
    is_delete = pc.is_in(types, pa.array(sorted(DELETES)))
    updated = pc.unique(plain.filter(is_update)["record_id"]).to_pylist()
    suspects = {*live.unknown(updated), *plain.filter(is_delete)["record_id"].to_pylist()}
    if not suspects:
        return []
    concerned = plain.filter(pc.is_in(plain["record_id"], pa.array(sorted(suspects), pa.string())))
    concerned = concerned.sort_by([("replay_id", "ascending"), ("sequence", "ascending")])
    is_live: dict[str, bool] = {}
    found: list[Dirty] = []
    names = ("record_id", "replay_id", "change_type")
    for record_id, replay_id, change_type in zip(
        *(concerned[name].to_pylist() for name in names), strict=True
    ):
        if change_type in FULL_ROWS:
            is_live[record_id] = True
        elif change_type in DELETES:
            is_live[record_id] = False
        elif not is_live.get(record_id, record_id in live):
            found.append(Dirty(entity, record_id, replay_id, "unknown"))
    return found


def note_living(changes: pa.Table, live: LiveIds) -> None:
    """Learn from the rows of a committed batch who lives."""
    plain = changes.filter(pc.is_null(changes["problem"]))
    told = plain.filter(pc.not_equal(plain["change_type"], "UPDATE"))
    told = told.sort_by([("replay_id", "ascending"), ("sequence", "ascending")])
    for record_id, change_type in zip(
        told["record_id"].to_pylist(), told["change_type"].to_pylist(), strict=True
    ):
        if change_type in FULL_ROWS:
            live.add(record_id)
        elif change_type in DELETES:
            live.remove(record_id)
