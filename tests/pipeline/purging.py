"""`python -m tests.pipeline.purging LAKE OBJECT ID` purges a record, to be killed anywhere and run again."""

from __future__ import annotations

import sys

from tidewire.clock import SystemClock
from tidewire.pipeline.purge import purge
from tidewire.pipeline.tables import Lake

if __name__ == "__main__":
    purge(Lake(sys.argv[1]), 1, sys.argv[2], sys.argv[3], SystemClock())
