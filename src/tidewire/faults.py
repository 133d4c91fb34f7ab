"""Named crash points, so that a test can kill the process exactly where it hurts.

`TIDEWIRE_CRASH_AT=name:n` makes the n-th pass through `crash_point(name)` send SIGKILL to the own process: no
handler,
no flush, no goodbye. Without the variable a pass costs one comparison. The names stand in
docs/configuration.md.
"""

from __future__ import annotations

import os
import signal

_target, _, _count = os.environ.get("TIDEWIRE_CRASH_AT", "").partition(":")
_left = int(_count or 1)


def crash_point(name: str) -> None:
    """Die here if the environment says so."""
    if name != _target:
        return
    global _left
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
