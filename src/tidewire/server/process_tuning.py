"""What a server process asks of Python, the C library and the system: little memory in use, and enough open
files.
"""

from __future__ import annotations

import ctypes
import gc
import resource
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_RETURNED_FROM_BYTES = 1 << 20


def return_large_blocks() -> None:
    """Have blocks of a megabyte and more returned to the system when they are freed.

    The hash of a password takes 19 MB for a moment. Left alone, glibc takes the first such block for a sign
    to keep them, in every thread that ever hashed one. Other C libraries need no telling, and have no such
    call.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _RETURNED_FROM_BYTES)


def settle_memory() -> None:
    """Tell the garbage collector that what was made so far stays, and give back what was only needed to
    start.
    """
    # Types and code stay for good, and a request leaves hardly any cycles: looking through all of it after each
    # few hundred new objects would take a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def allow_many_connections() -> None:
    """Raise the number of open files to what the system allows this process: every held poll is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
