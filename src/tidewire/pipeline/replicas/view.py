"""What a reader of one object needs from the lake at a snapshot point, and how it is folded.

A replica is not a table: it is base, history and reads folded (manifest.py defines the rows). Other engines
see the base alone, a plain Delta table that holds everything up to its own position. A deleted record keeps
its row with its last values and `_deleted`; `_stale` marks a row that is known to be behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.errors import ConfigInvalid, LogCorrupt, ObjectUnknown, ReplayIdExpired
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.lake.columns import RECORD_ID, Kind, bucket_of, kinds_of, replica_schema
from tidewire.pipeline.lake.files import count_rows, list_files, read_file, read_rows
from tidewire.pipeline.lake.manifest import (
    NO_POSITION,
    AtNumber,
    ManifestRow,
    SnapshotPoint,
    kinds_of_state,
    newest,
    retyped_kinds,
    try_first_number,
)
from tidewire.pipeline.lake.schemas import load_schemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import (
    READS,
    Lake,
    OpenTable,
    arrow_schema,
    load_shared_table,
    try_open_table,
)
from tidewire.pipeline.replicas.fold import Folded, fold_records, visible_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUCKETS = "tidewire.buckets"
GROUP = "_group"
ROWS_PER_GROUP = 20_000
IS_OBJECT_WIDE = f"(record_id LIKE '%*' OR record_id = '{EMPTY_ID}')"
"""`is_object_wide` in SQL."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """What is needed to read one object at a snapshot point; `retyped` comes from `retyped_kinds`."""

    lake: Lake
    entity: str
    position: int
    base: OpenTable | None
    base_position: int
    kinds: Mapping[str, Kind]
    retyped: Mapping[str, Mapping[str, Kind]] = field(default_factory=dict)

    @property
    def base_kinds(self) -> dict[str, Kind]:
        """Return the field columns of the base; none without a base."""
        return {} if self.base is None else kinds_of(arrow_schema(self.base))

    def history_files(self) -> list[str]:
        """Return the history files with rows above the base and at or below the position."""
        return self._files("history", Span(self.base_position, self.position))

    def reads_files(self) -> list[str]:
        """Return the files of reads with rows at or above the base position."""
        return self._files("reads", Span(self.base_position - 1, self.position))

    def change_files(self) -> list[tuple[str, int]]:
        """Return the files of history and reads, each with the lowest replay id that the base lacks.

        A read at the base position may have been committed after the base was folded, so it is folded (again).
        """
        history = [(path, self.base_position + 1) for path in self.history_files()]
        return history + [(path, self.base_position) for path in self.reads_files()]

    def base_files(self, ids: Iterable[str] | None = None) -> list[str]:
        """Return the files of the base that may have these records, or all."""
        if self.base is None:
            return []
        paths = self.base.delta.file_uris()
        buckets = self.base.delta.metadata().configuration.get(BUCKETS)
        if ids is None or buckets is None:
            return paths
        wanted = {f"_bucket={bucket_of(record_id, int(buckets))}" for record_id in ids}
        return [path for path in paths if os.path.basename(os.path.dirname(path)) in wanted]

    def _files(self, group: str, span: Span) -> list[str]:
        table = load_shared_table(self.lake, f"{group}/{self.entity}")
        return [] if table is None else list_files(table, span)


def open_view(lake: Lake, entity: str, as_of: SnapshotPoint | None = None) -> ReplicaView:
    """Open an object at the newest row of the manifest, or at a snapshot point.

    Raises ObjectUnknown if the lake has nothing of this object there, ReplayIdExpired if maintenance has
    removed it, ConfigInvalid for a row that does not exist yet.
    """
    row = find_snapshot_point(lake, as_of)
    state = row.entities.get(entity)
    if state is None:
        known = ", ".join(row.entities) or "no object"
        raise ObjectUnknown(
            f"the lake holds nothing of {entity} at replay id {row.position}; it has {known}", entity=entity
        )
    name = f"replica/{entity}"
    version = row.table_versions.get(name)
    base = _open_base(lake, name, version) if version is not None else None
    texts = load_schemas(lake)
    kinds = kinds_of_state(state, texts)
    if base is not None:
        kinds = {**kinds_of(arrow_schema(base)), **kinds}
    base_position = state.base_position if base is not None else NO_POSITION
    retyped = retyped_kinds(entity, kinds, texts)
    return ReplicaView(lake, entity, row.position, base, base_position, kinds, retyped)


def try_open_view(lake: Lake, entity: str) -> ReplicaView | None:
    """Open an object at the newest row of the manifest; None if the lake has nothing of it."""
    try:
        return open_view(lake, entity)
    except ObjectUnknown:
        return None


def find_snapshot_point(lake: Lake, as_of: SnapshotPoint | None = None) -> ManifestRow:
    """Return the row of the manifest for a snapshot point. Raises as `open_view` does."""
    row = newest(lake, as_of)
    # Rows without a position precede the first snapshot: they hold nothing of any replay id.
    if row is None or (row.position == NO_POSITION and isinstance(as_of, int)):
        first = try_first_number(lake)
        if first is None:
            raise ObjectUnknown(f"nothing has been applied to the lake {lake.path} yet")
        if first > 1:
            raise ReplayIdExpired(f"the lake {lake.path} no longer keeps snapshot points that old")
        raise ObjectUnknown(f"the lake {lake.path} begins later: its manifest has no row that early")
    if isinstance(as_of, AtNumber) and row.number != as_of.number:
        raise ConfigInvalid(
            f"the manifest has no row {as_of.number}; the newest is {row.number}", setting="manifest"
        )
    return row


def _open_base(lake: Lake, name: str, version: int) -> OpenTable:
    try:
        base = try_open_table(lake, name, version)
    except LogCorrupt:
        # Its commits may have been removed by retention; a log that is corrupt as a whole raises here.
        try_open_table(lake, name)
        base = None
    if base is None or not all(os.path.exists(path) for path in base.delta.file_uris()):
        raise ReplayIdExpired(f"the lake no longer keeps version {version} of {name}", table=name)
    return base


def fold_view(view: ReplicaView, ids: set[str] | None = None, extra: pa.Table | None = None) -> Folded:
    """Fold a view, for some records or all; `extra` are rows of history that are not committed yet."""
    through = view.position
    changes = read_changes(view, ids)
    if extra is not None and extra.num_rows:
        changes = pa.concat_tables([changes, extra], promote_options="default")
        through = max(through, pc.max(extra["replay_id"]).as_py())
    return fold_records(read_base(view, ids), changes, view.kinds, through, view.retyped)


def read_base(view: ReplicaView, ids: set[str] | None = None) -> pa.Table:
    """Read rows of the base: those of some records, or all."""
    schema = replica_schema(view.base_kinds)
    parts = [schema.empty_table()]
    wanted = None if ids is None else pa.array(sorted(ids), pa.string())
    for path in view.base_files(ids):
        rows = read_file(path, schema)
        parts.append(rows if wanted is None else rows.filter(pc.is_in(rows[RECORD_ID], wanted)))
    return pa.concat_tables(parts)


def read_changes(view: ReplicaView, ids: set[str] | None = None) -> pa.Table:
    """Read the rows of history and reads visible in a view, with the columns of READS.

    With `ids`, those of the given records and those about all records.
    """
    parts = [READS.empty_table(), *iter_changes(view.change_files(), READS, view.position)]
    if ids is not None:
        wanted = pa.array(sorted(ids), pa.string())
        parts = [
            part.filter(pc.or_(pc.is_in(part["record_id"], wanted), is_object_wide(part))) for part in parts
        ]
    return pa.concat_tables(parts)


def iter_changes(files: Iterable[tuple[str, int]], schema: pa.Schema, through: int) -> Iterator[pa.Table]:
    """Yield the rows of `change_files` that are visible at a position, file by file."""
    for path, first in files:
        rows = read_file(path, schema)
        rows = rows.filter(pc.greater_equal(rows["replay_id"], first))
        yield rows.filter(visible_at(rows, through))


def is_object_wide(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows of history are about all records of their object."""
    found: pa.ChunkedArray = pc.or_(
        pc.ends_with(rows["record_id"], "*"), pc.equal(rows["record_id"], EMPTY_ID)
    )
    return found


def without_base(view: ReplicaView) -> ReplicaView:
    """Return a view without base: everything that is known of the object."""
    return replace(view, base=None, base_position=NO_POSITION)


def read_spark_changes(spark: SparkSession, view: ReplicaView) -> DataFrame | None:
    """Return the rows of `read_changes` as a DataFrame; None if there are no files."""
    from pyspark.sql.pandas.types import from_arrow_schema

    parts: list[DataFrame] = []
    for files, first in (
        (view.history_files(), view.base_position + 1),
        (view.reads_files(), view.base_position),
    ):
        if files:
            rows = spark.read.schema(from_arrow_schema(READS)).parquet(*files)
            parts.append(rows.where(rows["replay_id"] >= first))
    if not parts:
        return None
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return rows.where(f"coalesce(greatest(settled, replay_id), replay_id) <= {view.position}")


def read_object_wide(changes: DataFrame) -> pa.Table:
    """Collect the changes about all records in the driver: they are few, and each group needs them."""
    rows = changes.where(IS_OBJECT_WIDE).select(READS.names).toArrow()
    return rows.cast(READS)


def group_key(column: str, groups: int) -> Column:
    """Return the group in which a record is folded."""
    from pyspark.sql import functions as f

    return f.crc32(f.col(column).cast("binary")) % groups


def count_groups(view: ReplicaView) -> int:
    """Return the number of groups to fold a view in, so that each fits an executor's memory easily."""
    names = (f"{group}/{view.entity}" for group in ("history", "reads"))
    rows = sum(count_rows(load_shared_table(view.lake, name)) for name in names)
    return max(2, rows // ROWS_PER_GROUP)


def fold_limit(lake: Lake, entity: str, position: int) -> int:
    """Return how far a base may reach, at most `position`.

    No read may straddle its end, with the fence below and `settled` above: a base can neither include such a
    read nor be combined with it.
    """
    table = load_shared_table(lake, f"reads/{entity}")
    if table is None:
        return position
    reads = read_rows(table, ["replay_id", "settled"])
    while True:
        across = pc.and_(pc.less(reads["replay_id"], position), pc.greater(reads["settled"], position))
        lowest: int | None = pc.min(reads.filter(across)["replay_id"]).as_py()
        if lowest is None:
            return position
        position = lowest
