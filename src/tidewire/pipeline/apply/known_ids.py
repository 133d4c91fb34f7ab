"""The ids of live records, so that an update of an unknown record is noticed at once.

Held in the driver: a sorted array of ids, 18 bytes each, and the additions and removals since. Loaded from
the tables when an object is first used; afterwards apply adds each batch. Reads, and bases made from them,
are consulted only when an id seems unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.lake.columns import DELETED, RECORD_ID
from tidewire.pipeline.lake.files import iter_rows, read_file
from tidewire.pipeline.lake.tables import READS, Lake, try_open_table
from tidewire.pipeline.replicas.fold import DELETES, FULL_ROWS
from tidewire.pipeline.replicas.view import try_open_view

_Ids = np.ndarray[tuple[int], np.dtype[np.bytes_]]
_NO_IDS: _Ids = np.array([], dtype="S18")
_MERGE_AT = 50_000


class LiveIds:
    """The ids of one object's live records."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._sorted = _sort(ids)
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def __contains__(self, record_id: str) -> bool:
        return not self.unknown([record_id])

    def unknown(self, ids: list[str]) -> list[str]:
        """Return the ids that are not live."""
        if not ids:
            return []
        found = self._find(ids)
        return [
            record_id
            for record_id, is_old in zip(ids, found.tolist(), strict=True)
            if record_id not in self._added and (not is_old or record_id in self._removed)
        ]

    def add(self, record_id: str) -> None:
        """Add a live record."""
        self._added.add(record_id)
        self._removed.discard(record_id)
        if len(self._added) > _MERGE_AT + len(self._sorted) // 8:
            self._merge()

    def remove(self, record_id: str) -> None:
        """Remove a deleted record."""
        self._added.discard(record_id)
        self._removed.add(record_id)

    def _find(self, ids: list[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if not len(self._sorted):
            return np.zeros(len(ids), dtype=bool)
        wanted = np.array([record_id.encode()[:18] for record_id in ids], dtype="S18")
        places = np.searchsorted(self._sorted, wanted)
        places[places == len(self._sorted)] = 0
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = self._sorted[places] == wanted
        return found

    def _merge(self) -> None:
        kept = self._sorted
        if self._removed:
            kept = kept[~np.isin(kept, _sort(self._removed))]
        self._sorted = np.union1d(kept, _sort(self._added))
        self._added, self._removed = set(), set()


class KnownIds:
    """The live records of every object used so far."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._by_entity: dict[str, LiveIds] = {}
        self._reads_seen: dict[str, set[str]] = {}

    def of(self, entity: str) -> LiveIds:
        """Return the live records of an object, as of the last commit."""
        found = self._by_entity.get(entity)
        if found is None:
            found = self._by_entity[entity] = LiveIds(self._load(entity))
        return found

    def refresh(self, entity: str) -> None:
        """Add the reads committed since.

        An id too many or too few only costs one read more or less, so a record that was read and deleted
        later may be off.
        """
        live = self.of(entity)
        for _, record_id, change_type in sorted(self._reads(entity)):
            if change_type in FULL_ROWS:
                live.add(record_id)
            else:
                live.remove(record_id)

    def _load(self, entity: str) -> set[str]:
        view = try_open_view(self._lake, entity)
        live: set[str] = set()
        after = -1
        if view is not None and view.base is not None:
            after = view.base_position
            for rows in iter_rows(view.base, [RECORD_ID, DELETED]):
                live.update(rows.filter(pc.invert(rows[DELETED]))[RECORD_ID].to_pylist())
        steps = self._history_after(entity, after)
        # A read follows the events at its position.
        steps += [(place, 1, 0, record_id, kind) for place, record_id, kind in self._reads(entity)]
        for _, _, _, record_id, change_type in sorted(steps):
            if change_type in FULL_ROWS:
                live.add(record_id)
            elif change_type in DELETES:
                live.discard(record_id)
        return live

    def _history_after(self, entity: str, after: int) -> list[tuple[int, int, int, str, str]]:
        table = try_open_table(self._lake, f"history/{entity}")
        if table is None:
            return []
        found: list[tuple[int, int, int, str, str]] = []
        for rows in iter_rows(table, ["replay_id", "sequence", "record_id", "change_type", "problem"]):
            counted = rows.filter(pc.and_(pc.greater(rows["replay_id"], after), pc.is_null(rows["problem"])))
            found += [
                (row["replay_id"], 0, row["sequence"] or 0, row["record_id"], row["change_type"] or "")
                for row in counted.to_pylist()
            ]
        return found

    def _reads(self, entity: str) -> list[tuple[int, str, str]]:
        """Yield rows of reads in files not read before: position, record and change type."""
        table = try_open_table(self._lake, f"reads/{entity}")
        if table is None:
            return []
        seen = self._reads_seen.setdefault(entity, set())
        names = ("replay_id", "record_id", "change_type")
        columns = pa.schema([READS.field(name) for name in names])
        found: list[tuple[int, str, str]] = []
        for path in table.delta.file_uris():
            if path not in seen:
                seen.add(path)
                rows = read_file(path, columns)
                found += zip(*(rows[name].to_pylist() for name in names), strict=True)
        return found


def _sort(ids: Iterable[str]) -> _Ids:
    encoded = [record_id.encode()[:18] for record_id in ids]
    return np.unique(np.array(encoded, dtype="S18")) if encoded else _NO_IDS
