"""The tables of a lake and the one rule by which anything is written to them.

Layout under the lake's directory: `bronze`, `schemas`, `history/<Entity>`, `reads/<Entity>`, `replica/<Entity>`,
`control/dirty`, `control/resync`, `dead_letter`, `usage/hourly`, `usage/daily`, `manifest`, and
`_checkpoints/<query>`. All are plain Delta tables at reader version 1.

The commit rule: each commit carries (app id, version). The app id is `<pipeline>/<table>` and never changes; the
version is the log position up to which the table then holds everything. A writer opens the table, reads that
position, drops its rows at or below it, and commits on the very object it opened. So a repeated batch finds nothing
to do; and of two writers that opened the same state the second one's commit is rejected, because the first has moved
the version that it depends on. Writers without positions (reads, control work, retries) count their commits under
their own app id, `<pipeline>/<table>/<writer>`.

The fence: each commit also carries (`<pipeline>/epoch`, epoch of the driver's lease). A table with a higher epoch
rejects it, so a driver that has lost its lease without noticing writes nothing. Threads of one driver that write the
same table serialize with `manifest.lock`; without it the slower one is rejected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from tidewire.errors import LogCorrupt, WriteConflict
from tidewire.pipeline.lake.spans import START

_DDL_TYPES = {
    "LONG": pa.int64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "ARRAY<STRING>": pa.list_(pa.string()),
}


def parse_ddl(ddl: str) -> pa.Schema:
    """Return the Arrow schema of columns written as Spark's DDL, which data sources must return as text."""
    columns = (column.split(" ") for column in ddl.split(", "))
    return pa.schema([(name, _DDL_TYPES[kind]) for name, kind in columns])


BRONZE = parse_ddl(
    "replay_id LONG, event_id STRING, topic STRING, schema_id STRING, payload BINARY, "
    "transaction_last LONG, entity STRING, change_type STRING, record_ids ARRAY<STRING>, "
    "change_origin STRING, transaction_key STRING, sequence LONG, commit_ms LONG, commit_number LONG, "
    "commit_user STRING, header_error STRING"
)
"""One row per event as received.

Header columns are null for events that are not change events, and for change events whose header does not
decode; `header_error` then has the reason.
"""

SCHEMAS = parse_ddl("schema_id STRING, schema_json STRING, entity STRING, first_replay_id LONG")
"""Every Avro schema that a row of bronze, history or reads needs, except those that the server refused.

May list one twice, with equal texts. `entity` is null for schemas of other than change events.
"""

HISTORY = parse_ddl(
    "record_id STRING, replay_id LONG, sequence LONG, change_type STRING, transaction_key STRING, "
    "commit_number LONG, commit_ms LONG, user_id STRING, origin STRING, schema_id STRING, "
    "changed ARRAY<STRING>, values_json STRING, enriched_json STRING, problem STRING"
)
"""One row per change of one record, or per event about all records (record id `001*` or the empty id).

`values_json` holds what the event sets, by column, as Avro encodes it; a text difference is `{"diff": ...}`.
`enriched_json` holds what else the event carries, which is never applied. `problem` says why the record is
behind after this event; null if it is not.
"""

READS = pa.schema([*HISTORY, ("fence", pa.int64()), ("settled", pa.int64())])
"""Rows read through the records API: READ (`values_json` has all columns) or MISSING (the record is gone).

`replay_id` is the fence: the row includes every event up to it. Events after `fence` and up to `settled` may
be included too; applying them again does no harm.
"""

DIRTY = parse_ddl("entity STRING, record_id STRING, replay_id LONG, reason STRING, state STRING, at_ms LONG")
"""Records to read again because of the event at `replay_id` (`open`), and the outcome (`done`, `failed`)."""

RESYNC = parse_ddl(
    "entity STRING, cause STRING, since LONG, chunk_lo STRING, chunk_hi STRING, state STRING, rows LONG, "
    "fence LONG, at_ms LONG"
)
"""Objects to read again (pending, done or failed, with null bounds), and the id ranges read at a fence.

A range is above chunk_lo, up to chunk_hi; an empty bound is open.
"""

USAGE_HOURLY = parse_ddl("hour_ms LONG, name STRING, channel STRING, client STRING, value LONG, at_ms LONG")
"""Event usage by UTC hour, under the names of PlatformEventUsageMetric."""

USAGE_DAILY = parse_ddl("day_ms LONG, name STRING, value LONG, at_ms LONG")
"""Event usage by UTC day."""

DEAD_LETTER = parse_ddl(
    "replay_id LONG, entity STRING, record_id STRING, change_type STRING, schema_id STRING, "
    "reason STRING, detail STRING, event_id STRING, retried_ms LONG, outcome STRING"
)
"""Events that could not be applied; bronze has them under their replay id and event id.

A retry adds a row with its time and outcome (`applied`, `failed`); the newest row of (replay id, event id)
counts.
"""

MANIFEST = parse_ddl(
    "number LONG, position LONG, after LONG, applied_ms LONG, epoch LONG, changes LONG, "
    "dead_letters LONG, table_versions STRING, entities STRING, cause STRING"
)
"""One row per applied batch, maintenance step or commit of reads, written after all other tables.

See manifest.py.
"""

TABLES = {
    "bronze": BRONZE,
    "schemas": SCHEMAS,
    "manifest": MANIFEST,
    "dead_letter": DEAD_LETTER,
    "control/dirty": DIRTY,
    "control/resync": RESYNC,
    "usage/hourly": USAGE_HOURLY,
    "usage/daily": USAGE_DAILY,
}
"""Every table that exists once, by name. The lease and compaction walk this list."""
GROUPS = {"history": HISTORY, "reads": READS}
"""Folders with one table per object. Those of `replica` differ in their columns."""

CHECKPOINT_COMMITS = 10
"""Opening a table reads the commits since its last checkpoint, so there must be few."""
_MAX_SHARED = 256


@dataclass(frozen=True, slots=True)
class Lake:
    """A directory of tables, and the name of the pipeline that writes them."""

    path: str
    pipeline: str = "main"

    def table(self, name: str) -> str:
        """Return the directory of a table such as `bronze` or `replica/Account`."""
        return os.path.join(self.path, *name.split("/"))

    def checkpoint(self, query: str) -> str:
        """Return where a query keeps its offsets.

        Inside the lake, so that both are copied and deleted together.
        """
        return os.path.join(self.path, "_checkpoints", query)

    def app_id(self, name: str) -> str:
        """Return the app id under which this pipeline's commits to a table are counted."""
        return f"{self.pipeline}/{name}"

    def names(self, group: str) -> list[str]:
        """Return the existing tables of a group: `history` -> [`history/Account`, ...]."""
        try:
            found = sorted(os.listdir(self.table(group)))
        except FileNotFoundError:
            return []
        return [f"{group}/{name}" for name in found]


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table as of the time it was opened.

    `committed` is the position that it holds everything up to, None if nothing was committed by position;
    `epoch` is the highest that has written to it.
    """

    name: str
    directory: str
    app_id: str
    delta: DeltaTable
    committed: int | None
    epoch_id: str
    epoch: int

    @property
    def floor(self) -> int:
        """Rows at or below this position are already in the table."""
        return -1 if self.committed is None else self.committed


def try_open_table(lake: Lake, name: str, version: int | None = None) -> OpenTable | None:
    """Open a table at its newest or a given version; None if it does not exist. Raises LogCorrupt."""
    # Opening a table is expensive; that it does not exist is seen by its directory.
    if not os.path.isdir(os.path.join(lake.table(name), "_delta_log")):
        return None
    try:
        delta = DeltaTable(lake.table(name), version=version)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise LogCorrupt(
            f"the log of table {name} in {lake.path} cannot be read ({str(error).splitlines()[0][:200]}); restore "
            "its directory from a backup, or start a new lake"
        ) from error
    # Both come from the opened version, so that a commit on this object is checked against exactly what was read.
    app_id, epoch_id = lake.app_id(name), lake.app_id("epoch")
    committed, epoch = delta.transaction_version(app_id), delta.transaction_version(epoch_id)
    return OpenTable(name, lake.table(name), app_id, delta, committed, epoch_id, epoch or 0)


_shared: dict[tuple[str, str], tuple[OpenTable, int, tuple[int, ...]]] = {}
_shared_lock = threading.Lock()


def load_shared_table(lake: Lake, name: str) -> OpenTable | None:
    """Return the newest state of a table, for reading only; None if it does not exist. Raises LogCorrupt.

    All callers share it until the table has another commit, which costs one look at its directory; opening it
    would read every commit since the last checkpoint. So nobody may commit, alter or update through it.
    """
    key = (lake.table(name), lake.pipeline)
    log = os.path.join(key[0], "_delta_log")
    known = _shared.get(key)
    if known is not None:
        table, version, identity = known
        # Delta numbers commits without gaps: if the next file does not exist, nothing was committed since.
        is_newest = not os.path.exists(os.path.join(log, f"{version + 1:020}.json"))
        # A lake that was deleted and created again has a commit of the same number, but another file.
        if is_newest and identity and _commit_identity(log, version) == identity:
            return table
    # Opened without the lock: two threads may both open it, which only costs time.
    found = try_open_table(lake, name)
    with _shared_lock:
        _shared.pop(key, None)
        if found is not None:
            version = found.delta.version()
            # Oldest first: a process that reads many lakes must not keep them all.
            while len(_shared) >= _MAX_SHARED:
                _shared.pop(next(iter(_shared)))
            _shared[key] = (found, version, _commit_identity(log, version))
    return found


def _commit_identity(log: str, version: int) -> tuple[int, ...]:
    """Identify a commit file, to notice a table that was created anew in the same place; empty if it is gone."""
    try:
        found = os.stat(os.path.join(log, f"{version:020}.json"))
    except FileNotFoundError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def open_table(lake: Lake, name: str, schema: pa.Schema | None = None) -> OpenTable:
    """Open a table at its newest version, creating it if it does not exist.

    Only tables that are not in TABLES or GROUPS need a schema.
    """
    found = try_open_table(lake, name)
    if found is None:
        os.makedirs(lake.table(name), exist_ok=True)
        schema = schema or TABLES.get(name) or GROUPS[name.partition("/")[0]]
        # "ignore": another writer may create it at the same time, and either table is as good.
        DeltaTable.create(
            lake.table(name),
            schema=schema,
            mode="ignore",
            configuration={"delta.checkpointInterval": str(CHECKPOINT_COMMITS)},
        )
        found = try_open_table(lake, name)
        if found is None:
            raise WriteConflict(f"table {name} disappeared while it was being created", table=name)
    return found


def commit_properties(
    table: OpenTable, through: int | None, epoch: int, writer: str = ""
) -> CommitProperties:
    """Return the transaction ids of a commit: the position it moves the table to, and its epoch.

    A `writer` without positions counts its commits instead. Raises WriteConflict if a newer driver has
    written the table.
    """
    # The check is on the opened version. A newer driver that commits after it was opened moves the epoch's own
    # transaction id, which makes Delta reject this commit.
    if table.epoch > epoch:
        raise WriteConflict(
            f"{table.name} was last written in epoch {table.epoch} by a newer driver; this one, of epoch "
            f"{epoch}, no longer holds the lease and writes nothing",
            table=table.name,
        )
    if through is None:
        # Not the table's own app id: that one holds a position, and a count would move it backwards.
        app_id = f"{table.app_id}/{writer}"
        through = (table.delta.transaction_version(app_id) or 0) + 1
    else:
        app_id = table.app_id
    return CommitProperties(
        custom_metadata={"tidewire.epoch": str(epoch)},
        app_transactions=[Transaction(app_id, through), Transaction(table.epoch_id, epoch)],
    )


def append_rows(table: OpenTable, rows: pa.Table, through: int | None, epoch: int, writer: str = "") -> None:
    """Append rows (all above the table's floor) and move the table to `through`. Raises WriteConflict.

    With `through` None, count one more commit of `writer` instead.
    """
    properties = commit_properties(table, through, epoch, writer)
    with reporting_conflict(table):
        write_deltalake(table.delta, rows, mode="append", commit_properties=properties)


def append_counted(
    lake: Lake, name: str, rows: Sequence[Mapping[str, Any]], epoch: int, writer: str
) -> dict[str, int]:
    """Append rows to a table as one more commit of `writer`; return the table's new version by its name.

    Without rows nothing is committed or returned. Raises WriteConflict.
    """
    if not rows:
        return {}
    table = open_table(lake, name)
    append_rows(table, pa.Table.from_pylist(list(rows), schema=TABLES[name]), None, epoch, writer)
    return {name: table.delta.version()}


def append_files(
    table: OpenTable,
    files: Sequence[AddAction | RemoveAction],
    through: int | None,
    epoch: int,
    writer: str = "",
) -> None:
    """Add files that tasks have written to the table's directory, and remove those they replace.

    Raises WriteConflict.
    """
    commit_files(table, files, commit_properties(table, through, epoch, writer))
    # Unlike an append of rows, such a commit leaves the opened table at the version before it. Callers put the
    # table's version into the manifest, so it must be the new one.
    table.delta.update_incremental()


def commit_files(
    table: OpenTable, files: Sequence[AddAction | RemoveAction], properties: CommitProperties
) -> None:
    """Commit files to the version that was opened, which `table` stays at. Raises WriteConflict."""
    columns = table.delta.metadata().partition_columns
    with reporting_conflict(table):
        table.delta.create_write_transaction(
            list(files), "append", arrow_schema(table), partition_by=columns, commit_properties=properties
        )


@contextmanager
def reporting_conflict(table: OpenTable) -> Iterator[None]:
    """Raise WriteConflict if a commit inside is rejected because the table has changed."""
    try:
        yield
    except CommitFailedError as error:
        raise conflict(table) from error


def conflict(table: OpenTable) -> WriteConflict:
    """Return the error for a table that has changed since it was opened."""
    return WriteConflict(
        f"another writer has changed {table.name}; this batch was not written and will be retried",
        table=table.name,
    )


def try_committed(lake: Lake, name: str) -> int | None:
    """Return the position up to which a table holds everything; None if it has no commits or does not exist."""
    table = try_open_table(lake, name)
    return None if table is None else table.committed


def committed_position(table: OpenTable | None) -> int:
    """Return the position up to which a table holds everything; START if it has no commits or does not exist."""
    return START if table is None or table.committed is None else table.committed


def arrow_schema(table: OpenTable) -> pa.Schema:
    """Return a table's columns with Arrow types."""
    return pa.schema(table.delta.schema().to_arrow())
