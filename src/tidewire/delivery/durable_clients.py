"""Streaming clients that survive a restart of the server: their identity, channels and positions.

A client is stored before it learns that it has a session or a subscription. Positions are written behind, as
fast as commits allow. After a crash a client may get its last events again, but it never misses one. A client
that has not returned for a day is dropped.
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

_RETENTION_MS = 86_400_000
_RETRY_S = 1.0
_FIELDS = "client_id, user_id, data, seen_ms"


class DurableClients:
    """The durable clients of one org. All calls belong on the loop."""

    def __init__(self, records: RecordService, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._advanced: dict[str, DurableClient] = {}
        self._writing: dict[str, DurableClient] = {}  # by the flush under way
        self._gone: set[str] = set()
        self._is_dirty = asyncio.Event()

    async def store(self, client: DurableClient) -> None:
        """Store a client; returns when the write is durable."""
        self._advanced.pop(client.client_id, None)
        self._writing.pop(
            client.client_id, None
        )  # if the flush under way fails, it must not retry this older state
        now_ms = self._clock.now_ms()
        await self._records.write_plain(lambda tx: _write(tx, client, now_ms))

    def note(self, clients: tuple[DurableClient, ...]) -> None:
        """Queue newer positions of these clients for the next `flush`."""
        for client in clients:
            if client.client_id not in self._gone:
                self._advanced[client.client_id] = client
        self._is_dirty.set()

    def forget(self, client_id: str) -> None:
        """Queue a client for deletion."""
        self._advanced.pop(client_id, None)
        self._gone.add(client_id)
        self._is_dirty.set()

    async def try_find(self, client_id: str) -> DurableClient | None:
        """Return a stored client, None if there is none or it has expired."""
        if client_id in self._gone:
            return None
        advanced = self._advanced.get(client_id) or self._writing.get(client_id)
        if advanced is not None:
            return advanced
        since_ms = self._clock.now_ms() - _RETENTION_MS
        return await self._records.read(lambda reader: _try_read(reader, client_id, since_ms))

    async def purge(self) -> None:
        """Delete expired clients."""
        before_ms = self._clock.now_ms() - _RETENTION_MS
        await self._records.write_plain(
            lambda tx: tx.execute("DELETE FROM kept_clients WHERE seen_ms < ?", (before_ms,))
        )

    async def flush_forever(self) -> None:
        """Flush whenever something is queued, one commit after the other, until cancelled."""
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            try:
                await self.flush()
            except PlatformError as error:
                log.warning("access.flush_failed", extra={"code": error.code})
                await asyncio.sleep(_RETRY_S)
                self._is_dirty.set()

    async def flush(self) -> None:
        """Write everything that is queued. On failure it stays queued."""
        if not self._advanced and not self._gone:
            return
        advanced, self._advanced = self._advanced, {}
        self._writing = dict(advanced)  # a copy: the writer thread reads `advanced`
        gone = frozenset(self._gone)
        now_ms = self._clock.now_ms()
        try:
            await self._records.write_plain(lambda tx: _write_advanced(tx, advanced, gone, now_ms))
        except BaseException:
            self._advanced = {
                c: kept for c, kept in self._writing.items() if c not in self._gone
            } | self._advanced
            raise
        finally:
            self._writing = {}
        # Only now: until the row is deleted, `try_find` must rely on memory.
        self._gone -= gone


def _write(tx: Transaction, client: DurableClient, now_ms: int) -> None:
    tx.execute(
        f"INSERT INTO kept_clients ({_FIELDS}) VALUES (?, ?, ?, ?)"  # noqa: S608  # constant
        " ON CONFLICT (client_id) DO UPDATE SET data = excluded.data, seen_ms = excluded.seen_ms",
        (client.client_id, client.user_id, json.dumps(asdict(client)), now_ms),
    )


def _write_advanced(
    tx: Transaction, advanced: dict[str, DurableClient], gone: frozenset[str], now_ms: int
) -> None:
    for client in advanced.values():
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
