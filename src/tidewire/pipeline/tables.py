"""The tables of a lake and the one rule by which anything is written to them.

Layout under the lake's directory: `bronze`, `schemas`, `history/<Entity>`, `replica/<Entity>`,
`dead_letter`, `manifest`, and `_checkpoints/<query>`. All are plain Delta tables at reader version 1.

The rule: each commit carries (app id, version) where the app id is `<pipeline>/<table>`, stable for ever,
and the version is the log position that the table then holds everything up to. A writer opens the table,
reads that position, drops its rows at or below it, and commits on the very object it opened. A replayed
batch therefore finds nothing to do, and of two writers that opened the same state the second one's commit
is refused, because the first has moved the version it depends on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from tidewire.errors import WriteConflict
from tidewire.pipeline.spans import Span

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

SCHEMAS = pa.schema([("schema_id", pa.string()), ("schema_json", pa.string())])
"""Every Avro schema that an event in bronze needs. May list one twice; the rows are then equal."""

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
    ]
)
"""One row per change of one record. `values_json` holds the fields the event set, by flat column name, as
Avro sent them.
"""

DEAD_LETTER = pa.schema(
    [
        ("replay_id", pa.int64()),
        ("entity", pa.string()),
        ("record_id", pa.string()),
        ("change_type", pa.string()),
        ("schema_id", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)
"""What could not be applied. The event itself is in bronze under its replay id."""

MANIFEST = pa.schema(
    [
        ("position", pa.int64()),
        ("after", pa.int64()),
        ("applied_ms", pa.int64()),
        ("epoch", pa.int64()),
        ("changes", pa.int64()),
        ("dead_letters", pa.int64()),
        ("table_versions", pa.string()),
    ]
)
"""One row per applied batch, written after every other table: `table_versions` (JSON) names one version of
each table that together show the org at `position`.
"""


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
    """A table as it was when opened, and the position it held everything up to, None if nothing was ever
    committed.
    """

    name: str
    app_id: str
    delta: DeltaTable
    committed: int | None

    @property
    def floor(self) -> int:
        """Rows at or below this position are in the table already."""
        return -1 if self.committed is None else self.committed


def try_open_table(lake: Lake, name: str, version: int | None = None) -> OpenTable | None:
    """Open a table at its newest or a given version, or None if it does not exist."""
    try:
        delta = DeltaTable(lake.table(name), version=version)
    except TableNotFoundError:
        return None
    app_id = lake.app_id(name)
    return OpenTable(name, app_id, delta, delta.transaction_version(app_id))


def open_table(lake: Lake, name: str, schema: pa.Schema) -> OpenTable:
    """Open a table at its newest version, creating it if need be."""
    found = try_open_table(lake, name)
    if found is None:
        os.makedirs(lake.table(name), exist_ok=True)
        DeltaTable.create(lake.table(name), schema=schema, mode="ignore")
        found = try_open_table(lake, name)
        if found is None:
            raise WriteConflict(f"table {name} disappeared while it was being created", table=name)
    return found


def commit_properties(table: OpenTable, through: int, epoch: int) -> CommitProperties:
    """What makes a commit count: the position it takes the table to, and who wrote it."""
    return CommitProperties(
        custom_metadata={"tidewire.epoch": str(epoch)},
        app_transactions=[Transaction(table.app_id, through)],
    )


def append_rows(table: OpenTable, rows: pa.Table, through: int, epoch: int) -> None:
    """Append rows (all above the table's floor) and move the table to `through`. Raises WriteConflict."""
    properties = commit_properties(table, through, epoch)
    try:
        write_deltalake(table.delta, rows, mode="append", commit_properties=properties)
    except CommitFailedError as error:
        raise _conflict(table) from error


def append_files(
    table: OpenTable, files: Sequence[AddAction], schema: pa.Schema, through: int, epoch: int
) -> None:
    """Append Parquet files that tasks have written into the table's directory. Raises WriteConflict."""
    properties = commit_properties(table, through, epoch)
    try:
        table.delta.create_write_transaction(list(files), "append", schema, commit_properties=properties)
    except CommitFailedError as error:
        raise _conflict(table) from error


def merge_rows(table: OpenTable, rows: pa.Table, key: str, through: int, epoch: int) -> None:
    """Replace or insert whole rows by key and move the table to `through`. Raises WriteConflict."""
    properties = commit_properties(table, through, epoch)
    merger = table.delta.merge(
        rows, f'target."{key}" = source."{key}"', "source", "target", commit_properties=properties
    )
    try:
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
    except CommitFailedError as error:
        raise _conflict(table) from error


def _conflict(table: OpenTable) -> WriteConflict:
    return WriteConflict(
        f"another writer has changed {table.name}; this batch was not written and will be tried again",
        table=table.name,
    )


def arrow_schema(table: OpenTable) -> pa.Schema:
    """A table's columns in Arrow's types."""
    return pa.schema(table.delta.schema().to_arrow())


def list_files(table: OpenTable, span: Span) -> list[str]:
    """Names of the files of a table with replay ids that may have rows in a span, oldest first."""
    actions = pa.table(table.delta.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    columns = (actions[name].to_pylist() for name in ("min.replay_id", "max.replay_id", "path"))
    found = [
        (first, path)
        for first, last, path in zip(*columns, strict=True)
        if last > span.after and first <= span.through
    ]
    return [path for _, path in sorted(found)]


def read_file(path: str, schema: pa.Schema) -> pa.Table:
    """These columns of one Parquet file; columns that the file is too old to have are null.

    Plain reads and no dataset scans anywhere in this package: a scan may leave a thread behind that aborts the
    process when it exits soon after.
    """
    with pq.ParquetFile(path) as file:
        present = [name for name in schema.names if name in file.schema_arrow.names]
        rows = file.read(columns=present, use_threads=False)
    columns = [
        rows[field.name].cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def iter_rows(table: OpenTable, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of a table (or these columns of them), file by file."""
    schema = arrow_schema(table)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    for path in table.delta.file_uris():
        yield read_file(path, wanted)


def read_rows(table: OpenTable, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a table (or these columns of them)."""
    schema = arrow_schema(table)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return pa.concat_tables([wanted.empty_table(), *iter_rows(table, columns)])


def load_schemas(lake: Lake) -> dict[str, str]:
    """All archived Avro schemas by id."""
    table = try_open_table(lake, "schemas")
    if table is None:
        return {}
    rows = read_rows(table)
    return dict(zip(rows["schema_id"].to_pylist(), rows["schema_json"].to_pylist(), strict=True))
