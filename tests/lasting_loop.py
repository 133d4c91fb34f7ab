"""Event loops for tests that use gRPC's asyncio client."""

from __future__ import annotations

import asyncio
from typing import Any

_kept: list[asyncio.AbstractEventLoop] = []


class LastingLoop(asyncio.SelectorEventLoop):
    """A loop that ends with the process.

    All of gRPC's asyncio clients in a process share one completion queue, and whichever loop reads it hands each
    event to the loop of its call. A call's last events come after the call is cancelled and its channel closed;
    handed to a closed loop they would fail in the test that happens to run then.
    """

    def __init__(self) -> None:
        super().__init__()
        _kept.append(self)

    def close(self) -> None:
        """Stay open for late events. Tasks left over have been cancelled by the runner."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass over a late event of a loop that is closed: a command's, or that of a server in a thread, which an
        earlier test has run in this process.
        """
        is_closed = isinstance(context.get("exception"), RuntimeError)
        if is_closed and "PollerCompletionQueue" in str(context.get("message")):
            return
        super().call_exception_handler(context)


LASTING = ("asyncio", {"loop_factory": LastingLoop})
