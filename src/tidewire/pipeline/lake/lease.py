"""The lease: one driver per lake, by a lock that dies with its process and an epoch that rises.

`<lake>/_lease` is locked while the holder lives. Its content, the epoch, rises with each holder and is
written into every commit. The operating system releases the lock of a killed driver. The lock guards drivers
on one machine, or on a file system with working locks. Elsewhere, and when somebody removes the file to
bypass a hung driver, the epoch is the fence: the new driver's is higher than any in a table or the status,
and each table that it has written rejects the older driver's commits. A driver that finds another file in
place of its own has lost the lease, whatever its epoch.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidewire.errors import StoreLocked, WriteConflict
from tidewire.pipeline.lake.status_file import load_report
from tidewire.pipeline.lake.tables import GROUPS, TABLES, Lake, try_open_table

FILE = "_lease"
_TRIES = 5
_PAUSE_S = 0.1
_held: dict[tuple[str, int], os.stat_result] = {}
"""The files that this process holds locked, by lake and epoch."""


@contextmanager
def hold_lease(lake_path: str) -> Iterator[int]:
    """Hold the lake's lease and yield the new epoch. Raises StoreLocked if another driver holds it."""
    os.makedirs(lake_path, exist_ok=True)
    path = os.path.join(lake_path, FILE)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # Reading the status tests the lock, and so holds it briefly: retry.
        for attempt in range(_TRIES):
            if _try_lock(descriptor, fcntl.LOCK_EX):
                break
            if attempt == _TRIES - 1:
                raise StoreLocked(
                    f"another pipeline is running on {lake_path}; stop it first", path=path, lake=lake_path
                )
            threading.Event().wait(_PAUSE_S)
        text = os.pread(descriptor, 32, 0).strip()
        epoch = (int(text) if text.isdigit() else _newest_epoch(Lake(lake_path))) + 1
        # Fixed width, so that a crash inside the write cannot leave digits of two numbers.
        os.pwrite(descriptor, b"%020d\n" % epoch, 0)
        os.fsync(descriptor)
        _held[lake_path, epoch] = os.fstat(descriptor)
        try:
            yield epoch
        finally:
            _held.pop((lake_path, epoch), None)
    finally:
        os.close(descriptor)


def check_lease(lake_path: str, epoch: int) -> None:
    """Raise WriteConflict if a newer driver has taken over the lake."""
    try:
        with open(os.path.join(lake_path, FILE), "rb") as file:
            text = file.read(32).strip()
            found = os.fstat(file.fileno())
    except OSError:
        return
    held = _held.get((lake_path, epoch))
    if text.isdigit() and int(text) > epoch:
        reason = f"a newer driver, of epoch {int(text)}, has taken over {lake_path}"
    elif held is not None and not os.path.samestat(held, found):
        reason = f"another driver has taken over {lake_path} with its own lease"
    else:
        return
    raise WriteConflict(
        f"{reason}; this one, of epoch {epoch}, no longer holds the lease and writes nothing", lake=lake_path
    )


def is_held(lake_path: str) -> bool:
    """Return whether a driver holds the lake's lease."""
    try:
        descriptor = os.open(os.path.join(lake_path, FILE), os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _newest_epoch(lake: Lake) -> int:
    """Return the highest epoch in a table or the status, to continue from after the lease file was lost.

    The status counts too: a driver without commits appears nowhere else.
    """
    names = [*TABLES, *(name for group in (*GROUPS, "replica") for name in lake.names(group))]
    tables = (try_open_table(lake, name) for name in names)
    return max([_reported_epoch(lake), *(table.epoch for table in tables if table is not None)])


def _reported_epoch(lake: Lake) -> int:
    report = load_report(lake)
    epoch = report.fields.get("epoch") if report is not None else None
    return epoch if isinstance(epoch, int) else 0
