"""Replica tables: one row per record, as of a position. Planning and writing a batch, and reading.

A replica has the columns of `columns.OWN_COLUMNS` and one per field component. A deleted record keeps its
row, marked `_deleted`, with its last values; `_stale` marks a row that is known to be behind (see fold.py).
Columns are added when a schema brings them and never dropped; a column whose type changes is rewritten with
converted values, in the commit of the batch that brought the change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from tidewire.errors import ObjectUnknown, WriteConflict
from tidewire.pipeline.columns import (
    COMMIT_MS,
    DELETED,
    RECORD_ID,
    REPLAY_ID,
    STALE,
    Kind,
    Native,
    kinds_of,
    parse_column,
    parse_kinds,
    render_column,
    replica_schema,
)
from tidewire.pipeline.decode import RecordChange
from tidewire.pipeline.fold import DeadLetter, ReplicaRow, convert_rows, fold_changes
from tidewire.pipeline.tables import (
    Lake,
    OpenTable,
    arrow_schema,
    commit_properties,
    iter_rows,
    merge_rows,
    open_table,
    read_rows,
    try_open_table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What a batch does to one replica: rows to put, the columns they need, and what could not be applied."""

    name: str
    rows: tuple[ReplicaRow, ...]
    kinds: Mapping[str, Kind]
    is_rewrite: bool
    dead: tuple[DeadLetter, ...]


def plan_replica(
    lake: Lake, entity: str, changes: Sequence[RecordChange], schemas: Mapping[str, str]
) -> ReplicaPlan:
    """Work out a batch for one object, from the replica as it stands. Reads only the rows concerned, unless
    a type changes.
    """
    name = f"replica/{entity}"
    table = try_open_table(lake, name)
    floor = table.floor if table is not None else -1
    fresh = [change for change in changes if change.replay_id > floor]
    old_kinds = kinds_of(arrow_schema(table)) if table is not None else {}
    kinds = _newest_kinds(old_kinds, fresh, schemas)
    is_rewrite = any(kinds[column] is not kind for column, kind in old_kinds.items())
    ids = {change.record_id for change in fresh}
    present = load_rows(table, None if is_rewrite else ids) if table is not None and fresh else {}
    folded, dead = fold_changes(present, fresh)
    rows, lost = convert_rows((present | folded if is_rewrite else folded).values(), kinds)
    dead += [_lost_value(row, column, entity, kinds[column], fresh) for row, column in lost]
    return ReplicaPlan(name, tuple(rows), kinds, is_rewrite, tuple(dead))


def _newest_kinds(
    old_kinds: Mapping[str, Kind], changes: Iterable[RecordChange], schemas: Mapping[str, str]
) -> dict[str, Kind]:
    kinds = dict(old_kinds)
    in_order: dict[str, None] = {}
    for change in changes:
        in_order.pop(change.schema_id, None)
        in_order[change.schema_id] = None
    for schema_id in in_order:
        if schema_id in schemas:
            kinds.update(parse_kinds(schemas[schema_id]))
    return kinds


def _lost_value(
    row: ReplicaRow, column: str, entity: str, kind: Kind, changes: Sequence[RecordChange]
) -> DeadLetter:
    change = RecordChange(
        entity=entity,
        record_id=row.record_id,
        # Under the batch's own positions, so that the dead-letter table's floor counts it with this batch.
        replay_id=changes[-1].replay_id,
        change_type="UPDATE",
        schema_id=changes[-1].schema_id,
    )
    return DeadLetter(change, "value_lost", f"the value of {column} has no equal as {kind.value}")


def commit_replica(lake: Lake, plan: ReplicaPlan, through: int, epoch: int) -> OpenTable:
    """Write a planned batch. Raises WriteConflict."""
    schema = replica_schema(plan.kinds)
    table = open_table(lake, plan.name, schema)
    rows = render_rows(plan.rows, plan.kinds)
    try:
        if plan.is_rewrite:
            write_deltalake(
                table.delta,
                rows,
                mode="overwrite",
                schema_mode="overwrite",
                commit_properties=commit_properties(table, through, epoch),
            )
            return table
        if set(schema.names) - set(arrow_schema(table).names):
            # Only the table's metadata; running it twice changes nothing.
            write_deltalake(table.delta, schema.empty_table(), mode="append", schema_mode="merge")
    except CommitFailedError as error:
        raise WriteConflict(f"another writer has changed {plan.name}", table=plan.name) from error
    merge_rows(table, rows, RECORD_ID, through, epoch)
    return table


def load_rows(table: OpenTable, ids: Iterable[str] | None) -> dict[str, ReplicaRow]:
    """Rows of a replica by record id: those of the given records, or all."""
    wanted = None if ids is None else pa.array(sorted(ids), pa.string())
    rows: dict[str, ReplicaRow] = {}
    for part in iter_rows(table):
        found = part if wanted is None else part.filter(pc.is_in(part[RECORD_ID], wanted))
        rows |= parse_rows(found)
    return rows


def parse_rows(rows: pa.Table) -> dict[str, ReplicaRow]:
    """A replica's Arrow rows as values, by record id."""
    columns = {name: parse_column(rows[name], kind) for name, kind in kinds_of(rows.schema).items()}
    own = {name: rows[name].to_pylist() for name in (RECORD_ID, REPLAY_ID, COMMIT_MS, DELETED, STALE)}
    found: dict[str, ReplicaRow] = {}
    for i, record_id in enumerate(own[RECORD_ID]):
        values: dict[str, Native] = {
            name: column[i] for name, column in columns.items() if column[i] is not None
        }
        found[record_id] = ReplicaRow(
            record_id, own[REPLAY_ID][i], own[COMMIT_MS][i], values, own[DELETED][i], own[STALE][i]
        )
    return found


def render_rows(rows: Sequence[ReplicaRow], kinds: Mapping[str, Kind]) -> pa.Table:
    """Values, already of their columns' types, as Arrow rows of a replica."""
    arrays = [
        pa.array([row.record_id for row in rows], pa.string()),
        pa.array([row.replay_id for row in rows], pa.int64()),
        pa.array([row.commit_ms for row in rows], pa.int64()),
        pa.array([row.is_deleted for row in rows], pa.bool_()),
        pa.array([row.is_stale for row in rows], pa.bool_()),
    ]
    arrays += [render_column([row.values.get(name) for row in rows], kind) for name, kind in kinds.items()]
    return pa.Table.from_arrays(arrays, schema=replica_schema(kinds))


def find_version(lake: Lake, table: str, as_of: int | None = None) -> int | None:
    """The version of a table that the manifest names for the newest batch, or for the newest at or before a
    position.
    """
    manifest = try_open_table(lake, "manifest")
    if manifest is None:
        return None
    rows = read_rows(manifest, ["position", "table_versions"])
    if as_of is not None:
        rows = rows.filter(pc.less_equal(rows["position"], as_of))
    if not rows.num_rows:
        return None
    newest = rows["position"].to_pylist().index(pc.max(rows["position"]).as_py())
    version: int | None = json.loads(rows["table_versions"][newest].as_py()).get(table)
    return version


def replica(
    spark: SparkSession,
    lake: Lake | str,
    entity: str,
    as_of: int | None = None,
    *,
    with_deleted: bool = False,
) -> DataFrame:
    """The records of an object, as of the newest applied batch or of the newest one at or before replay id
    `as_of`.

    Replicas read with one `as_of` belong together: no transaction shows in one and not in the other. Raises
    ObjectUnknown if the lake has nothing of this object at that position.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    place = Lake(lake) if isinstance(lake, str) else lake
    name = f"replica/{entity}"
    version = find_version(place, name, as_of)
    if version is None:
        raise ObjectUnknown(f"the lake holds no replica of {entity} at that position", entity=entity)
    delta = DeltaTable(place.table(name), version=version)
    schema = from_arrow_schema(pa.schema(delta.schema().to_arrow()))
    files = delta.file_uris()
    rows = spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)
    return rows if with_deleted else rows.where(f"NOT `{DELETED}`")
