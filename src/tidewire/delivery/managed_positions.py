"""The positions of managed subscriptions, and who reads each of them now.

A position is durable before its commit is answered. A subscription has one reader at a time, known here only:
one whose edge has gone, or who says goodbye, makes room for the next. A position that can no longer be read
is given up when somebody asks for it; the next reader then starts where the setup says for that case, until
another is committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.errors import ManagedActive, ManagedStopped, ManagedUnknown, ReplayIdExpired, ReplayIdInvalid
from tidewire.eventlog.log import EventLog
from tidewire.events import Family
from tidewire.gate.metadata.registry import managed_id
from tidewire.names import ChannelKind, parse_channel
from tidewire.records.service import RecordService
from tidewire.schema.channels import EARLIEST, RUN, ManagedSubscription
from tidewire.storage.store import Reader, Transaction

NOTHING_KEPT = -1


@dataclass(frozen=True, slots=True)
class Kept:
    """What is stored of a subscription: a position, or that the one before could not be read."""

    position: int = NOTHING_KEPT
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A subscription that was handed to a reader, and where to start; see `delivery.link.ManagedStart`."""

    managed: ManagedSubscription
    position: int
    is_from_earliest: bool


class ManagedPositions:
    """One org's. All calls belong on the loop."""

    def __init__(self, records: RecordService, log: EventLog) -> None:
        self._records = records
        self._log = log
        self._holders: dict[str, tuple[object, str]] = {}  # by name: through whom, and who

    def find(self, subscription_id: str, name: str) -> ManagedSubscription:
        """The subscription of that id, of that name or of both. Raises ManagedUnknown or ManagedStopped."""
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

    async def open(self, subscription_id: str, name: str, via: object, holder: str) -> Opened:
        """Hand a subscription to `holder`, who is reached through `via`."""
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
        return Opened(managed, kept.position, word == EARLIEST)

    async def commit(self, subscription_id: str, via: object, holder: str, position: int) -> None:
        """Keep a position; returns when it is durable."""
        managed = self.confirm(subscription_id, via, holder)
        if not await self._records.read(lambda reader: self._log.is_position_known(reader, position)):
            raise ReplayIdInvalid(
                "The replay ID can't be committed: it was never given out", replay_id=position
            )
        await self._records.write_plain(lambda tx: _advance(tx, managed.name, position))

    def confirm(self, subscription_id: str, via: object, holder: str) -> ManagedSubscription:
        """The subscription, if its reader may go on."""
        managed = self.find(subscription_id, "")
        if self._holders.get(managed.name) != (via, holder):
            raise ManagedActive("Another client has the managed subscription", name=managed.name)
        return managed

    def release(self, subscription_id: str, via: object, holder: str) -> None:
        """A reader has gone; without an id, from whatever it has."""
        for name, held in tuple(self._holders.items()):
            if held == (via, holder) and subscription_id in ("", managed_id(name)):
                del self._holders[name]

    def drop(self, via: object) -> None:
        """All readers who are reached that way have gone."""
        self._holders = {name: held for name, held in self._holders.items() if held[0] is not via}

    def is_read(self, name: str) -> bool:
        """Whether somebody has the subscription now."""
        return name in self._holders

    async def positions(self) -> dict[str, int]:
        """The positions that are kept, by the subscription's name."""
        rows = await self._records.read(
            lambda reader: reader.execute("SELECT name, position FROM managed_positions")
        )
        return {str(name): int(position) for name, position in rows}

    async def _check_position(self, managed: ManagedSubscription, position: int) -> None:
        """Raises ReplayIdExpired or ReplayIdInvalid, and gives the position up for the next time."""
        is_event = parse_channel(managed.topic).kind is ChannelKind.PLATFORM_EVENT
        family = Family.PLATFORM if is_event else Family.CHANGE
        bounds = await self._records.read(lambda reader: self._log.read_bounds(reader, family))
        is_expired = position < bounds.trimmed_through
        if not is_expired and await self._records.read(
            lambda reader: self._log.is_position_known(reader, position)
        ):
            return
        await self._records.write_plain(lambda tx: _write(tx, managed.name, Kept(is_broken=True)))
        if is_expired:
            raise ReplayIdExpired(
                "The committed replay ID is older than the log keeps; the next call starts at"
                f" {managed.error_replay}",
                replay_id=position,
                earliest=bounds.trimmed_through,
            )
        raise ReplayIdInvalid("The committed replay ID was never given out", replay_id=position)


def _read(reader: Reader, name: str) -> Kept:
    rows = reader.execute("SELECT position, is_broken FROM managed_positions WHERE name = ?", (name,))
    return Kept(int(rows[0][0]), bool(rows[0][1])) if rows else Kept()


def _advance(tx: Transaction, name: str, position: int) -> None:
    if position < _read(tx, name).position:
        raise ReplayIdInvalid(
            "The replay ID can't be committed: a later one has been committed already", replay_id=position
        )
    _write(tx, name, Kept(position))


def _write(tx: Transaction, name: str, kept: Kept) -> None:
    tx.execute(
        "INSERT INTO managed_positions (name, position, is_broken) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET position = excluded.position, is_broken = excluded.is_broken",
        (name, kept.position, int(kept.is_broken)),
    )
