"""Records on a real store of their own, without users, logins or capture."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from tests.stores import OpenStore
from tidewire.clock import ManualClock
from tidewire.crm.rules import RULES
from tidewire.eventlog.backends import make_event_log
from tidewire.events import Change, CommitContext, Value
from tidewire.ids import make_id
from tidewire.records.service import RecordService
from tidewire.records.table import try_read_row
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Progress, Transaction
from tidewire.storage.writer import GroupWriter

T = TypeVar("T")
USER = make_id("005", 1)
NOW_MS = 1_700_000_000_789


def ignore_commits(transactions: list[Transaction], progress: Progress) -> None:
    pass


class Org:
    """Records on a real store, remembering what its hook was told."""

    def __init__(self, place: OpenStore) -> None:
        self.clock = ManualClock(NOW_MS)
        self.store = place(1)
        self.writer = GroupWriter(self.store, ignore_commits)
        self.writer.start()
        self.types = Types(make_event_log(), RULES)
        self.records = RecordService(self.store, self.writer, self.types, self.clock)
        self.records.add_hook(self._remember)
        self.is_closed = False
        self.changes: list[Change] = []
        self.contexts: list[CommitContext] = []

    def _remember(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        self.changes = list(changes)
        self.contexts.append(context)

    async def write(self, work: Callable[[UnitOfWork], T]) -> T:
        self.changes = []
        return await self.records.write(work, user_id=USER, origin="here")

    async def make(self, entity: str, **values: object) -> str:
        return await self.write(lambda unit: unit.create(self.types.catalog.object(entity), values))

    def obj(self, name: str) -> ObjectType:
        return self.types.catalog.object(name)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.writer.stop()
            self.store.close()

    async def add(self, *objects: ObjectType) -> None:
        """Define objects."""
        await self.records.write_plain(lambda tx: self.types.change(tx, objects=objects))

    async def delete(self, entity: str, record_id: str) -> None:
        """Delete a record in a transaction of its own."""
        await self.write(lambda unit: unit.delete(self.obj(entity), record_id))

    async def undelete(self, entity: str, record_id: str) -> None:
        """Undelete a record in a transaction of its own."""
        await self.write(lambda unit: unit.undelete(self.obj(entity), record_id))

    async def row(self, entity: str, record_id: str) -> dict[str, Value]:
        """The stored record, deleted or not."""
        row = await self.store.read(lambda reader: try_read_row(reader, self.obj(entity), record_id))
        assert row is not None
        return row


@asynccontextmanager
async def open_records(place: OpenStore) -> AsyncIterator[Org]:
    """Records in a new database."""
    opened = Org(place)
    await opened.records.write_plain(opened.types.ensure_stored)
    try:
        yield opened
    finally:
        opened.close()


async def make_user(org: Org, name: str, profile: str) -> str:
    """A user of a profile."""
    return await org.make(
        "User",
        Username=f"{name}@example.com",
        LastName=name,
        Alias=name,
        Email=f"{name}@example.com",
        CommunityNickname=name,
        ProfileId=profile,
        TimeZoneSidKey="GMT",
        LocaleSidKey="en_US",
        EmailEncodingKey="UTF-8",
        LanguageLocaleKey="en_US",
    )
