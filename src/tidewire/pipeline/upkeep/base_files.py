"""Write the files of a base, one bucket at a time: the old base and the changes since, folded.

An executor folds a bucket or, if the object is small, the driver; both run the same function. A file that no
commit names is invisible, so a task may die or run twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction

from tidewire.pipeline.lake.columns import BUCKET, RECORD_ID, REPLAY_ID, Kind, bucket_of, replica_schema
from tidewire.pipeline.lake.files import new_file_name, read_file, render_statistics, write_file
from tidewire.pipeline.lake.tables import READS
from tidewire.pipeline.replicas.fold import Lost, fold_records
from tidewire.pipeline.replicas.view import is_object_wide, iter_changes

ROW_GROUP = 50_000
"""Rows of a Parquet row group: what a lookup of one id has to decompress."""


@dataclass(frozen=True, slots=True)
class BucketTask:
    """What is needed to fold one bucket of an object up to `through`.

    `base_paths` may hold records of other buckets, which are skipped; `base_kinds` are the columns of the old
    base, `kinds` those of the new one.
    """

    directory: str
    bucket: int
    buckets: int
    base_paths: tuple[str, ...]
    base_kinds: Mapping[str, Kind]
    change_files: tuple[tuple[str, int], ...]
    through: int
    kinds: Mapping[str, Kind]
    retyped: Mapping[str, Mapping[str, Kind]]


@dataclass(frozen=True, slots=True)
class BucketFile:
    """The file of a bucket, relative to the table's directory, and what its rows lack.

    `path` is None if the bucket has no rows.
    """

    bucket: int
    path: str | None
    size_bytes: int
    rows: int
    statistics: str
    lost: tuple[Lost, ...]


def write_bucket(task: BucketTask) -> BucketFile:
    """Fold a bucket and write its file, sorted by Id. Blocks; runs on an executor or on the driver."""
    schema = replica_schema(task.base_kinds)
    base = pa.concat_tables([schema.empty_table(), *(read_file(path, schema) for path in task.base_paths)])
    base = base.filter(_in_bucket(base[RECORD_ID], task))
    folded = fold_records(base, _read_changes(task), task.kinds, task.through, task.retyped)
    lost = tuple(each for each in folded.lost if bucket_of(each.record_id, task.buckets) == task.bucket)
    rows = folded.rows.sort_by(RECORD_ID)
    if not rows.num_rows:
        return BucketFile(task.bucket, None, 0, 0, "", lost)
    name = f"{BUCKET}={task.bucket}/{new_file_name()}"
    path = os.path.join(task.directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    size_bytes = write_file(path, rows, ROW_GROUP)
    statistics = render_statistics(rows, (RECORD_ID, REPLAY_ID))
    return BucketFile(task.bucket, name, size_bytes, rows.num_rows, statistics, lost)


def add_bucket(file: BucketFile, now_ms: int) -> AddAction | None:
    """Return the Delta action that adds a bucket's file; None if there is no file."""
    if file.path is None:
        return None
    return AddAction(file.path, file.size_bytes, {BUCKET: str(file.bucket)}, now_ms, True, file.statistics)


def _read_changes(task: BucketTask) -> pa.Table:
    parts = [
        rows.filter(pc.or_(_in_bucket(rows["record_id"], task), is_object_wide(rows)))
        for rows in iter_changes(task.change_files, READS, task.through)
    ]
    return pa.concat_tables([READS.empty_table(), *parts])


def _in_bucket(ids: pa.ChunkedArray, task: BucketTask) -> pa.ChunkedArray:
    found: pa.ChunkedArray
    if task.buckets == 1:
        found = pc.is_valid(ids)
        return found
    wanted = [each for each in pc.unique(ids).to_pylist() if bucket_of(each, task.buckets) == task.bucket]
    found = pc.is_in(ids, pa.array(wanted, pa.string()))
    return found
