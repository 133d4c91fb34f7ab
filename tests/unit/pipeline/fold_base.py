"""Fold a lake into bases and merge its files, as maintenance would if it were always due."""

from __future__ import annotations

from tidewire.clock import ManualClock
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.upkeep.compaction import Compactor
from tidewire.pipeline.upkeep.maintain import FoldRules, Maintainer

_RULES = FoldRules(rows_per_bucket=3)
"""So few rows in a bucket that small objects have several, and outgrow them."""


def make_base(lake: Lake, entity: str, epoch: int) -> None:
    """Fold an object up to where the manifest stands, and make that its base."""
    Maintainer(lake, epoch, ManualClock(), _RULES).fold(entity)
    compactor = Compactor(lake, epoch, ManualClock())
    for name in (f"history/{entity}", f"reads/{entity}", "manifest"):
        compactor.join(name, at_least=2)
