"""What a test run asks of the machine: where its files stand, and how its Java runs.

Most of what a store does in a test is to wait for the disk, and no test pulls a plug: a server that is killed loses
nothing that the system has taken, and power cuts are made by a library that forgets what was not flushed. So the
files stand in memory where there is enough of it.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

# A JVM of a test ends before the second compiler, which takes half of its time, and several collectors pay.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, in which every run makes directories of its own
_ROOM_BYTES = 8 << 30


def scratch_root() -> Path:
    """The directory below which runs make theirs."""
    # What other users than root have in memory may be removed when they log out.
    return _MEMORY if os.getuid() == 0 and _has_room(_MEMORY) else Path(tempfile.gettempdir())


def _has_room(directory: Path) -> bool:
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(directory)
    # Libraries and programs that tests build run from there too.
    if found.f_flag & os.ST_NOEXEC or found.f_bavail * found.f_frsize < _ROOM_BYTES:
        return False
    return _memory_bytes() >= _ROOM_BYTES


def _memory_bytes() -> int:
    """What the machine, or the container, can give."""
    told = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("utf-8"), re.MULTILINE)
    available = int(told[1]) << 10 if told else 0
    most = Path("/sys/fs/cgroup/memory.max")
    limit = most.read_text("utf-8").strip() if most.exists() else "max"
    return min(available, int(limit)) if limit.isdigit() else available
