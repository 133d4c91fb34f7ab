"""Streaming clients that outlive a restart of the server: who they are, what they read, how far they are.

A client is stored before it is told that it has a session or a subscription. Its positions follow as fast as
commits do, so after a crash it may be sent again what it was sent in the last moments before; nothing is ever
left out. What nobody came back for in a day is dropped.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict

from tidewire.clock import Clock
from tidewire.delivery.link_values import DurableClient
from tidewire.errors import PlatformError
from tidewire.records.service import RecordService
from tidewire.storage.store import Reader, Transaction

log = logging.getLogger(__name__)

_KEPT_MS = 86_400_000
_RETRY_S = 1.0
_FIELDS = "client_id, user_id, data, seen_ms"


class DurableClients:
    """One org's. All calls belong on the loop."""

    def __init__(self, records: RecordService, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._moved: dict[str, DurableClient] = {}
        self._writing: dict[str, DurableClient] = {}
        self._gone: set[str] = set()
        self._has_news = asyncio.Event()

    async def store(self, client: DurableClient) -> None:
        """Store a client as it is now; returns when that is durable."""
        self._moved.pop(client.client_id, None)
        self._writing.pop(client.client_id, None)  # nor may it come back if the flush under way fails
        now_ms = self._clock.now_ms()
        await self._records.write_plain(lambda tx: _write(tx, client, now_ms))

    def note(self, clients: tuple[DurableClient, ...]) -> None:
        """These have come further; written by the next `flush`."""
        for client in clients:
            if client.client_id not in self._gone:
                self._moved[client.client_id] = client
        self._has_news.set()

    def forget(self, client_id: str) -> None:
        """This one need not come back."""
        self._moved.pop(client_id, None)
        self._gone.add(client_id)
        self._has_news.set()

    async def try_find(self, client_id: str) -> DurableClient | None:
        """A client that was stored and may come back."""
        if client_id in self._gone:
            return None
        moved = self._moved.get(client_id) or self._writing.get(client_id)
        if moved is not None:
            return moved
        since_ms = self._clock.now_ms() - _KEPT_MS
        return await self._records.read(lambda reader: _try_read(reader, client_id, since_ms))

    async def purge(self) -> None:
        """Drop what nobody came back for."""
        before_ms = self._clock.now_ms() - _KEPT_MS
        await self._records.write_plain(
            lambda tx: tx.execute("DELETE FROM kept_clients WHERE seen_ms < ?", (before_ms,))
        )

    async def flush_forever(self) -> None:
        """Write what moves as soon as it has, one commit after the other, until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                await self.flush()
            except PlatformError as error:
                log.warning("access.flush_failed", extra={"code": error.code})
                await asyncio.sleep(_RETRY_S)
                self._has_news.set()

    async def flush(self) -> None:
        """Write what has moved since the last time; what cannot be written is tried again the next time."""
        if not self._moved and not self._gone:
            return
        moved, self._moved = self._moved, {}
        self._writing = dict(moved)  # the writer thread reads the other one
        gone = frozenset(self._gone)
        now_ms = self._clock.now_ms()
        try:
            await self._records.write_plain(lambda tx: _write_moved(tx, moved, gone, now_ms))
        except BaseException:
            self._moved = {c: kept for c, kept in self._writing.items() if c not in self._gone} | self._moved
            raise
        finally:
            self._writing = {}
        # Only now: until the row is gone, whoever asks must be told by memory.
        self._gone -= gone


def _write(tx: Transaction, client: DurableClient, now_ms: int) -> None:
    tx.execute(
        f"INSERT INTO kept_clients ({_FIELDS}) VALUES (?, ?, ?, ?)"  # noqa: S608  # constant
        " ON CONFLICT (client_id) DO UPDATE SET data = excluded.data, seen_ms = excluded.seen_ms",
        (client.client_id, client.user_id, json.dumps(asdict(client)), now_ms),
    )


def _write_moved(tx: Transaction, moved: dict[str, DurableClient], gone: frozenset[str], now_ms: int) -> None:
    for client in moved.values():
        tx.execute(
            "UPDATE kept_clients SET data = ?, seen_ms = ? WHERE client_id = ?",
            (json.dumps(asdict(client)), now_ms, client.client_id),
        )
    for client_id in sorted(gone):
        tx.execute("DELETE FROM kept_clients WHERE client_id = ?", (client_id,))


def _try_read(reader: Reader, client_id: str, since_ms: int) -> DurableClient | None:
    rows = reader.execute(
        "SELECT data FROM kept_clients WHERE client_id = ? AND seen_ms >= ?", (client_id, since_ms)
    )
    if not rows:
        return None
    data = json.loads(rows[0][0])
    channels = tuple((str(channel), int(position)) for channel, position in data.pop("channels"))
    return DurableClient(**data, channels=channels)
