"""The hourly quota of published platform events: reserved before a write, given back when it is rolled back.

A reserved event counts at once, so that calls that run side by side, or publish many events before their commit, cannot
pass the limit together. A commit changes nothing. Only high-volume events that a user publishes count.
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Protocol

from tidewire.errors import OutcomeUnknown, PlatformError


class Charge(NamedTuple):
    """Events that were charged to the quota of an hour."""

    hour: int
    events: int


class PublishQuota(Protocol):
    """An org's quota. Called from the loop and from the writer thread."""

    def reserve(self, wanted: int) -> Charge:
        """Charge up to `wanted` events to the current hour; the result says how many were granted."""

    def release(self, charge: Charge) -> None:
        """Give back a charge whose events were not published."""


class Unlimited:
    """Grants everything."""

    def reserve(self, wanted: int) -> Charge:
        """Grant all of it."""
        return Charge(0, wanted)

    def release(self, charge: Charge) -> None:
        """No-op."""


class Reservation:
    """The charges of one transaction.

    As a context manager it gives back all of them if the body raises PlatformError, which means a rollback. After
    OutcomeUnknown or any other exception, such as a cancellation, the events may be published and stay charged.
    """

    __slots__ = ("_charges", "_quota", "_surviving")

    def __init__(self, quota: PublishQuota) -> None:
        self._quota = quota
        self._charges: list[Charge] = []
        self._surviving: list[Charge] = []

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, PlatformError) and not isinstance(error, OutcomeUnknown):
            self.release()

    def reserve(self, wanted: int, *, survives_rollback: bool = False) -> int:
        """Charge up to `wanted` events and return how many were granted."""
        charge = self._quota.reserve(wanted)
        (self._surviving if survives_rollback else self._charges).append(charge)
        return charge.events

    def release_rolled_back(self) -> None:
        """Give back the events that do not survive a rollback."""
        for charge in self._charges:
            self._quota.release(charge)
        self._charges.clear()

    def release(self) -> None:
        """Give back everything."""
        self.release_rolled_back()
        for charge in self._surviving:
            self._quota.release(charge)
        self._surviving.clear()

    def keep(self) -> None:
        """Leave everything charged for good."""
        self._charges.clear()
        self._surviving.clear()
