"""Reading from the server: events through the bus or the log export, records through REST, into the table `bronze`.

`TidewireSource` and `RecordsSource` are the two Spark data sources for users' own jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewire.pipeline.source.event_source import TidewireSource
    from tidewire.pipeline.source.records_source import RecordsSource

__all__ = ["RecordsSource", "TidewireSource"]


def __getattr__(name: str) -> object:
    # Loaded on first use: most modules of this package must be importable without Spark.
    if name == "TidewireSource":
        from tidewire.pipeline.source.event_source import TidewireSource

        return TidewireSource
    if name == "RecordsSource":
        from tidewire.pipeline.source.records_source import RecordsSource

        return RecordsSource
    raise AttributeError(name)
