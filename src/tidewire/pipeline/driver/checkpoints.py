"""Spark's checkpoints, which a lake can do without: its tables hold the position of each query.

A checkpoint that is damaged, or newer than the tables because one of the two was restored, is dropped; the
query then starts where its table ends.
"""

from __future__ import annotations

import json
import logging
import os
import shutil

from tidewire.errors import ConfigInvalid
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.source.offsets import parse_offset

_log = logging.getLogger(__name__)
_HEAD = "v1\n"


def check_checkpoint(lake: Lake, query: str, committed: int | None) -> None:
    """Drop a query's checkpoint unless it is readable and ends at or before its table's position."""
    directory = lake.checkpoint(query)
    if not os.path.isdir(directory):
        return
    try:
        position = _read_position(directory)
    except (OSError, ValueError, LookupError, ConfigInvalid) as error:
        drop_checkpoint(lake, query, f"it cannot be read: {error}")
        return
    if position is not None and (committed is None or position > committed):
        drop_checkpoint(lake, query, f"it ends at {position}, and the table at {committed}")


def drop_checkpoint(lake: Lake, query: str, reason: str) -> None:
    """Delete a query's checkpoint. The query must not be running."""
    _log.warning("pipeline.checkpoint_dropped", extra={"query": query, "reason": reason[:500]})
    shutil.rmtree(lake.checkpoint(query), ignore_errors=True)


def _read_position(directory: str) -> int | None:
    """Return the end of the last batch that Spark has recorded as done; None if there is none."""
    with open(os.path.join(directory, "metadata"), encoding="utf-8") as file:
        json.load(file)
    done = _newest(os.path.join(directory, "commits"))
    planned = _newest(os.path.join(directory, "offsets"))
    if planned is not None:
        _read_log(os.path.join(directory, "offsets", str(planned)))
    elif os.path.isdir(os.path.join(directory, "offsets")) and os.listdir(os.path.join(directory, "offsets")):
        raise ValueError("a full disk has left its first batch incomplete")
    if done is None:
        return None
    _read_log(os.path.join(directory, "commits", str(done)))
    lines = _read_log(os.path.join(directory, "offsets", str(done)))
    return parse_offset(json.loads(lines[2])).position


def _newest(directory: str) -> int | None:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return None
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _read_log(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not text.startswith(_HEAD) or len(text) == len(_HEAD):
        raise ValueError(f"{path} is truncated")
    return text.splitlines()
