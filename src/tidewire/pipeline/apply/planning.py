"""Plan what a batch requires besides rows of history: records and objects to read again, dead letters.

Plain changes require nothing. A gap, an event that did not decode, an update of a record not known to be
live, and a text difference that does not fit make their record dirty. The object is read again as a whole
after an overflow, a wildcard event without fields, a change of a column's type that may lose values, or new
columns that may already have values, as a renamed one has. Events that did not decode are dead letters too: a
retry may still apply them.
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
from tidewire.pipeline.replicas.fold import DELETES, FULL_ROWS, UNDECODED, WILDCARD, is_wildcard_id


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write besides history, in log order."""

    dirty: tuple[Dirty, ...]
    resyncs: tuple[Resync, ...]
    dead: tuple[Note, ...]


def plan_notes(notes: Sequence[Note]) -> Plan:
    """Plan from the notes of a batch."""
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
            if note.entity and is_wildcard_id(note.record_id):
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
    """Return the resync that new schemas (id and last position) of an object require, if any.

    Required if values are lost that no wildcard event reports, or appear that no event reports.
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
    """Return whether existing records may have values in columns that are new in a schema.

    A checkbox always has one; and where a column disappears as others come, it may have been renamed.
    """
    known, kinds = kinds_from(before, texts), kinds_from([schema_id], texts)
    added = [kind for name, kind in kinds.items() if name not in known]
    if not before or not added:
        return False
    return Kind.TRUTH in added or not kinds_from(before[-1:], texts).keys() <= kinds.keys()


def find_unknown_updates(entity: str, changes: pa.Table, live: LiveIds) -> list[Dirty]:
    """Return updates of records that are not known to be live.

    `changes` are rows of history of the batch: record_id, replay_id, sequence, change_type and problem.
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


def update_live_ids(changes: pa.Table, live: LiveIds) -> None:
    """Update the live ids from the rows of a committed batch."""
    plain = changes.filter(pc.is_null(changes["problem"]))
    known = plain.filter(pc.not_equal(plain["change_type"], "UPDATE"))
    known = known.sort_by([("replay_id", "ascending"), ("sequence", "ascending")])
    for record_id, change_type in zip(
        known["record_id"].to_pylist(), known["change_type"].to_pylist(), strict=True
    ):
        if change_type in FULL_ROWS:
            live.add(record_id)
        elif change_type in DELETES:
            live.remove(record_id)
