"""A made-up org and the control work of its lake in one process, to be killed anywhere and run again.

`python -m tests.pipeline.control_work LAKE SEED` goes on where the lake stands, until nothing is open.
"""

from __future__ import annotations

import sys

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import write_bronze
from tests.unit.pipeline.oracle import Org
from tests.unit.pipeline.org_reader import OrgReader
from tidewire.clock import SystemClock
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import Resync, open_resyncs
from tidewire.pipeline.lake.dirty import open_records
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.upkeep import snapshot
from tidewire.pipeline.upkeep.reconcile import Reconciler
from tidewire.pipeline.upkeep.resync import Resyncer, request_resyncs

TRANSACTIONS = 18


def make_org(seed: int, transactions: int = TRANSACTIONS) -> Org:
    """The same org each time, when all is said, or after some transactions."""
    org = Org(seed)
    for _ in range(transactions):
        org.transact()
    return org


def main(lake: Lake, seed: int) -> None:
    """Take a snapshot if the lake has none, and drain everything."""
    org, clock = make_org(seed), SystemClock()
    manifest.refresh(lake, 1, clock.now_ms())
    if manifest.newest(lake) is None or try_open_table(lake, "bronze") is None:
        # As if it had been started in the middle: the reader sees the org of today all the same.
        middle = org.past[TRANSACTIONS // 2][0]
        request_resyncs(lake, 1, clock.now_ms(), [Resync(e, "snapshot", middle) for e in org.live])
        snapshot.begin(lake, 1, middle, clock)
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    events = [event for event in org.history.events if event.replay_id > bronze.floor]
    if org.history.position > bronze.floor:
        write_bronze(lake, events, org.history.position)
    drain(lake, org)


def drain(lake: Lake, org: Org) -> None:
    """Apply and read until nothing is open."""
    reader, clock = OrgReader(org), SystemClock()
    resyncer = Resyncer(lake, 1, reader, clock, rows_per_page=2)
    reconciler = Reconciler(lake, 1, reader, clock)
    while True:
        resyncer.advance(1)
        apply_all(lake, 20)
        reconciler.once(2)
        if not open_records(lake) and not open_resyncs(lake):
            return


if __name__ == "__main__":
    main(Lake(sys.argv[1]), int(sys.argv[2]))
