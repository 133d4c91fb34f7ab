"""Named points at which a test can make the process die or fail.

`TIDEWIRE_CRASH_AT=name:n` makes the n-th call of `crash_point(name)` kill the process with SIGKILL: no
handler, no flush. `TIDEWIRE_FAIL_AT=name@subject=code;...` makes every call of `fail_point(name, subject)`
raise the error with that code; `code/word` also sets the error code on the wire. Without the variables a call
costs one comparison. The names are listed in docs/configuration.md.
"""

from __future__ import annotations

import os
import signal

from tidewire.errors import InternalError, leaf_errors

_target, _, _count = os.environ.get("TIDEWIRE_CRASH_AT", "").partition(":")
_left = int(_count or 1)
_failures: dict[str, str] = {
    point: code
    for point, _, code in (item.partition("=") for item in os.environ.get("TIDEWIRE_FAIL_AT", "").split(";"))
    if code
}


def crash_point(name: str) -> None:
    """Kill the process here if the environment asks for it."""
    if name != _target:
        return
    global _left
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


def fail_point(name: str, subject: str) -> None:
    """Raise here if the environment asks for it. `subject` is what the caller works on, such as a topic."""
    if not _failures:
        return
    code, _, wire_code = _failures.get(f"{name}@{subject}", "").partition("/")
    if code:
        leaf = next((each for each in leaf_errors() if each.code == code), InternalError)
        details = {"wire_code": wire_code} if wire_code else {}
        raise leaf("a fault requested by a test", **details)
