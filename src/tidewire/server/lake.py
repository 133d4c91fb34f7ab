"""Read the lake of a pipeline: the status that the pipeline wrote last, and the history of a record.

A running pipeline writes `status.json` into its lake every second; without that file the status is read from
the tables. Everything is read on a thread and only on request, one read of a kind at a time; requests within
a second share a status. The libraries that read tables are an extra and loaded when needed; without them the
answer says what is missing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidewire.clock import Clock
from tidewire.errors import ResourceUnknown
from tidewire.telemetry import counters

STATUS_FILE = "status.json"
_CACHE_S = 1.0
_SILENT_MS = 15_000
_MAX_STATUS_BYTES = 4_000_000
_MAX_CHANGES = 200


class LakeReader:
    """Reads the lake in one directory. All calls belong on the loop. Implements `LakeView`."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory = Path(directory)
        self._clock = clock
        self._reading_status = asyncio.Lock()
        self._reading_history = asyncio.Lock()
        self._cached: Mapping[str, object] = {}
        self._cached_until_s = 0.0

    async def status(self) -> Mapping[str, object]:
        """Return the status of the pipeline, at most a second old."""
        async with self._reading_status:
            if self._clock.monotonic_s() >= self._cached_until_s:
                self._cached = await asyncio.to_thread(_read_status, self._directory, self._clock.now_ms())
                self._cached_until_s = self._clock.monotonic_s() + _CACHE_S
            return self._cached

    async def history(self, entity: str, record_id: str) -> Mapping[str, object]:
        """Return the latest changes of one record, newest first. Raises ResourceUnknown."""
        async with self._reading_history:
            return await asyncio.to_thread(_read_history, self._directory, entity, record_id)


def _read_status(directory: Path, now_ms: int) -> Mapping[str, object]:
    try:
        with (directory / STATUS_FILE).open("rb") as file:
            text = file.read(_MAX_STATUS_BYTES)
        written_ms = round((directory / STATUS_FILE).stat().st_mtime * 1000)
        status = json.loads(text)
    except FileNotFoundError:
        return _read_tables(directory)
    except (OSError, ValueError) as error:
        return _without_status("unreadable", f"{STATUS_FILE} in {directory} cannot be read: {error}"[:500])
    silent_ms = now_ms - written_ms
    if silent_ms <= _SILENT_MS:
        return {"state": "running", "message": "", "status": status}
    message = f"The pipeline is not running: its last status is {silent_ms // 1000} seconds old."
    return {"state": "stopped", "message": message, "status": status}


def _read_tables(directory: Path) -> Mapping[str, object]:
    if not (directory / "bronze").is_dir():
        return _without_status(
            "empty", f"There is no lake in {directory} yet. Start one with `tidewire pipeline run`."
        )
    try:
        from tidewire.pipeline.lake.tables import Lake
        from tidewire.pipeline.status.lake_status import read_status
    except ImportError as error:
        hint = "pip install 'tidewire[spark]', then restart the server"
        return _without_status("not_installed", f"{error.name} is not installed here: {hint}.")
    try:
        found = asdict(read_status(Lake(str(directory))))
    except Exception as error:  # noqa: BLE001
        # The library raises all kinds of errors for a table that is being created, replaced or damaged. The
        # next request tries again.
        counters["server.lake_reads_failed"] += 1
        return _without_status("unreadable", f"The lake in {directory} cannot be read: {error}"[:500])
    if found["health"] == "failed":
        return _without_status(
            "unreadable", f"The lake in {directory} cannot be read: {found['problem']}"[:500]
        )
    message = f"The pipeline has written no {STATUS_FILE}; this status was read from its tables."
    return {"state": "stopped", "message": message, "status": json.loads(json.dumps(found, default=str))}


def _without_status(state: str, message: str) -> Mapping[str, object]:
    return {"state": state, "message": message, "status": None}


def _read_history(directory: Path, entity: str, record_id: str) -> Mapping[str, object]:
    try:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
        from deltalake import DeltaTable
    except ImportError as error:
        raise ResourceUnknown(f"{error.name} is not installed here") from error
    found = _find_tables(directory, entity)
    if not found:
        raise ResourceUnknown("The lake has no history of this object")
    changes: list[dict[str, Any]] = []
    for table in found:
        for uri in DeltaTable(str(table)).file_uris():
            with pq.ParquetFile(uri) as file:
                for number in range(file.num_row_groups):
                    ids = file.read_row_group(number, columns=["record_id"], use_threads=False)["record_id"]
                    is_wanted = pc.equal(ids, record_id)
                    if not pc.any(is_wanted).as_py():
                        continue  # most groups: their wide columns are not read
                    rows = file.read_row_group(number, use_threads=False)
                    changes += rows.filter(is_wanted).to_pylist()
                    changes = sorted(changes, key=lambda row: -row["replay_id"])[:_MAX_CHANGES]
    plain: list[object] = json.loads(json.dumps(changes, default=str))
    return {"entity": found[0].name, "id": record_id, "changes": plain, "at_most": _MAX_CHANGES}


def _find_tables(directory: Path, entity: str) -> list[Path]:
    """Return the tables of an object. The client's name is compared, never joined to a path."""
    groups = [group for name in ("history", "reads") if (group := directory / name).is_dir()]
    return [path for group in groups for path in group.iterdir() if path.name.lower() == entity.lower()]
