"""The ids of an object that a resync has read: chunks, gaps between them, and records in no chunk.

Pure. A chunk is a range of ids, above `lo` and up to `hi` (open where empty), that was read at a fence. A
resync needs every id covered by chunks at or above the position of its request; older chunks do not count. So
a killed resync continues at the first gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """Ids above `lo`, up to `hi`, read at `fence`."""

    lo: str
    hi: str
    fence: int
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """Ids above `lo`, up to `hi`, that were not read."""

    lo: str
    hi: str


def find_gap(chunks: Iterable[Chunk]) -> Gap | None:
    """Return the lowest ids that no chunk covers; None if all are covered."""
    reached = ""
    for chunk in sorted(chunks):
        if chunk.lo > reached:
            return Gap(reached, chunk.lo)
        if not chunk.hi:
            return None
        reached = max(reached, chunk.hi)
    return Gap(reached, "")


def find_unreturned(chunks: Iterable[Chunk], records: Iterable[tuple[str, int]]) -> list[str]:
    """Return the records that a chunk should have contained but did not.

    `records` are ids with the newest known position of each; a record is returned if nothing is known of it
    after the chunk's fence.
    """
    fences, bounds = _cover(chunks)
    return [
        record_id for record_id, position in records if position < fences[bisect_right(bounds, record_id) - 1]
    ]


def _cover(chunks: Iterable[Chunk]) -> tuple[Sequence[int], Sequence[str]]:
    """Yield, for each range between two bounds, the newest fence of the chunks that cover it."""
    ordered = list(chunks)
    # An id equal to a bound belongs to the chunk that ends there: the next range begins just above it.
    starts = {f"{chunk.lo}\0" if chunk.lo else "" for chunk in ordered}
    ends = {f"{chunk.hi}\0" for chunk in ordered if chunk.hi}
    bounds = sorted({"", *starts, *ends})
    fences = []
    for bound in bounds:
        covering = [
            chunk.fence
            for chunk in ordered
            if (not chunk.lo or f"{chunk.lo}\0" <= bound) and (not chunk.hi or bound < f"{chunk.hi}\0")
        ]
        fences.append(max(covering, default=-1))
    return fences, bounds
