"""The Parquet files of tables: written by tasks, made durable before a commit names them, and read back.

A file that no commit names is invisible. So a task may die, run twice or race its own copy: only the files whose
receipts reach the driver count (receipts.py).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import OpenTable, arrow_schema

_GROUP_ROWS = 20_000
_GROUP_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A durable file in a table's directory and the replay ids it covers.

    `entity` is the object whose table it belongs to, empty for bronze; `floor` is the position that the table held
    when the task was planned.
    """

    path: str
    size_bytes: int
    rows: int
    first: int
    last: int
    entity: str = ""
    floor: int = -1

    def add_action(self, now_ms: int) -> AddAction:
        """Return the Delta action that adds the file. Its statistics let planners skip the file."""
        statistics = {
            "numRecords": self.rows,
            "minValues": {"replay_id": self.first},
            "maxValues": {"replay_id": self.last},
            "nullCount": {"replay_id": 0},
        }
        return AddAction(self.path, self.size_bytes, {}, now_ms, True, json.dumps(statistics))


class FileWriter:
    """Writes one file of a table with replay ids. Created with its first rows; removed again by `discard`."""

    def __init__(self, directory: str, schema: pa.Schema, dictionary: Sequence[str]) -> None:
        self._name = new_file_name()
        self._path = os.path.join(directory, self._name)
        self._schema = schema
        self._dictionary = list(dictionary)
        self._writer: pq.ParquetWriter | None = None
        self._buffered: list[pa.Table] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._rows = 0
        self._first, self._last = 1 << 62, 0

    def append(self, rows: pa.Table) -> None:
        """Add rows; a full row group is written at once. Blocks."""
        if not rows.num_rows:
            return
        ends = pc.min_max(rows["replay_id"])
        self._first = min(self._first, ends["min"].as_py())
        self._last = max(self._last, ends["max"].as_py())
        self._rows += rows.num_rows
        self._buffered.append(rows)
        self._buffered_rows += rows.num_rows
        self._buffered_bytes += rows.nbytes
        if self._buffered_rows >= _GROUP_ROWS or self._buffered_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> DataFile | None:
        """Close the file and make it durable; None if there were no rows."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        sync_file(self._path)
        return DataFile(self._name, os.path.getsize(self._path), self._rows, self._first, self._last)

    def discard(self) -> None:
        """Remove the file, finished or not: no receipt will name it, and a full disk needs the space."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            with suppress(OSError):
                os.unlink(self._path)

    def _flush(self) -> None:
        if not self._buffered:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=self._dictionary,
            )
        self._writer.write_table(pa.concat_tables(self._buffered), row_group_size=self._buffered_rows)
        self._buffered, self._buffered_rows, self._buffered_bytes = [], 0, 0


def new_file_name() -> str:
    """Return a name that no other task uses."""
    return f"part-{uuid.uuid4()}.parquet"


def write_file(path: str, rows: pa.Table, row_group_size: int | None = None) -> int:
    """Write rows to a new file, make it durable and return its size. Blocks."""
    pq.write_table(rows, path, compression="zstd", row_group_size=row_group_size)
    sync_file(path)
    return os.path.getsize(path)


def write_sorted(directory: str, rows: pa.Table) -> DataFile:
    """Write rows that are sorted by replay id to a new file. Blocks."""
    name = new_file_name()
    size_bytes = write_file(os.path.join(directory, name), rows)
    positions = rows["replay_id"]
    return DataFile(name, size_bytes, rows.num_rows, positions[0].as_py(), positions[-1].as_py())


def sync_file(path: str) -> None:
    """Make a file's bytes durable: a commit must never name a file that a power cut can take back."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: str, text: str) -> None:
    """Replace a small file: after a crash it has the old text or the new one."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    sync_file(f"{path}.new")
    os.replace(f"{path}.new", path)


def render_statistics(rows: pa.Table, columns: Iterable[str]) -> str:
    """Return the statistics of these columns of a file as the Delta log keeps them."""
    low, high, nulls = {}, {}, {}
    for name in columns:
        ends = pc.min_max(rows[name])
        nulls[name] = rows[name].null_count
        if ends["min"].is_valid:
            low[name], high[name] = ends["min"].as_py(), ends["max"].as_py()
    return json.dumps({"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def list_actions(table: OpenTable | None, *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of the Delta log for each file of a table; nothing if it does not exist."""
    actions = pa.table(table.delta.get_add_actions(flatten=True)) if table is not None else None
    # Without files the log has no columns of statistics.
    if actions is None or not actions.num_rows:
        return []
    return list(zip(*(actions[name].to_pylist() for name in columns), strict=True))


def list_files(table: OpenTable, span: Span) -> list[str]:
    """Return the paths of files that may have rows in a span, oldest first."""
    return [path for path, _ in list_sized_files(table, span)]


def list_sized_files(table: OpenTable, span: Span) -> list[tuple[str, int]]:
    """Return the paths and row counts of files that may have rows in a span, oldest first."""
    found = sorted(
        (first, path, rows)
        for first, last, path, rows in list_actions(
            table, "min.replay_id", "max.replay_id", "path", "num_records"
        )
        if last > span.after and first <= span.through
    )
    return [(os.path.join(table.directory, path), rows) for _, path, rows in found]


def read_span(table: OpenTable, span: Span, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a table in a span, file by file, oldest first."""
    for path in list_files(table, span):
        yield rows_in(read_file(path, schema), span)


def rows_in(rows: pa.Table, span: Span) -> pa.Table:
    """Return the rows with replay ids in a span."""
    position = rows["replay_id"]
    return rows.filter(pc.and_(pc.greater(position, span.after), pc.less_equal(position, span.through)))


def count_rows(table: OpenTable | None) -> int:
    """Return the number of rows of a table, from its log."""
    return sum(rows for (rows,) in list_actions(table, "num_records"))


def read_file(path: str, schema: pa.Schema) -> pa.Table:
    """Read columns of one Parquet file; columns that an older file lacks are null.

    No dataset scans anywhere in this package: a scan may leave a thread behind that aborts the process at
    exit.
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
    """Yield the rows of a table, or some columns of them, file by file."""
    schema = arrow_schema(table)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    for path in table.delta.file_uris():
        yield read_file(path, wanted)


def read_rows(table: OpenTable, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all rows of a table, or some columns of them."""
    schema = arrow_schema(table)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return pa.concat_tables([wanted.empty_table(), *iter_rows(table, columns)])
