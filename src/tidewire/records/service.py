"""Records as the stages above use them: write in a unit of work, read in a snapshot.

`add_hook` is how a commit reaches capture: hooks run on the writer thread, inside the transaction, after the
work and before the commit. If one raises, the whole request is undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from tidewire.clock import Clock
from tidewire.events import Change, CommitContext
from tidewire.ids import random_uuid
from tidewire.records.conversion import ConversionNote
from tidewire.records.rollups import apply_roll_ups, counted_entities
from tidewire.records.types import Types
from tidewire.records.work import RowRule, UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.storage.store import Reader, Store, Transaction
from tidewire.storage.writer import GroupWriter

T = TypeVar("T")
ChangeHook = Callable[[UnitOfWork, Sequence[Change], CommitContext], None]
ConversionHook = Callable[[UnitOfWork, ConversionNote], None]
_Asked = tuple[Callable[[Reader], Any], asyncio.Future[Any]]
_SHORT_READS_AT_ONCE = 64  # in one transaction


class Records(Protocol):
    """The records of an org, or the view that one transaction has of them."""

    types: Types

    @property
    def catalog(self) -> Catalog:
        """Return the types, including changes of the transaction."""

    def write(
        self,
        work: Callable[[UnitOfWork], T],
        *,
        user_id: str,
        origin: str = "",
        has_notifications: bool = True,
        exclusive: bool = False,
    ) -> Awaitable[T]:
        """Run `work` in one transaction."""

    async def write_plain(
        self, work: Callable[[Transaction], T], *, exclusive: bool = False, survives_rollback: bool = False
    ) -> T:
        """Run `work` that touches no records in one transaction.

        If it `survives_rollback`, it runs again by itself when the transaction is rolled back.
        """

    async def read(self, work: Callable[[Reader], T], *, is_short: bool = False) -> T:
        """Run `work` in one snapshot; `is_short` promises that it is a few statements by key."""

    def on_conversion(self, unit: UnitOfWork, note: ConversionNote) -> None:
        """Report a converted field."""


class DerivedFlush:
    """Skips the flush of units whose new records concern no others; cached until the types change."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._relevant: frozenset[str] = frozenset()

    def apply(self, unit: UnitOfWork) -> None:
        """Call `flush_derived`, unless the unit has only created records that no other record depends on."""
        if unit.catalog is not self._catalog:
            self._catalog = unit.catalog
            self._relevant = counted_entities(unit.catalog.objects, unit.rules) | unit.rules.flushed_entities
        if not unit.has_only_new(self._relevant):
            flush_derived(unit)


def flush_derived(unit: UnitOfWork) -> None:
    """Update other records after the writes since the last flush: roll-ups, then the rules of objects."""
    apply_roll_ups(unit)
    for rule in unit.rules.flush:
        rule(unit)
    unit.mark_flushed()


class ShortReads:
    """The short reads of one org: those of one iteration of the loop share a read transaction and a thread.

    A read by key takes less time than handing it to a thread and back. Only a few statements by key belong
    here: everybody who shares a transaction waits for all of it. Used on the loop only.
    """

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
        for first in range(0, len(asked), _SHORT_READS_AT_ONCE):
            task = asyncio.get_running_loop().create_task(
                self._run(asked[first : first + _SHORT_READS_AT_ONCE])
            )
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
                # A database may refuse a transaction after a failure in it, so the others run in a new one.
                _, future = asked.pop(0)
                if not future.done():
                    future.set_exception(error)


def _run_all(works: list[Callable[[Reader], Any]], results: list[Any], reader: Reader) -> None:
    """Run one after the other until one raises; `results` then ends before it."""
    results.clear()  # a store may run a read again
    for work in works:
        results.append(work(reader))  # noqa: PERF401  # what is there when one raises counts


class RecordService:
    """One org's records."""

    def __init__(self, store: Store, writer: GroupWriter, types: Types, clock: Clock) -> None:
        self._store = store
        self._short_reads = ShortReads(store)
        self._writer = writer
        self._clock = clock
        self._hooks: list[ChangeHook] = []
        self._conversion_hooks: list[ConversionHook] = []
        self._row_rules: dict[str, RowRule] = {}
        self._derived_flush = DerivedFlush()
        self.types = types

    @property
    def catalog(self) -> Catalog:
        """Return the current types."""
        return self.types.catalog

    def add_hook(self, hook: ChangeHook) -> None:
        """Call `hook` with the changes of every later transaction, in the order of adding."""
        self._hooks.append(hook)

    def add_row_rule(self, entity: str, rule: RowRule) -> None:
        """Check every later create and update of the object's records with `rule`."""
        self._row_rules[entity] = rule

    def add_conversion_hook(self, hook: ConversionHook) -> None:
        """Call `hook` for every later conversion of a field, inside its transaction, data already converted."""
        self._conversion_hooks.append(hook)

    def on_conversion(self, unit: UnitOfWork, note: ConversionNote) -> None:
        """Call the hooks with a converted field."""
        for hook in self._conversion_hooks:
            hook(unit, note)

    def write(
        self,
        work: Callable[[UnitOfWork], T],
        *,
        user_id: str,
        origin: str = "",
        has_notifications: bool = True,
        exclusive: bool = False,
    ) -> Awaitable[T]:
        """Run `work` in one transaction; resolves once it is durable."""
        return self._writer.submit(
            lambda tx: self._run(tx, work, user_id, origin, has_notifications), exclusive=exclusive
        )

    async def write_plain(
        self, work: Callable[[Transaction], T], *, exclusive: bool = False, survives_rollback: bool = False
    ) -> T:
        """Run `work` that touches no records, such as a login or a publish, in one transaction of its own."""
        return await self._writer.submit(work, exclusive=exclusive)

    async def read(self, work: Callable[[Reader], T], *, is_short: bool = False) -> T:
        """Run `work` in one read transaction, off the loop. Short reads share one."""
        return await (self._short_reads.read(work) if is_short else self._store.read(work))

    def _run(
        self,
        tx: Transaction,
        work: Callable[[UnitOfWork], T],
        user_id: str,
        origin: str,
        has_notifications: bool,
    ) -> T:
        now_ms = self._clock.now_ms()
        unit = UnitOfWork(tx, self.types.catalog, user_id, now_ms, self.types.rules, self._row_rules)
        result = work(unit)
        self._derived_flush.apply(unit)
        changes = unit.changes()
        if changes or unit.untracked_changes:
            tx.progress.commit_number += 1
            context = CommitContext(
                transaction_key=random_uuid(),
                commit_number=tx.progress.commit_number,
                commit_ms=now_ms,
                user_id=user_id,
                origin=origin,
                has_notifications=has_notifications,
            )
            for hook in self._hooks:
                hook(unit, changes, context)
        unit.close()
        return result
