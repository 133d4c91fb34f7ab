"""Short reads: those of one iteration of the loop share one read transaction and one thread.

A read by key takes less time than handing it to a thread and back. Only a few statements by key belong here:
everybody who shares a transaction waits for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tidewire.storage.store import Reader, Store

T = TypeVar("T")
_Asked = tuple[Callable[[Reader], Any], asyncio.Future[Any]]

_AT_ONCE = 64


class ShortReads:
    """The short reads of one org. Used on the loop only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: list[_Asked] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, work: Callable[[Reader], T]) -> T:
        """Run `work` in a read transaction that others may share, off the loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._start)
        self._asked.append((work, future))
        return await future

    def _start(self) -> None:
        asked, self._asked = self._asked, []
        for first in range(0, len(asked), _AT_ONCE):
            task = asyncio.get_running_loop().create_task(self._run(asked[first : first + _AT_ONCE]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, asked: list[_Asked]) -> None:
        while asked:
            results: list[Any] = []
            error: Exception | None = None
            try:
                await self._store.read(partial(_run_all, [work for work, _ in asked], results))
            except Exception as failure:  # noqa: BLE001  # it is raised to whoever asked
                error = failure
            for result, (_, future) in zip(results, asked, strict=False):
                if not future.done():
                    future.set_result(result)
            asked = asked[len(results) :]
            if error is not None and asked:
                # A database may refuse a transaction after a failure in it, so the others go on in a new one.
                _, future = asked.pop(0)
                if not future.done():
                    future.set_exception(error)


def _run_all(works: list[Callable[[Reader], Any]], results: list[Any], reader: Reader) -> None:
    """Run one after the other until one raises; `results` then ends before it."""
    results.clear()  # a store may run a read again
    for work in works:
        results.append(work(reader))  # noqa: PERF401  # what is there when one raises counts
