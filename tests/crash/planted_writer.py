"""A program that acknowledges rows through the real group writer, honestly or not, until it is killed.

    python planted_writer.py DATABASE honest|unsynced

Prints the number of each row once the writer has acknowledged it. `unsynced` plants the bug that the power
cut must find: a store whose commits do not reach the disk before the acknowledgement.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from tidewire.storage.sqlite import SqliteConnection, SqliteStore
from tidewire.storage.store import Progress, Transaction
from tidewire.storage.writer import GroupWriter


class UnsyncedStore(SqliteStore):
    """A store that lies about durability."""

    def connect_writer(self) -> SqliteConnection:
        connection = super().connect_writer()
        connection.execute("PRAGMA synchronous = OFF")
        return connection


def add_row(number: int, transaction: Transaction) -> int:
    """Store one row."""
    transaction.execute("INSERT INTO planted VALUES (?)", (number,))
    return number


def ignore_commit(transactions: list[Transaction], progress: Progress) -> None:
    """Nobody subscribes here."""


async def write_for_ever(store: SqliteStore) -> None:
    """Acknowledge row after row."""
    writer = GroupWriter(store, ignore_commit)
    writer.start()
    await writer.submit(
        lambda transaction: transaction.execute("CREATE TABLE IF NOT EXISTS planted (number INTEGER)")
    )
    (rows,) = await writer.submit(lambda transaction: transaction.execute("SELECT count(*) FROM planted"))
    number = int(rows[0])
    while True:
        group = [writer.submit(partial(add_row, number + n)) for n in range(4)]
        number += len(group)
        for done in await asyncio.gather(*group):
            sys.stdout.write(f"{done}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    made_by = {"honest": SqliteStore, "unsynced": UnsyncedStore}[sys.argv[2]]
    asyncio.run(write_for_ever(made_by(Path(sys.argv[1]), first_position=1)))
