"""Writers over REST that note what they tried and what they were told, and go on after the server has died
and come back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Protocol

from tests.crash.ledger import Kind, Ledger
from tests.crash.lives import Lives
from tests.crash.verdict import MARKER_FIELD
from tests.running import InDoubt, Refused

WRITERS = 6
_RECORDS_PER_WRITER = 12


class Records(Protocol):
    """Some client's way to change records.

    Every call raises InDoubt if no answer came, Refused if it was no.
    """

    def create(self, entity: str, fields: dict[str, Any]) -> str:
        """Create one record; its id."""

    def update(self, entity: str, record_id: str, fields: dict[str, Any]) -> None:
        """Change fields of one record."""

    def delete(self, entity: str, record_id: str) -> None:
        """Delete one record."""

    def close(self) -> None:
        """Let go of connections until the next call."""


class Load:
    """Several writers, each with records of its own, that can be started and stopped again and again.

    `note_back` must be called after every restart of the server.
    """

    def __init__(
        self, connect: Callable[[], Records], ledger: Ledger, seed: int, writers: int = WRITERS
    ) -> None:
        self._ledger = ledger
        self._writers = [
            _Writer(f"{seed}-{n}", random.Random(seed + n), connect(), ledger) for n in range(writers)
        ]
        self._threads: list[threading.Thread] = []
        self._lives = Lives()

    def start(self) -> None:
        """Let the writers begin."""
        self._threads = [threading.Thread(target=self._write, args=(w,), daemon=True) for w in self._writers]
        self._lives.start(self._threads)

    def note_back(self) -> None:
        """Tell the writers that the server lives again."""
        self._lives.note_back()

    def stop(self) -> None:
        """Let every writer finish its request, and wait for them."""
        self._lives.stop(self._threads)

    def _write(self, writer: _Writer) -> None:
        while not self._lives.is_stopping:
            life = self._lives.count
            try:
                writer.step()
            except InDoubt:
                self._lives.wait_back(life)
            except Refused as refused:
                self._ledger.note_refusal(str(refused))
                break
        writer.rest()


class _Writer:
    def __init__(self, name: str, rng: random.Random, records: Records, ledger: Ledger) -> None:
        self._name = name
        self._rng = rng
        self._records = records
        self._ledger = ledger
        self._count = 0
        self._mine: list[str] = []

    def step(self) -> None:
        """One request. Raises InDoubt after noting that nobody knows whether it was carried out."""
        choice = self._rng.random()
        if len(self._mine) < 3 or (choice < 0.15 and len(self._mine) < _RECORDS_PER_WRITER):
            self._create()
        elif choice < 0.25:
            self._delete()
        else:
            self._update()

    def rest(self) -> None:
        """Let go of the connection until the next step."""
        self._records.close()

    def _marker(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def _create(self) -> None:
        marker = self._marker()
        try:
            record_id = self._records.create("Account", {"Name": marker, MARKER_FIELD: marker})
        except InDoubt:
            self._ledger.note_doubtful_create(marker)
            raise
        self._ledger.note(record_id, Kind.CREATE, marker, is_acknowledged=True)
        self._mine.append(record_id)

    def _update(self) -> None:
        marker = self._marker()
        record_id = self._rng.choice(self._mine)
        try:
            self._records.update("Account", record_id, {MARKER_FIELD: marker})
        except InDoubt:
            self._ledger.note(record_id, Kind.UPDATE, marker, is_acknowledged=False)
            raise
        self._ledger.note(record_id, Kind.UPDATE, marker, is_acknowledged=True)

    def _delete(self) -> None:
        # Whatever the answer, the record is not touched again, so that a delete in doubt stays the last
        # attempt.
        record_id = self._mine.pop(self._rng.randrange(len(self._mine)))
        try:
            self._records.delete("Account", record_id)
        except InDoubt:
            self._ledger.note(record_id, Kind.DELETE, "", is_acknowledged=False)
            raise
        self._ledger.note(record_id, Kind.DELETE, "", is_acknowledged=True)
