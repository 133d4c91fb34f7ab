"""Managed subscriptions as an org sets them up: which topic, and where reading starts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

RUN = "RUN"
STOP = "STOP"
STATES = (RUN, STOP)
LATEST = "LATEST"
EARLIEST = "EARLIEST"
REPLAYS = (LATEST, EARLIEST)
MAX_MANAGED = 200
"""Managed subscriptions of one org."""


@dataclass(frozen=True, slots=True)
class ManagedSubscription:
    """One subscription whose position the server keeps.

    `default_replay` is where it starts while no position was committed, `error_replay` where it starts after one that
    could no longer be read.
    """

    name: str
    label: str
    topic: str
    default_replay: str = LATEST
    error_replay: str = LATEST
    state: str = RUN
