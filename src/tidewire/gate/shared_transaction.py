"""Several calls of one user in one transaction.

A call is a coroutine over the gate that waits for nothing but reads and writes. Given a gate to one unit of work,
whose reads and writes happen at once, it never waits at all: the writer thread runs it from its first line to its
last inside the transaction. Later calls see what earlier ones wrote; nobody else does before the commit.
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
from tidewire.records.service import Records, settle
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.storage.store import Reader, Transaction

T = TypeVar("T")
Calls = Callable[[Gate], Coroutine[Any, Any, T]]
"""Makes calls through the gate that it is given, and waits for nothing else."""


class TransactionRecords:
    """An org's records as one unit of work sees them.

    A write that fails may leave rows of its own behind, so after one the unit must not be committed.
    """

    def __init__(self, unit: UnitOfWork, records: Records) -> None:
        self._unit = unit
        self._records = records
        self.types = records.types
        self.has_failed = False
        self.outliving: list[Callable[[Transaction], object]] = (
            records.outliving if isinstance(records, TransactionRecords) else []
        )

    @property
    def catalog(self) -> Catalog:
        """The types as the unit has left them."""
        return self._unit.catalog

    async def write(
        self,
        work: Callable[[UnitOfWork], T],
        *,
        user_id: str,
        origin: str = "",
        has_notifications: bool = True,
        solo: bool = False,
    ) -> T:
        """Run `work` as a part of the unit, whose user and origin it shares."""
        try:
            result = work(self._unit)
            settle(self._unit)
        except PlatformError:
            self.has_failed = True
            raise
        return result

    async def write_plain(
        self, work: Callable[[Transaction], T], *, solo: bool = False, outlives: bool = False
    ) -> T:
        """Run `work` that touches no records in the unit's transaction. What `outlives` it is remembered too."""
        try:
            result = work(self._unit.tx)
        except PlatformError:
            self.has_failed = True
            raise
        if outlives:
            self.outliving.append(work)
        return result

    async def read(self, work: Callable[[Reader], T], *, is_brief: bool = False) -> T:
        """Run `work` over what is committed and what the unit has written."""
        return work(self._unit.tx)

    def on_conversion(self, unit: UnitOfWork, note: ConversionNote) -> None:
        """Tell whom it concerns of a converted field."""
        self._records.on_conversion(unit, note)


async def run_in_transaction(gate: Gate, call: Call, calls: Calls[T], is_kept: Callable[[T], bool]) -> T:
    """Run calls of one user in one transaction; returns their result once it is durable, or taken back.

    It is taken back, but for what outlives it, unless `is_kept` says so of the result, or if any write has failed. It
    is a group of its own, for it may be large, and may change what the rest of a group would have to know. Raises
    what the commit raises.
    """
    known = {call.principal.user_id: await gate.current_grants(call.principal)}
    taken_back = WriteConflict("the transaction was taken back")
    results: list[T] = []
    outliving: list[Callable[[Transaction], object]] = []
    # Inside another shared transaction, that one decides what becomes of the events.
    outer = gate.publisher.shared_reservation
    reservation = outer or Reservation(gate.usage.quota)

    def work(unit: UnitOfWork) -> None:
        results.clear()  # the writer runs this again if the group had to be rolled back
        outliving.clear()
        if outer is None:
            reservation.release()
        records = TransactionRecords(unit, gate.records)
        inner = gate.with_records(records, unit.tx.progress.access_generation, known)
        inner.publisher.shared_reservation = reservation
        try:
            results.append(_drive(calls(inner)))
        finally:
            outliving.extend(records.outliving)
        if records.has_failed or not is_kept(results[0]):
            raise taken_back

    with nullcontext() if outer is not None else reservation:
        try:
            await gate.records.write(
                work,
                user_id=call.principal.user_id,
                origin=call.origin,
                has_notifications=call.has_notifications,
                solo=True,
            )
        except (RequestError, WriteConflict) as error:
            if isinstance(error, WriteConflict) and error is not taken_back:
                raise
            if outer is None:  # otherwise the outer transaction repeats what survives
                reservation.release_rolled_back()
                for each in outliving:
                    await gate.records.write_plain(each)
                reservation.keep()
            if error is not taken_back:
                raise
    return results[0]


def _drive(calls: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits to its end."""
    try:
        calls.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    calls.close()
    raise InternalError("a call inside a transaction waited for something outside of it")
