"""Reading from the server: events through the bus or the log export, records through REST, into the table `bronze`.

`TidewireSource` and `RecordsSource` are the two Spark data sources for users' own jobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewire.pipeline.source.event_source import TidewireSource
    from tidewire.pipeline.source.records_source import RecordsSource

__all__ = ["RecordsSource", "TidewireSource"]
_MODULES = {"RecordsSource": "records_source", "TidewireSource": "event_source"}


def __getattr__(name: str) -> object:
    # Loaded on first use: most modules of this package must be importable without Spark.
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
