"""Replicas and record history for readers: base, history and reads of an object, folded at a snapshot point."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewire.pipeline.replicas.record_history import read_history
    from tidewire.pipeline.replicas.replica import read_replica

__all__ = ["read_history", "read_replica"]
_MODULES = {"read_history": "record_history", "read_replica": "replica"}


def __getattr__(name: str) -> object:
    # Loaded on first use: executors import modules of this package and need no readers.
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
