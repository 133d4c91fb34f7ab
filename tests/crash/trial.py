"""One crash trial: a server under load that dies again and again, inspected after every restart."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from tests.crash.ledger import Kind, Ledger
from tests.crash.load import WRITERS, Load, Records
from tests.crash.verdict import MARKER_FIELD, find_rewritten_history, find_violations
from tests.running import Rest, SeenEvent, call_metadata, read_topic
from tidewire.testing import ServerProcess

TOPIC = "/data/AccountChangeEvent"
_ACK_TIMEOUT_S = 240.0
_CHECKPOINT_TIMEOUT_S = 240.0


class Trial:
    """The state that outlives the server: the ledger, the writers, and what an earlier reader has seen.

    One session token serves the whole trial: a login that was acknowledged must survive a crash like any
    other write.
    """

    def __init__(
        self,
        server: ServerProcess,
        seed: int,
        connect: Callable[[], Records] | None = None,
        writers: int = WRITERS,
    ) -> None:
        self.server = server
        self.ledger = Ledger()
        self.rng = random.Random(seed)
        self._token = server.login()
        self._load = Load(connect or self._connect, self.ledger, seed, writers)
        self._seen: list[SeenEvent] = []
        self._inspections = 0
        self.checkpoints_hit = 0

    def write_through(self, deaths: int, die: Callable[[], None]) -> None:
        """Write while the server dies `deaths` times by `die` and is started again, and for a while after."""
        self._load.start()
        try:
            for _ in range(deaths):
                die()
                self.server.restart()
                self._load.note_back()
            self.wait_progress(20)
        finally:
            self._load.stop()

    def round(self, die: Callable[[], None]) -> list[str]:
        """One death under load; returns every promise that the server has broken by then."""
        self.write_through(1, die)
        return self.inspect()

    def kill_at_random(self) -> None:
        """Kill the server at some moment after a few dozen more acknowledged changes."""
        self.wait_progress(self.rng.randrange(10, 80))
        # A moment within a request rather than right after an answer.
        threading.Event().wait(self.rng.uniform(0, 0.03))
        self.server.kill()

    def kill_at_checkpoint(self) -> None:
        """Kill the server as soon as the database file changes: while the log is being copied into it.

        Short lives never get that far, so without this a trial would only ever test the recovery of a log.
        """
        database = self.server.data / "org.db"
        before_ns = database.stat().st_mtime_ns
        give_up_s = time.monotonic() + _CHECKPOINT_TIMEOUT_S
        while database.stat().st_mtime_ns == before_ns:
            assert time.monotonic() < give_up_s, f"no checkpoint within {_CHECKPOINT_TIMEOUT_S} s of load"
            threading.Event().wait(0.0005)
        # The copy takes some milliseconds and ends with a sync; die somewhere in it, or right after.
        threading.Event().wait(self.rng.choice([0, 0, 0.002, 0.01]))
        self.server.kill()
        self.checkpoints_hit += 1

    def wait_progress(self, changes: int) -> None:
        """Wait until the server has acknowledged so many changes more."""
        target = self.ledger.acknowledged + changes
        assert self.ledger.wait_acknowledged(target, _ACK_TIMEOUT_S), (
            f"{self.ledger.acknowledged} of {target} changes were acknowledged in {_ACK_TIMEOUT_S} s; "
            f"refused: {self.ledger.refusals[:3]}; server: {self.server.stderr_tail()}"
        )

    def inspect(self) -> list[str]:
        """Every promise that the server has broken so far. Call it while no writer runs."""
        self._inspections += 1
        rest = Rest(self.server.http, self._token)
        marker = f"inspection-{self._inspections}"
        last_id = rest.create("Account", {"Name": marker, MARKER_FIELD: marker})
        self.ledger.note(last_id, Kind.CREATE, marker, is_acknowledged=True)
        metadata = call_metadata(self._token, self.server.http, self.server.org_id)
        events = read_topic(
            self.server.grpc, metadata, TOPIC, lambda event: event.payload[MARKER_FIELD] == marker
        )
        rows = rest.query(f"SELECT Id, {MARKER_FIELD} FROM Account")
        rest.close()
        records = {row["Id"]: row[MARKER_FIELD] for row in rows}
        found = find_violations(self.ledger, events, records) + find_rewritten_history(self._seen, events)
        self._seen = events
        return found

    def _connect(self) -> Rest:
        return Rest(self.server.http, self._token)
