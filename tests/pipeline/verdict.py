"""Compare a lake with the history it was filled from."""

from __future__ import annotations

from itertools import pairwise

from deltalake import DeltaTable

from tests.pipeline.histories import History, read_replicas
from tidewire.pipeline.lake.tables import Lake


def manifest_positions(lake: Lake) -> list[int]:
    """The position of every applied batch."""
    rows = DeltaTable(lake.table("manifest")).to_pyarrow_table().sort_by("number").to_pylist()
    return [row["position"] for row in rows if row["cause"] == "apply"]


def history_keys(lake: Lake) -> list[tuple[int, str]]:
    """(replay id, record id) of every row of every history table."""
    keys: list[tuple[int, str]] = []
    for name in lake.names("history"):
        rows = DeltaTable(lake.table(name)).to_pyarrow_table()
        keys += zip(rows["replay_id"].to_pylist(), rows["record_id"].to_pylist(), strict=True)
    return keys


def assert_replicas_true_at_every_batch(lake: Lake, history: History) -> None:
    """Each manifest row shows all replicas at one moment of the history, between transactions."""
    truths = dict(history.truths)
    positions = manifest_positions(lake)
    assert all(earlier < later for earlier, later in pairwise(positions))
    for position in positions:
        moment = max((p for p in truths if p <= position), default=None)
        if moment is not None:
            assert read_replicas(lake, position) == truths[moment]
    assert positions[-1] == history.position


def assert_history_complete(lake: Lake, history: History) -> None:
    """Every change is in its history table, once."""
    keys = history_keys(lake)
    assert len(keys) == len(set(keys)) == history.changes


def assert_bronze_exact(lake: Lake, history: History) -> None:
    """Bronze holds every event, once, byte for byte."""
    rows = DeltaTable(lake.table("bronze")).to_pyarrow_table().sort_by("replay_id").to_pylist()
    found = [(row["replay_id"], row["schema_id"], row["payload"]) for row in rows]
    assert found == [(event.replay_id, event.schema_id, event.payload) for event in history.events]
