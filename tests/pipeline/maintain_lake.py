"""Maintenance without Spark, to be killed: `python -m tests.pipeline.maintain_lake LAKE` folds and merges all."""

from __future__ import annotations

import sys

from tidewire.clock import ManualClock
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.upkeep.compaction import Compactor
from tidewire.pipeline.upkeep.maintain import FoldRules, Maintainer

BUCKET_ROWS = FoldRules(rows_per_bucket=4)


def maintain_all(lake: Lake, epoch: int = 1) -> int:
    """Fold every object and join every table's files; returns how many objects moved."""
    row = manifest.newest(lake)
    maintainer = Maintainer(lake, epoch, ManualClock(), BUCKET_ROWS)
    entities = sorted(row.entities) if row is not None else []
    folded = [maintainer.fold(entity) for entity in entities]
    compactor = Compactor(lake, epoch, ManualClock())
    for name in compactor.names():
        compactor.join(name, at_least=2)
    return sum(each is not None for each in folded)


if __name__ == "__main__":
    maintain_all(Lake(sys.argv[1]))
