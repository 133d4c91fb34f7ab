"""Replicas and record history for readers: base, history and reads of an object, folded at a snapshot point."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewire.pipeline.replicas.record_history import read_history
    from tidewire.pipeline.replicas.replica import read_replica

__all__ = ["read_history", "read_replica"]


def __getattr__(name: str) -> object:
    # Loaded on first use: executors import modules of this package and need no readers.
    if name == "read_replica":
        from tidewire.pipeline.replicas.replica import read_replica

        return read_replica
    if name == "read_history":
        from tidewire.pipeline.replicas.record_history import read_history

        return read_history
    raise AttributeError(name)
