"""Transactions over several records: after any death all of it is there, or none."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from tests.running import API, InDoubt, Refused, Rest, call_metadata, read_topic
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

SIZE = 5
WRITERS = 4
_PATIENCE_S = 240.0


class Writer(threading.Thread):
    """Makes groups of accounts, each group in one transaction, until told to stop."""

    def __init__(self, server: ServerProcess, token: str, number: int) -> None:
        super().__init__(daemon=True)
        self._rest = Rest(server.http, token)
        self._number = number
        self._stopping = threading.Event()
        self._done = threading.Event()
        self.acknowledged: list[str] = []
        self.tried: list[str] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            tag = f"group {self._number}-{len(self.tried)}"
            self.tried.append(tag)
            records = [
                {"attributes": {"type": "Account"}, "Name": f"{tag} {n}", "Site": tag} for n in range(SIZE)
            ]
            try:
                self._rest.call("POST", f"{API}/composite/sobjects", {"allOrNone": True, "records": records})
            except (InDoubt, Refused):
                self._stopping.wait(0.05)
            else:
                self.acknowledged.append(tag)
                self._done.set()

    def wait_for_more(self, count: int) -> None:
        """Wait until at least so many groups more are acknowledged."""
        for _ in range(count):
            self._done.clear()
            assert self._done.wait(_PATIENCE_S), "nothing is acknowledged any more"

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._rest.close()


@pytest.mark.timeout(900)
def test_collection_of_records_survives_kills_whole_or_not_at_all(
    fresh_server: ServerProcess, kills: int, seed: int
) -> None:
    token = fresh_server.login()
    moments = random.Random(seed)
    writers = [Writer(fresh_server, token, n) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for _ in range(kills):
        threading.Event().wait(moments.uniform(0.2, 0.6))
        fresh_server.kill()
        fresh_server.restart()
    for writer in writers:
        writer.wait_for_more(1 + kills)
        writer.stop()
    rest = Rest(fresh_server.http, token)
    stored = Counter(row["Site"] for row in rest.query("SELECT Site FROM Account"))
    rest.create("Account", {"Name": "last"})
    rest.close()
    acknowledged = {tag for writer in writers for tag in writer.acknowledged}
    assert len(acknowledged) > kills
    assert acknowledged <= stored.keys() <= {tag for writer in writers for tag in writer.tried}
    assert set(stored.values()) == {SIZE}
    metadata = call_metadata(token, fresh_server.http, fresh_server.org_id)
    events = read_topic(
        fresh_server.grpc, metadata, "/data/AccountChangeEvent", lambda event: event.payload["Name"] == "last"
    )
    told = Counter((event.header["transactionKey"], event.payload["Site"]) for event in events[:-1])
    assert len(told) == len(stored)
    assert set(told.values()) == {SIZE}
