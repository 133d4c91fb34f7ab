"""The log backends, and the one that orgs use.

Nothing outside `eventlog` imports a backend itself; the contract suites run over each of them.
"""

from __future__ import annotations

from collections.abc import Callable

from tidewire.eventlog.log import EventLog
from tidewire.eventlog.sql_log import SqlEventLog

EVENT_LOGS: dict[str, Callable[[], EventLog]] = {"sql": SqlEventLog}
"""Every implementation of the contract, by name."""


def make_event_log() -> EventLog:
    """Return a log over an org's own database. Make one per open org, since it caches what it has written."""
    return SqlEventLog()
