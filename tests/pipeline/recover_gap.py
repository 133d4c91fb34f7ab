"""Gap recovery of a lake whose next events have expired, in one process, to be killed anywhere and run again.

`python -m tests.pipeline.recover_gap LAKE SEED [OTHER]` heals from the lake OTHER if there is one, then drains all.
"""

from __future__ import annotations

import sys

from tests.pipeline.control_work import drain, make_org
from tests.pipeline.histories import write_bronze
from tests.pipeline.history_bus import TOKEN, HistoryBus
from tests.unit.pipeline.oracle import Org
from tests.unit.pipeline.org_reader import OrgReader
from tidewire.clock import SystemClock
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.upkeep.gap_recovery import recover_expired

FOLLOWED = 5
"""So many transactions were archived before the pipeline stood still."""


def prepare(lake: Lake, seed: int) -> None:
    """A lake that has followed for a while."""
    org = make_org(seed, FOLLOWED)
    write_bronze(lake, org.history.events, org.history.position)
    drain(lake, org)


def first_kept(org: Org, seed: int) -> int:
    """The oldest event that the server still has: in the middle of what the lake lacks."""
    archived = make_org(seed, FOLLOWED).history.position
    missed = [event.replay_id for event in org.history.events if event.replay_id > archived]
    return missed[len(missed) // 2]


def main(lake: Lake, seed: int, other: Lake | None) -> None:
    org, clock = make_org(seed), SystemClock()
    manifest.refresh(lake, 1, clock.now_ms())
    kept = first_kept(org, seed)
    events = [event for event in org.history.events if event.replay_id >= kept]
    with HistoryBus(events, org.history.position, first_kept=kept) as server:
        settings = BusSettings(server.endpoint, "/data/ChangeEvents", org_id="00D", token=TOKEN, retry_s=60)
        bus = Bus(settings, clock)
        try:
            recover_expired(lake, 1, OrgReader(org), bus, clock, other)
        finally:
            bus.close()
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    if org.history.position > bronze.floor:
        rest = [event for event in events if event.replay_id > bronze.floor]
        write_bronze(lake, rest, org.history.position)
    drain(lake, org)


if __name__ == "__main__":
    main(Lake(sys.argv[1]), int(sys.argv[2]), Lake(sys.argv[3], "other") if sys.argv[3:] else None)
