"""Committed positions of managed subscriptions, and the current reader of each.

A position is durable before its commit is acknowledged. A subscription has one reader at a time, known only
in memory: a reader that ends, or whose edge is gone, makes room for the next. A position that can no longer
be read is discarded when a reader asks for it; the next reader then starts at the subscription's
`error_replay` until a position is committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.delivery.link_values import ManagedStart
from tidewire.errors import ManagedActive, ManagedStopped, ManagedUnknown, ReplayIdExpired, ReplayIdInvalid
from tidewire.eventlog.log import EventLog
from tidewire.events import Family
from tidewire.gate.metadata.registry import managed_id
from tidewire.names import ChannelKind, parse_channel
from tidewire.records.service import RecordService
from tidewire.schema.channels import EARLIEST, RUN, ManagedSubscription
from tidewire.storage.store import Reader, Transaction

NO_POSITION = -1


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """The stored state of a subscription: a position, or that the last one was unreadable."""

    position: int = NO_POSITION
    is_broken: bool = False


class ManagedPositions:
    """The managed subscriptions of one org. All calls belong on the loop."""

    def __init__(self, records: RecordService, log: EventLog) -> None:
        self._records = records
        self._log = log
        self._holders: dict[str, tuple[object, str]] = {}  # by name: the edge, and its reader

    def find(self, subscription_id: str, name: str) -> ManagedSubscription:
        """Return the subscription with this id, this name, or both.

        Raises ManagedUnknown or ManagedStopped.
        """
        for managed in self._records.types.catalog.selection.managed:
            has_id = not subscription_id or managed_id(managed.name) == subscription_id
            if has_id and (not name or managed.name.lower() == name.lower()):
                if managed.state != RUN:
                    raise ManagedStopped(
                        f"The managed subscription {managed.name} is stopped", name=managed.name
                    )
                return managed
        raise ManagedUnknown(
            f"There is no managed subscription {(subscription_id or name)[:80]}", name=(name or "")[:80]
        )

    async def open(self, subscription_id: str, name: str, via: object, holder: str) -> ManagedStart:
        """Make `holder` on the edge `via` the reader of a subscription."""
        managed = self.find(subscription_id, name)
        held = self._holders.get(managed.name)
        if held is not None and held != (via, holder):
            raise ManagedActive(
                "An active managed subscription with the same ID already exists. It is free again once the server"
                " has noticed that its client has gone.",
                name=managed.name,
            )
        self._holders[managed.name] = (via, holder)
        try:
            kept = await self._records.read(lambda reader: _read(reader, managed.name))
            if kept.position >= 0:
                await self._check_position(managed, kept.position)
        except BaseException:
            self.release(managed_id(managed.name), via, holder)
            raise
        word = managed.error_replay if kept.is_broken else managed.default_replay
        return ManagedStart(
            managed_id(managed.name), managed.name, managed.topic, kept.position, word == EARLIEST
        )

    async def commit(self, subscription_id: str, via: object, holder: str, position: int) -> None:
        """Store a position; returns when it is durable."""
        managed = self.confirm(subscription_id, via, holder)
        if not await self._records.read(lambda reader: self._log.is_position_known(reader, position)):
            raise ReplayIdInvalid(
                "The replay ID can't be committed: it was never given out", replay_id=position
            )
        await self._records.write_plain(lambda tx: _advance(tx, managed.name, position))

    def confirm(self, subscription_id: str, via: object, holder: str) -> ManagedSubscription:
        """Return the subscription if `holder` is still its reader. Raises ManagedActive."""
        managed = self.find(subscription_id, "")
        if self._holders.get(managed.name) != (via, holder):
            raise ManagedActive("Another client has the managed subscription", name=managed.name)
        return managed

    def release(self, subscription_id: str, via: object, holder: str) -> None:
        """Release a reader's subscription; with an empty id, all of them."""
        for name, held in tuple(self._holders.items()):
            if held == (via, holder) and subscription_id in ("", managed_id(name)):
                del self._holders[name]

    def drop(self, via: object) -> None:
        """Release the subscriptions of all readers on an edge."""
        self._holders = {name: held for name, held in self._holders.items() if held[0] is not via}

    def is_read(self, name: str) -> bool:
        """Whether the subscription has a reader."""
        return name in self._holders

    async def positions(self) -> dict[str, int]:
        """Return the committed positions by the name of the subscription."""
        rows = await self._records.read(
            lambda reader: reader.execute("SELECT name, position FROM managed_positions")
        )
        return {str(name): int(position) for name, position in rows}

    async def _check_position(self, managed: ManagedSubscription, position: int) -> None:
        """Raise ReplayIdExpired or ReplayIdInvalid if a position is unreadable, and discard it."""
        is_event = parse_channel(managed.topic).kind is ChannelKind.PLATFORM_EVENT
        family = Family.PLATFORM if is_event else Family.CHANGE
        bounds = await self._records.read(lambda reader: self._log.read_bounds(reader, family))
        is_expired = position < bounds.trimmed_through
        if not is_expired and await self._records.read(
            lambda reader: self._log.is_position_known(reader, position)
        ):
            return
        await self._records.write_plain(lambda tx: _write(tx, managed.name, StoredPosition(is_broken=True)))
        if is_expired:
            raise ReplayIdExpired(
                "The committed replay ID is older than the log keeps; the next call starts at"
                f" {managed.error_replay}",
                replay_id=position,
                earliest=bounds.trimmed_through,
            )
        raise ReplayIdInvalid("The committed replay ID was never given out", replay_id=position)


def _read(reader: Reader, name: str) -> StoredPosition:
    rows = reader.execute("SELECT position, is_broken FROM managed_positions WHERE name = ?", (name,))
    return StoredPosition(int(rows[0][0]), bool(rows[0][1])) if rows else StoredPosition()


def _advance(tx: Transaction, name: str, position: int) -> None:
    if position < _read(tx, name).position:
        raise ReplayIdInvalid(
            "The replay ID can't be committed: a later one has been committed already", replay_id=position
        )
    _write(tx, name, StoredPosition(position))


def _write(tx: Transaction, name: str, kept: StoredPosition) -> None:
    tx.execute(
        "INSERT INTO managed_positions (name, position, is_broken) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET position = excluded.position, is_broken = excluded.is_broken",
        (name, kept.position, int(kept.is_broken)),
    )
