"""One driver per lake: a lock that dies with its process, and a number that tells drivers apart.

`<lake>/_lease` is locked for as long as the holder lives; its content, the epoch, rises with each holder
and is written into every commit. The lock is the operating system's, so a killed driver leaves no lease
behind. It guards drivers on one machine or on a file system with working locks; beyond that, the version
rule of tables.py still refuses the second writer's commits.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tidewire.errors import StoreLocked


@contextmanager
def hold_lease(lake_path: str) -> Iterator[int]:
    """Hold the lake's lease and yield the new epoch. Raises StoreLocked if another driver has it."""
    os.makedirs(lake_path, exist_ok=True)
    path = os.path.join(lake_path, "_lease")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLocked(
                f"another pipeline is running on {lake_path}; stop it first", path=path
            ) from error
        text = os.pread(descriptor, 32, 0).strip()
        # Fixed width, so that a crash inside the write cannot leave digits of two numbers.
        epoch = (int(text) if text.isdigit() else 0) + 1
        os.pwrite(descriptor, b"%020d\n" % epoch, 0)
        os.fsync(descriptor)
        yield epoch
    finally:
        os.close(descriptor)
