"""Named points at which a test can make the process die or fail, exactly where it hurts.

`TIDEWIRE_CRASH_AT=name:n` makes the n-th pass through `crash_point(name)` send SIGKILL to the own process: no
handler, no flush, no goodbye. `TIDEWIRE_FAIL_AT=name@subject=code;...` makes every pass through
`fail_point(name, subject)` raise the error with that code; `code/word` also gives it the protocol's word for
it. Without the variables a pass costs one comparison. The names stand in docs/configuration.md.
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
    """Die here if the environment says so."""
    if name != _target:
        return
    global _left
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


def fail_point(name: str, subject: str) -> None:
    """Raise here if the environment says so. `subject` is what the caller works on, such as a topic."""
    if not _failures:
        return
    code, _, wire_code = _failures.get(f"{name}@{subject}", "").partition("/")
    if code:
        leaf = next((each for each in leaf_errors() if each.code == code), InternalError)
        details = {"wire_code": wire_code} if wire_code else {}
        raise leaf("a fault that a test asked for", **details)
