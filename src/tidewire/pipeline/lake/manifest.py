"""The manifest: one row per snapshot point, at which all tables of the lake show the same log position.

A reader of row m takes, for each object, three things and folds them (fold.py): the base `replica/<Entity>`
at the version that m names, which holds everything up to its base position B; the rows of `history/<Entity>`
with B < replay id <= m.position; and the rows of `reads/<Entity>` at or above B that are settled by
m.position. Whatever apply has written beyond m.position is invisible. So every row is consistent across all
tables, whichever process died between two commits.

Rows carry over what they do not change. One thread of the driver writes at a time: hold `lock` while opening
and committing the manifest, the control tables, or any other table that two threads write.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.errors import ConfigInvalid
from tidewire.names import entity_of_change_event
from tidewire.pipeline.lake.columns import Kind, merge_kinds, old_columns, parse_kinds
from tidewire.pipeline.lake.control import FAILED, failed_resyncs, open_dirty, open_resyncs
from tidewire.pipeline.lake.files import list_actions, read_file
from tidewire.pipeline.lake.schemas import load_schemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import (
    MANIFEST,
    Lake,
    OpenTable,
    append_rows,
    load_shared_table,
    open_table,
)

TABLE = "manifest"
READY, SNAPSHOT, RESYNC = "ready", "snapshot", "resync"
NO_POSITION = -1

lock = threading.RLock()
"""Held by the thread that commits in the driver."""


@dataclass(frozen=True, slots=True)
class EntityState:
    """One object in a row of the manifest.

    `state` says whether it is being read again as a whole, or that has failed; `dirty` counts its records to
    read again; `schemas` are those of its columns, in the order of their last use. Schemas in `ahead` came
    with reads beyond the applied position: they add columns, but do not change types yet.
    """

    base_position: int = NO_POSITION
    state: str = READY
    dirty: int = 0
    schemas: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One row of the manifest. `after` is where the batch began, `position` where it ended."""

    number: int
    position: int
    after: int
    applied_ms: int
    epoch: int
    changes: int = 0
    dead_letters: int = 0
    table_versions: Mapping[str, int] = field(default_factory=dict)
    entities: Mapping[str, EntityState] = field(default_factory=dict)
    cause: str = "apply"


@dataclass(frozen=True, slots=True)
class AtNumber:
    """A snapshot point, given by the number of its row."""

    number: int


SnapshotPoint = int | datetime | AtNumber
"""A snapshot point to read at: a position, a time (UTC by default) or a row."""


def newest(lake: Lake, as_of: SnapshotPoint | None = None) -> ManifestRow | None:
    """Return the newest row, or the newest at or before a snapshot point.

    Raises ConfigInvalid for other types.
    """
    table = load_shared_table(lake, TABLE)
    if table is None:
        return None
    if as_of is not None:
        return _find(table, as_of)
    # Every batch, commit and reader asks: parse the newest row once per version of the table.
    known = _newest.get(lake.path)
    if known is None or known[0] is not table:
        known = _newest[lake.path] = (table, _find(table, None))
    return known[1]


def entities(lake: Lake) -> Mapping[str, EntityState]:
    """Return the objects of the newest row."""
    row = newest(lake)
    return row.entities if row is not None else {}


_newest: dict[str, tuple[OpenTable, ManifestRow | None]] = {}


def try_first_number(lake: Lake) -> int | None:
    """Return the number of the oldest row that is kept; None if there is none."""
    numbers = list_actions(load_shared_table(lake, TABLE), "min.number")
    return min(numbers)[0] if numbers else None


def _find(table: OpenTable, as_of: SnapshotPoint | None) -> ManifestRow | None:
    column, limit = _limit_of(as_of)
    # By file statistics alone: the manifest has a row per batch, and reading all of it would grow with the lake.
    files = [
        (first, path)
        for first, low, path in list_actions(table, "min.number", f"min.{column}", "path")
        if limit is None or low <= limit
    ]
    if not files:
        return None
    # Files do not overlap in their numbers, and positions rise with them. So the last file that begins at or before
    # the limit holds the wanted row.
    rows = read_file(f"{table.directory}/{max(files)[1]}", MANIFEST)
    if limit is not None:
        rows = rows.filter(pc.less_equal(rows[column], limit))
    return _parse_row(rows.sort_by("number").slice(rows.num_rows - 1).to_pylist()[0])


def _limit_of(as_of: SnapshotPoint | None) -> tuple[str, int | None]:
    match as_of:
        case datetime():
            moment = as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC)
            return "applied_ms", int(moment.timestamp() * 1000)
        case AtNumber(number):
            return "number", number
        case None | int() if not isinstance(as_of, bool):
            return "position", as_of
        case _:
            raise ConfigInvalid(f"as_of must be a replay id or a datetime, not {as_of!r}", setting="as_of")


def _parse_row(row: Mapping[str, object]) -> ManifestRow:
    entities = {
        entity: EntityState(
            **{**state, "schemas": tuple(state["schemas"]), "ahead": tuple(state.get("ahead", ()))}
        )
        for entity, state in json.loads(str(row["entities"])).items()
    }
    versions = json.loads(str(row["table_versions"]))
    return ManifestRow(**{**row, "table_versions": versions, "entities": entities})


def append(
    lake: Lake,
    epoch: int,
    now_ms: int,
    *,
    cause: str,
    span: Span | None = None,
    changes: int = 0,
    dead_letters: int = 0,
    versions: Mapping[str, int] | None = None,
    schemas: Mapping[str, Sequence[str]] | None = None,
    ahead: Mapping[str, str] | None = None,
    bases: Mapping[str, int] | None = None,
) -> ManifestRow:
    """Append the next row: the newest one with changes. Raises WriteConflict.

    `span` is covered by a batch of apply; other causes keep the position. `versions` are those of tables
    written since, `schemas` the schema ids used by each object in the order of their last use, `ahead` those
    of reads beyond the applied position, `bases` the new base positions of objects whose replica is among
    `versions`.
    """
    with lock:
        # Opened before the newest row is read: a row that another writer adds in between makes this commit fail, so
        # no number is used twice and nothing of that row is lost.
        table = open_table(lake, TABLE)
        before = newest(lake) or ManifestRow(0, NO_POSITION, NO_POSITION, 0, epoch)
        row = ManifestRow(
            number=before.number + 1,
            position=before.position if span is None else span.through,
            after=before.position if span is None else span.after,
            applied_ms=now_ms,
            epoch=epoch,
            changes=changes,
            dead_letters=dead_letters,
            table_versions={**before.table_versions, **(versions or {})},
            entities=_next_entities(lake, before.entities, schemas or {}, ahead or {}, bases or {}),
            cause=cause,
        )
        # Only apply moves the table's position; all other causes count their commits under their own app id.
        rows = pa.Table.from_pylist([_render_row(row)], schema=MANIFEST)
        append_rows(table, rows, None if span is None else span.through, epoch, writer=cause)
        return row


def refresh(lake: Lake, epoch: int, now_ms: int) -> None:
    """Append a row if the control tables differ from the newest one, after a crash. Raises WriteConflict."""
    with lock:
        row = newest(lake)
        if row is not None and _next_entities(lake, row.entities, {}, {}, {}) != row.entities:
            append(lake, epoch, now_ms, cause="reads")


def _render_row(row: ManifestRow) -> dict[str, object]:
    entities = {entity: asdict(state) for entity, state in row.entities.items()}
    return {
        **{name: getattr(row, name) for name in MANIFEST.names},
        "table_versions": json.dumps(row.table_versions, sort_keys=True),
        "entities": json.dumps(entities, sort_keys=True),
    }


def _next_entities(
    lake: Lake,
    before: Mapping[str, EntityState],
    schemas: Mapping[str, Sequence[str]],
    ahead: Mapping[str, str],
    bases: Mapping[str, int],
) -> dict[str, EntityState]:
    # Counts and states always come from the control tables, never from the row before: those tables are committed
    # first, so a crash before this row is repaired by the next one.
    dirty = {entity: len(records) for entity, records in open_dirty(lake).items()}
    resyncs, failed = open_resyncs(lake), failed_resyncs(lake)
    found: dict[str, EntityState] = {}
    for entity in sorted({*before, *schemas, *ahead, *bases, *dirty, *resyncs, *failed}):
        state = before.get(entity, EntityState())
        asked = resyncs.get(entity)
        # An open request outranks an earlier failure: somebody asked again.
        word = FAILED if entity in failed else READY
        if asked is not None:
            word = SNAPSHOT if asked.cause == SNAPSHOT else RESYNC
        found[entity] = replace(
            state,
            base_position=bases.get(entity, state.base_position),
            state=word,
            dirty=dirty.get(entity, 0),
            schemas=_next_schemas(lake, state.schemas, schemas.get(entity, ())),
            ahead=_next_ahead(state.ahead, ahead.get(entity), schemas.get(entity, ())),
        )
    return found


def _next_schemas(lake: Lake, before: tuple[str, ...], used: Sequence[str]) -> tuple[str, ...]:
    """Return the schemas in the order of their last use, without those that add nothing to the columns."""
    ordered = (*(schema_id for schema_id in before if schema_id not in used), *dict.fromkeys(used))
    if ordered == before:
        return before
    texts = load_schemas(lake)
    # The last one stays in any case: it is the schema that the object currently has. Dropping others keeps the row
    # small, since an org may change an object's schema hundreds of times.
    kept = list(ordered)
    for schema_id in ordered[:-1]:
        others = [each for each in kept if each != schema_id]
        if kinds_from(others, texts) == kinds_from(kept, texts):
            kept = others
    return tuple(kept)


def _next_ahead(before: tuple[str, ...], new: str | None, used: Sequence[str]) -> tuple[str, ...]:
    # A schema leaves `ahead` once apply, or a read at the applied position, uses it.
    found = dict.fromkeys((*before, new) if new is not None else before)
    return tuple(schema_id for schema_id in found if schema_id not in used)


_kinds_by = lru_cache(maxsize=512)(parse_kinds)


def kinds_from(schemas: Sequence[str], texts: Mapping[str, str]) -> dict[str, Kind]:
    """Return the columns of a replica with these schemas."""
    return merge_kinds(
        (schema_id, _kinds_by(texts[schema_id])) for schema_id in schemas if schema_id in texts
    )


def kinds_of_state(state: EntityState, texts: Mapping[str, str]) -> dict[str, Kind]:
    """Return the columns of a replica at a row of the manifest."""
    # `ahead` first, so that the applied schemas override its types: rows up to this position have theirs.
    return {**kinds_from(state.ahead, texts), **kinds_from(state.schemas, texts)}


def retyped_kinds(
    entity: str, kinds: Mapping[str, Kind], texts: Mapping[str, str]
) -> dict[str, dict[str, Kind]]:
    """Return, by schema of an object, the types of the columns whose type has changed.

    Includes schemas that the manifest omits because another one has the same columns.
    """
    changed = old_columns(kinds)
    if not changed:
        return {}
    return {
        schema_id: {name: kind for name, kind in _kinds_by(text).items() if name in changed}
        for schema_id, text in texts.items()
        if _entity_of(text) == entity
    }


@lru_cache(maxsize=2048)
def _entity_of(schema_json: str) -> str | None:
    return entity_of_change_event(str(json.loads(schema_json).get("name", "")))
