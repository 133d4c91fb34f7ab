"""CPU time of process groups, of the whole machine, and of strangers: what a figure from a shared machine
needs beside it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOREIGN_LIMIT = 0.12
"""A window is clean if others took less than this part of all cores."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _iter_group(group: int) -> Iterator[tuple[Path, list[str]]]:
    """Every living process of a process group, with the fields of its `stat` that follow the command name."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The command name may hold blanks and brackets; the fields follow its last closing bracket.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            yield entry, fields


def group_cpu_s(group: int) -> float:
    """User and system time of every living process of a process group."""
    return sum(int(fields[11]) + int(fields[12]) for _, fields in _iter_group(group)) / _TICKS_PER_S


def group_rss_mb(group: int) -> float:
    """Resident memory of every living process of a process group, shared pages counted in each."""
    pages = sum(int((entry / "statm").read_text().split()[1]) for entry, _ in _iter_group(group))
    return pages * _PAGE_BYTES / 1e6


def machine_busy_s() -> float:
    """Time that all cores together have spent on anything but idling."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def own_cpu_s(groups: Sequence[int]) -> float:
    """Time of this process, of its ended children, and of the living groups."""
    mine = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        mine += usage.ru_utime + usage.ru_stime
    return mine + sum(group_cpu_s(group) for group in groups)


@dataclass(frozen=True, slots=True)
class Reading:
    """How much time strangers took in a window, as a part of all cores."""

    wall_s: float
    foreign_part: float

    @property
    def is_clean(self) -> bool:
        """Whether the window may be compared with another."""
        return self.foreign_part < FOREIGN_LIMIT


class Window:
    """A stretch of time. `groups` are process groups of ours that live from its start to its end."""

    def __init__(self, groups: Sequence[int]) -> None:
        self._groups = tuple(groups)
        self._started_s = time.monotonic()
        self._busy_s = machine_busy_s()
        self._own_s = own_cpu_s(self._groups)

    def close(self) -> Reading:
        """The reading from construction until now."""
        wall_s = time.monotonic() - self._started_s
        foreign_s = machine_busy_s() - self._busy_s - (own_cpu_s(self._groups) - self._own_s)
        return Reading(wall_s, max(foreign_s, 0.0) / (wall_s * (os.cpu_count() or 1)))


def fdatasync_us(directory: Path, count: int = 50) -> float:
    """The median cost of one small synced append on this disk: the control for every durable figure."""
    costs: list[float] = []
    path = directory / "fdatasync.probe"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(count):
            os.write(fd, b"x" * 512)
            started = time.perf_counter()
            os.fdatasync(fd)
            costs.append((time.perf_counter() - started) * 1e6)
    finally:
        os.close(fd)
        path.unlink()
    return sorted(costs)[count // 2]
