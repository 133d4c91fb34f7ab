"""`status.json`: the last status that a pipeline reported, kept in its lake for other processes to read."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.pipeline.lake.tables import Lake

STATUS_FILE = "status.json"
SILENT_MS = 15_000
"""A running pipeline reports every second; one that has not reported for this long is not running."""
_PAGE_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of the status file and the time at which it was written."""

    fields: Mapping[str, object]
    written_ms: int


def load_report(lake: Lake) -> Report | None:
    """Return the last report, however old; None if there is none or it cannot be parsed."""
    path = os.path.join(lake.path, STATUS_FILE)
    try:
        written_ms = os.stat(path).st_mtime_ns // 1_000_000
        with open(path, "rb") as file:
            fields = json.load(file)
    except (OSError, ValueError):
        return None
    return Report(fields, written_ms) if isinstance(fields, dict) else None


def read_live_report(lake: Lake, now_ms: int) -> Mapping[str, object] | None:
    """Return the last report of a running pipeline, or None if none is running."""
    report = load_report(lake)
    return report.fields if report is not None and now_ms - report.written_ms <= SILENT_MS else None


def write_report(lake: Lake, fields: Mapping[str, object], epoch: int) -> None:
    """Replace the report, unless a driver with a higher epoch wrote it. Readers see the old text or the new one."""
    path = os.path.join(lake.path, STATUS_FILE)
    last = load_report(lake)
    last_epoch = last.fields.get("epoch") if last is not None else None
    if isinstance(last_epoch, int) and last_epoch > epoch:
        return
    text = json.dumps(fields).encode()
    # Padded to whole pages, so that a report of a full disk fits into the space that the file already has.
    text += b" " * (-len(text) % _PAGE_BYTES)
    try:
        with open(f"{path}.new", "wb") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        with open(path, "r+b") as file:
            file.write(text)
            file.truncate()
