"""`python -m tests.pipeline.purge_record LAKE OBJECT ID` purges a record, to be killed anywhere and run again."""

from __future__ import annotations

import sys

from tidewire.clock import SystemClock
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.upkeep.purge import purge

if __name__ == "__main__":
    purge(Lake(sys.argv[1]), 1, sys.argv[2], sys.argv[3], SystemClock())
