"""Dirty records: records whose row is behind the server, and the results of reading them again.

control.py has the rule by which a record is open. A record that the server refuses to return is closed as
failed and stays in the replica, stale. A newer event about it, or `tidewire pipeline reconcile`, opens it
again.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.compute as pc

from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import (
    DIRTY_TABLE,
    DONE,
    FAILED,
    OPEN,
    Dirty,
    open_dirty,
    read_control,
    render_control,
)
from tidewire.pipeline.lake.tables import Lake, append_counted, load_shared_table

WRITER = "dirty"


def open_records(lake: Lake) -> dict[str, dict[str, int]]:
    """Return the open records by object, with the newest event that calls for reading each."""
    return {
        entity: {record_id: dirty.replay_id for record_id, dirty in records.items()}
        for entity, records in open_dirty(lake).items()
    }


def failed_records(lake: Lake) -> dict[str, dict[str, int]]:
    """Return the unreadable records by object, like `open_records`; nothing has requested them since."""
    table = load_shared_table(lake, DIRTY_TABLE)
    if table is None:
        return {}
    newest: dict[tuple[str, str], dict[str, int]] = {}
    rows = read_control(table)
    failed_ids = pc.unique(rows.filter(pc.equal(rows["state"], FAILED))["record_id"])
    if not len(failed_ids):
        return {}
    rows = rows.filter(pc.is_in(rows["record_id"], failed_ids))
    for entity, record_id, replay_id, state in zip(
        *(rows[name].to_pylist() for name in ("entity", "record_id", "replay_id", "state")), strict=True
    ):
        known = newest.setdefault((entity, record_id), {})
        known[state] = max(replay_id, known.get(state, -1))
    found: dict[str, dict[str, int]] = {}
    for (entity, record_id), known in newest.items():
        failed = known.get(FAILED, -1)
        if failed > known.get(DONE, -1) and failed >= known.get(OPEN, -1):
            found.setdefault(entity, {})[record_id] = failed
    return found


def append_dirty(lake: Lake, epoch: int, now_ms: int, records: Iterable[Dirty], state: str) -> None:
    """Append the state of records and update the manifest's counts. Raises WriteConflict."""
    with manifest.lock:
        versions = append_counted(lake, DIRTY_TABLE, render_control(records, now_ms, state), epoch, WRITER)
        if versions:
            manifest.append(lake, epoch, now_ms, cause=WRITER, versions=versions)
