"""Records as the stages above use them: write in a unit of work, read in a snapshot.

`on_changes` is the hook through which a commit reaches capture. It runs on the writer thread, inside the
transaction, after the work and before the commit; if it raises, the whole request is undone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from tidewire.clock import Clock
from tidewire.events import Change, CommitContext
from tidewire.ids import random_uuid
from tidewire.records.conversion import ConversionNote
from tidewire.records.rollups import apply_roll_ups, counted_entities
from tidewire.records.short_reads import ShortReads
from tidewire.records.types import Types
from tidewire.records.work import RowRule, UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.storage.store import Reader, Store, Transaction
from tidewire.storage.writer import GroupWriter

T = TypeVar("T")
ChangeHook = Callable[[UnitOfWork, Sequence[Change], CommitContext], None]
ConversionHook = Callable[[UnitOfWork, ConversionNote], None]


class Records(Protocol):
    """What calls need of an org's records: all of them, or one transaction's view of them."""

    types: Types

    @property
    def catalog(self) -> Catalog:
        """The types, with what the transaction has changed about them."""

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
        """Run `work` that touches no records in one transaction. What `survives_rollback` its transaction is done
        again by itself if that is taken back.
        """

    async def read(self, work: Callable[[Reader], T], *, is_short: bool = False) -> T:
        """Run `work` in one snapshot; `is_short` promises that it is a few statements by key."""

    def on_conversion(self, unit: UnitOfWork, note: ConversionNote) -> None:
        """Tell whom it concerns of a converted field."""


class DerivedFlush:
    """Which new records concern no other ones. Kept for as long as the types stay as they are."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._concerning: frozenset[str] = frozenset()

    def apply(self, unit: UnitOfWork) -> None:
        """`flush_derived`, at no cost for a unit that has only made records which nobody counts."""
        if unit.catalog is not self._catalog:
            self._catalog = unit.catalog
            self._concerning = (
                counted_entities(unit.catalog.objects, unit.rules) | unit.rules.flushed_entities
            )
        if not unit.has_only_new(self._concerning):
            flush_derived(unit)


def flush_derived(unit: UnitOfWork) -> None:
    """Bring other records up to date with what was written since the last time: roll-ups, copies, last
    activities.
    """
    apply_roll_ups(unit)
    for rule in unit.rules.flush:
        rule(unit)
    unit.mark_flushed()


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
        """The current types."""
        return self.types.catalog

    def add_hook(self, hook: ChangeHook) -> None:
        """Call `hook` with the changes of every later transaction, in the order of adding."""
        self._hooks.append(hook)

    def add_row_rule(self, entity: str, rule: RowRule) -> None:
        """Ask `rule` before every later create and update of the object's records."""
        self._row_rules[entity] = rule

    def add_conversion_hook(self, hook: ConversionHook) -> None:
        """Call `hook` for every later conversion of a field, inside its transaction, data already converted."""
        self._conversion_hooks.append(hook)

    def on_conversion(self, unit: UnitOfWork, note: ConversionNote) -> None:
        """Tell the hooks of a converted field."""
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
        """Run `work` in one transaction; its result is to be had once it is durable."""
        return self._writer.submit(
            lambda tx: self._run(tx, work, user_id, origin, has_notifications), exclusive=exclusive
        )

    async def write_plain(
        self, work: Callable[[Transaction], T], *, exclusive: bool = False, survives_rollback: bool = False
    ) -> T:
        """Run `work` that touches no records, such as a login or a publish, in one transaction of its own."""
        return await self._writer.submit(work, exclusive=exclusive)

    async def read(self, work: Callable[[Reader], T], *, is_short: bool = False) -> T:
        """Run `work` in one read transaction, off the loop. Brief work shares one with other such work."""
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
