"""Shared transactions: several calls of one user that commit or roll back together.

A call is a coroutine that awaits only reads and writes of a gate. With a gate to one unit of work, whose reads and
writes complete immediately, it never suspends: the writer thread runs it from start to end inside the transaction.
Later calls see what earlier ones wrote; nobody else does before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any, TypeVar

from tidewire.errors import InternalError, PlatformError, RequestError, WriteConflict
from tidewire.gate.gate import Gate
from tidewire.gate.publish_quota import Reservation
from tidewire.gate.requests import Call
from tidewire.records.conversion import ConversionNote
from tidewire.records.service import Records, flush_derived
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.storage.store import Reader, Transaction

T = TypeVar("T")
Calls = Callable[[Gate], Coroutine[Any, Any, T]]
"""Makes calls through the given gate, and awaits nothing else."""


class TransactionRecords:
    """An org's records as one unit of work sees them.

    A failed write may leave some of its rows behind, so the unit must not commit once `has_failed` is set.
    """

    def __init__(self, unit: UnitOfWork, records: Records) -> None:
        self._unit = unit
        self._records = records
        self.types = records.types
        self.has_failed = False
        self.surviving: list[Callable[[Transaction], object]] = (
            records.surviving if isinstance(records, TransactionRecords) else []
        )

    @property
    def catalog(self) -> Catalog:
        """The types, including changes made in the unit."""
        return self._unit.catalog

    async def write(
        self,
        work: Callable[[UnitOfWork], T],
        *,
        user_id: str,
        origin: str = "",
        has_notifications: bool = True,
        exclusive: bool = False,
    ) -> T:
        """Run `work` as part of the unit, with the user and origin of the unit."""
        try:
            result = work(self._unit)
            flush_derived(self._unit)
        except PlatformError:
            self.has_failed = True
            raise
        return result

    async def write_plain(
        self, work: Callable[[Transaction], T], *, exclusive: bool = False, survives_rollback: bool = False
    ) -> T:
        """Run `work` that touches no records in the unit's transaction, and again if it `survives_rollback`."""
        try:
            result = work(self._unit.tx)
        except PlatformError:
            self.has_failed = True
            raise
        if survives_rollback:
            self.surviving.append(work)
        return result

    async def read(self, work: Callable[[Reader], T], *, is_short: bool = False) -> T:
        """Run `work` on committed data plus what the unit has written."""
        return work(self._unit.tx)

    def on_conversion(self, unit: UnitOfWork, note: ConversionNote) -> None:
        """Report a converted field."""
        self._records.on_conversion(unit, note)


async def run_in_transaction(gate: Gate, call: Call, calls: Calls[T], is_kept: Callable[[T], bool]) -> T:
    """Run calls of one user in one transaction; returns their result once it is durable or rolled back.

    Rolls back if any write failed or `is_kept` rejects the result; writes that survive a rollback are then repeated
    in their own transactions. The transaction is a commit group by itself: it may be large, and may change types
    or grants that other members of a group depend on. Raises what the commit raises.
    """
    known = {call.principal.user_id: await gate.current_grants(call.principal)}
    rolled_back = WriteConflict("the transaction was rolled back")
    results: list[T] = []
    surviving: list[Callable[[Transaction], object]] = []
    # Inside another shared transaction, that one decides what becomes of the events.
    outer = gate.publisher.shared_reservation
    reservation = outer or Reservation(gate.usage.quota)

    def work(unit: UnitOfWork) -> None:
        results.clear()  # the writer runs this again if the group had to be rolled back
        surviving.clear()
        if outer is None:
            reservation.release()
        records = TransactionRecords(unit, gate.records)
        inner = gate.with_records(records, unit.tx.progress.access_generation, known)
        inner.publisher.shared_reservation = reservation
        try:
            results.append(_drive(calls(inner)))
        finally:
            surviving.extend(records.surviving)
        if records.has_failed or not is_kept(results[0]):
            raise rolled_back

    with nullcontext() if outer is not None else reservation:
        try:
            await gate.records.write(
                work,
                user_id=call.principal.user_id,
                origin=call.origin,
                has_notifications=call.has_notifications,
                exclusive=True,
            )
        except (RequestError, WriteConflict) as error:
            if isinstance(error, WriteConflict) and error is not rolled_back:
                raise
            if outer is None:  # otherwise the outer transaction repeats what survives
                reservation.release_rolled_back()
                for each in surviving:
                    await gate.records.write_plain(each)
                reservation.keep()
            if error is not rolled_back:
                raise
    return results[0]


def _drive(calls: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        calls.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    calls.close()
    raise InternalError("a call in a shared transaction awaited something other than its gate")
