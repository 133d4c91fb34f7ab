"""Tune Python, the C library and the system for a server process: low memory use and enough open files."""

from __future__ import annotations

import ctypes
import gc
import resource
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_RETURNED_FROM_BYTES = 1 << 20


def return_large_blocks() -> None:
    """Return memory blocks of a megabyte and more to the system when they are freed.

    Hashing a password takes 19 MB for a moment. By default glibc keeps such blocks for reuse, in every thread
    that ever hashed one. Other C libraries have no such call and need none.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _RETURNED_FROM_BYTES)


def freeze_startup_objects() -> None:
    """Freeze the objects made at start-up, and return the memory that only start-up needed."""
    # Types and code live as long as the process, and requests leave hardly any cycles. With the default
    # thresholds the collector would take a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def allow_many_connections() -> None:
    """Raise the limit of open files to the maximum for this process: every held poll is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
