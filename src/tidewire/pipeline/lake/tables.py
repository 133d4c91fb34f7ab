"""The tables of a lake and the one rule by which anything is written to them.

Layout under the lake's directory: `bronze`, `schemas`, `history/<Entity>`, `reads/<Entity>`,
`replica/<Entity>`, `control/dirty`, `control/resync`, `dead_letter`, `usage/hourly`, `usage/daily`,
`manifest`, and `_checkpoints/<query>`. All are plain Delta tables at reader version 1.

The rule: each commit carries (app id, version) where the app id is `<pipeline>/<table>`, stable for ever,
and the version is the log position that the table then holds everything up to. A writer opens the table,
reads that position, drops its rows at or below it, and commits on the very object it opened. A replayed
batch therefore finds nothing to do, and of two writers that opened the same state the second one's commit
is refused, because the first has moved the version it depends on. What has no position of its own (reads,
control work, retries) counts its commits under an app id of its own, `<pipeline>/<table>/<writer>`.

Each commit also carries (`<pipeline>/epoch`, epoch of the driver's lease). A table that names a higher
epoch refuses: a driver that lost its lease without knowing writes nothing. Two threads of one driver that
write the same table take turns (`manifest.lock`), or the slower one is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from tidewire.errors import LogCorrupt, WriteConflict

BRONZE = pa.schema(
    [
        ("replay_id", pa.int64()),
        ("event_id", pa.string()),
        ("topic", pa.string()),
        ("schema_id", pa.string()),
        ("payload", pa.binary()),
        ("transaction_last", pa.int64()),
        ("entity", pa.string()),
        ("change_type", pa.string()),
        ("record_ids", pa.list_(pa.string())),
        ("change_origin", pa.string()),
        ("transaction_key", pa.string()),
        ("sequence", pa.int64()),
        ("commit_ms", pa.int64()),
        ("commit_number", pa.int64()),
        ("commit_user", pa.string()),
        ("header_error", pa.string()),
    ]
)
"""One row per event as it came. The header columns are null for events that are not change events; if a
change event's header does not decode they are null too and `header_error` says why.
"""

SCHEMAS = pa.schema(
    [
        ("schema_id", pa.string()),
        ("schema_json", pa.string()),
        ("entity", pa.string()),
        ("first_replay_id", pa.int64()),
    ]
)
"""Every Avro schema that a row of bronze, history or reads needs, except those that the server refused to give.
May list one twice; the texts are then equal. `entity` is null for schemas that are not of change events.
"""

HISTORY = pa.schema(
    [
        ("record_id", pa.string()),
        ("replay_id", pa.int64()),
        ("sequence", pa.int64()),
        ("change_type", pa.string()),
        ("transaction_key", pa.string()),
        ("commit_number", pa.int64()),
        ("commit_ms", pa.int64()),
        ("user_id", pa.string()),
        ("origin", pa.string()),
        ("schema_id", pa.string()),
        ("changed", pa.list_(pa.string())),
        ("values_json", pa.string()),
        ("enriched_json", pa.string()),
        ("problem", pa.string()),
    ]
)
"""One row per change of one record, or per event about all records of the object (record id `001*` or the
empty id). `values_json` holds what the event sets, by flat column name, as Avro sent it; a text difference
stands there as `{"diff": ...}`. `enriched_json` holds what the event carries besides, which is never
applied. `problem` says why the record is behind after this event, null if it is not.
"""

READS = pa.schema([*HISTORY, ("fence", pa.int64()), ("settled", pa.int64())])
"""Rows read through the records API: change type READ (all columns of the record are in `values_json`) or
MISSING (it is not there). `replay_id` is the fence: the row holds every event up to it. Events after
`fence` and up to `settled` may be in it as well; they are applied again, which does no harm.
"""

DIRTY = pa.schema(
    [
        ("entity", pa.string()),
        ("record_id", pa.string()),
        ("replay_id", pa.int64()),
        ("reason", pa.string()),
        ("state", pa.string()),
        ("at_ms", pa.int64()),
    ]
)
"""Records that must be read again because of the event at `replay_id` (`open`), or that a read at that
position has brought up to date (`done`), or that cannot be read (`failed`).
"""

RESYNC = pa.schema(
    [
        ("entity", pa.string()),
        ("cause", pa.string()),
        ("since", pa.int64()),
        ("chunk_lo", pa.string()),
        ("chunk_hi", pa.string()),
        ("state", pa.string()),
        ("rows", pa.int64()),
        ("fence", pa.int64()),
        ("at_ms", pa.int64()),
    ]
)
"""Objects that must be read again: state pending, done or failed, with null bounds; and id ranges of them that
were read at a fence (done): above chunk_lo, up to chunk_hi, open where empty.
"""

USAGE_HOURLY = pa.schema(
    [
        ("hour_ms", pa.int64()),
        ("name", pa.string()),
        ("channel", pa.string()),
        ("client", pa.string()),
        ("value", pa.int64()),
        ("at_ms", pa.int64()),
    ]
)
"""Event usage by UTC hour under the names that PlatformEventUsageMetric has."""

USAGE_DAILY = pa.schema(
    [("day_ms", pa.int64()), ("name", pa.string()), ("value", pa.int64()), ("at_ms", pa.int64())]
)
"""The same by UTC day."""

DEAD_LETTER = pa.schema(
    [
        ("replay_id", pa.int64()),
        ("entity", pa.string()),
        ("record_id", pa.string()),
        ("change_type", pa.string()),
        ("schema_id", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("event_id", pa.string()),
        ("retried_ms", pa.int64()),
        ("outcome", pa.string()),
    ]
)
"""What could not be applied. The event itself is in bronze under its replay id and event id. A retry adds a
row with the time and what came of it (`applied`, `failed`); the newest row of (replay id, event id) counts.
"""

MANIFEST = pa.schema(
    [
        ("number", pa.int64()),
        ("position", pa.int64()),
        ("after", pa.int64()),
        ("applied_ms", pa.int64()),
        ("epoch", pa.int64()),
        ("changes", pa.int64()),
        ("dead_letters", pa.int64()),
        ("table_versions", pa.string()),
        ("entities", pa.string()),
        ("cause", pa.string()),
    ]
)
"""One row per applied batch, maintenance step or commit of reads, written after every other table: how the
lake is read at `position`. See manifest.py.
"""

CHECKPOINT_COMMITS = 10
"""Whoever opens a table reads the commits since its last checkpoint: few must stay few."""
_MAX_PEEKED = 256


@dataclass(frozen=True, slots=True)
class Lake:
    """A directory of tables, and the name of the pipeline that writes them."""

    path: str
    pipeline: str = "main"

    def table(self, name: str) -> str:
        """The directory of a table such as `bronze` or `replica/Account`."""
        return os.path.join(self.path, *name.split("/"))

    def checkpoint(self, query: str) -> str:
        """Where a query keeps its offsets. Inside the lake, so that the two are deleted and copied
        together.
        """
        return os.path.join(self.path, "_checkpoints", query)

    def app_id(self, name: str) -> str:
        """Under which name this pipeline's commits to a table are counted."""
        return f"{self.pipeline}/{name}"

    def names(self, group: str) -> list[str]:
        """The existing tables of a group: `history` -> [`history/Account`, ...]."""
        try:
            found = sorted(os.listdir(self.table(group)))
        except FileNotFoundError:
            return []
        return [f"{group}/{name}" for name in found]


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table as it was when opened, the position it held everything up to (None if nothing was ever
    committed by position), and the highest epoch that has written to it.
    """

    name: str
    app_id: str
    delta: DeltaTable
    committed: int | None
    epoch_id: str
    epoch: int

    @property
    def floor(self) -> int:
        """Rows at or below this position are in the table already."""
        return -1 if self.committed is None else self.committed


def try_open_table(lake: Lake, name: str, version: int | None = None) -> OpenTable | None:
    """Open a table at its newest or a given version, or None if it does not exist. Raises LogCorrupt."""
    if not os.path.isdir(os.path.join(lake.table(name), "_delta_log")):
        return None
    try:
        delta = DeltaTable(lake.table(name), version=version)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise LogCorrupt(
            f"the log of table {name} in {lake.path} cannot be read ({str(error).splitlines()[0][:200]}); put back "
            "a copy of its directory, or start a new lake"
        ) from error
    app_id, epoch_id = lake.app_id(name), lake.app_id("epoch")
    committed, epoch = delta.transaction_version(app_id), delta.transaction_version(epoch_id)
    return OpenTable(name, app_id, delta, committed, epoch_id, epoch or 0)


_peeked: dict[tuple[str, str], tuple[OpenTable, int, tuple[int, ...]]] = {}
_peeked_lock = threading.Lock()


def peek_table(lake: Lake, name: str) -> OpenTable | None:
    """The newest state of a table, or None if it does not exist: for reading only. Raises LogCorrupt.

    All who ask share it until the table has another commit, which one look at its directory tells, where opening
    it would read every commit since the last checkpoint. So nobody commits, alters or moves on through it.
    """
    key = (lake.table(name), lake.pipeline)
    log = os.path.join(key[0], "_delta_log")
    known = _peeked.get(key)
    if known is not None:
        table, version, mark = known
        is_newest = not os.path.exists(os.path.join(log, f"{version + 1:020}.json"))
        if is_newest and mark and _commit_mark(log, version) == mark:
            return table
    found = try_open_table(lake, name)
    with _peeked_lock:
        _peeked.pop(key, None)
        if found is not None:
            version = found.delta.version()
            while len(_peeked) >= _MAX_PEEKED:
                _peeked.pop(next(iter(_peeked)))
            _peeked[key] = (found, version, _commit_mark(log, version))
    return found


def _commit_mark(log: str, version: int) -> tuple[int, ...]:
    """What tells a commit from one of a table that was made anew in the same place; nothing for one that is
    gone.
    """
    try:
        found = os.stat(os.path.join(log, f"{version:020}.json"))
    except FileNotFoundError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def open_table(
    lake: Lake, name: str, schema: pa.Schema, partition_by: Sequence[str] | None = None
) -> OpenTable:
    """Open a table at its newest version, creating it if need be."""
    found = try_open_table(lake, name)
    if found is None:
        os.makedirs(lake.table(name), exist_ok=True)
        columns = list(partition_by) if partition_by else None
        DeltaTable.create(
            lake.table(name),
            schema=schema,
            mode="ignore",
            partition_by=columns,
            configuration={"delta.checkpointInterval": str(CHECKPOINT_COMMITS)},
        )
        found = try_open_table(lake, name)
        if found is None:
            raise WriteConflict(f"table {name} disappeared while it was being created", table=name)
    return found


def commit_properties(
    table: OpenTable, through: int | None, epoch: int, writer: str = ""
) -> CommitProperties:
    """What makes a commit count: the position it takes the table to (or, for a `writer` without positions,
    one more commit of it), and the epoch it is made in. Raises WriteConflict if that is over.
    """
    if table.epoch > epoch:
        raise WriteConflict(
            f"{table.name} was last written in epoch {table.epoch} by a newer driver; this one, of epoch "
            f"{epoch}, no longer holds the lease and writes nothing",
            table=table.name,
        )
    if through is None:
        app_id = f"{table.app_id}/{writer}"
        through = (table.delta.transaction_version(app_id) or 0) + 1
    else:
        app_id = table.app_id
    return CommitProperties(
        custom_metadata={"tidewire.epoch": str(epoch)},
        app_transactions=[Transaction(app_id, through), Transaction(table.epoch_id, epoch)],
    )


def append_rows(table: OpenTable, rows: pa.Table, through: int | None, epoch: int, writer: str = "") -> None:
    """Append rows (all above the table's floor) and move the table to `through`; with `through` None, count
    one more commit of `writer` instead. Raises WriteConflict.
    """
    properties = commit_properties(table, through, epoch, writer)
    try:
        write_deltalake(table.delta, rows, mode="append", commit_properties=properties)
    except CommitFailedError as error:
        raise conflict(table) from error


def append_files(
    table: OpenTable,
    files: Sequence[AddAction | RemoveAction],
    schema: pa.Schema,
    through: int | None,
    epoch: int,
    writer: str = "",
) -> None:
    """Append Parquet files that tasks have written into the table's directory, and take out those that
    they replace. Raises WriteConflict.
    """
    properties = commit_properties(table, through, epoch, writer)
    columns = table.delta.metadata().partition_columns
    try:
        table.delta.create_write_transaction(
            list(files), "append", schema, partition_by=columns, commit_properties=properties
        )
    except CommitFailedError as error:
        raise conflict(table) from error
    # Unlike an append of rows, such a commit leaves the opened table at the version before it.
    table.delta.update_incremental()


def conflict(table: OpenTable) -> WriteConflict:
    """What to raise if a table has moved since it was opened."""
    return WriteConflict(
        f"another writer has changed {table.name}; this batch was not written and will be tried again",
        table=table.name,
    )


def arrow_schema(table: OpenTable) -> pa.Schema:
    """Return a table's columns with Arrow types."""
    return pa.schema(table.delta.schema().to_arrow())
