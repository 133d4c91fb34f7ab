"""The replication example beside writers that never rest: at the end its copy equals the source."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import Rest, call_metadata, read_topic
from tests.wire.replica import Replica, find_differences
from tests.wire.replication_load import (
    ADMIN,
    HUGE,
    Org,
    Writer,
    conversions,
    definition,
    make_crowd,
    overflow,
)
from tidewire.testing import ServerProcess

WRITERS = 4
OVERFLOWS = 2


@pytest.fixture
def rest(fresh_server: ServerProcess) -> Iterator[Rest]:
    """REST calls to the test's own server."""
    client = Rest(fresh_server.http, fresh_server.login())
    yield client
    client.close()


@pytest.fixture
def replica(fresh_server: ServerProcess, rest: Rest, tmp_path: Path) -> Iterator[Replica]:
    """The example beside a server that has the twenty objects."""
    rest.call("POST", f"{ADMIN}/apply", definition())
    running = Replica(fresh_server, tmp_path / "copy.db")
    yield running
    running.close()


def write_and_disturb(rest: Rest, replica: Replica, org: Org, writers: list[Writer], operations: int) -> None:
    """Let the writers do their work; meanwhile bring about overflows, convert fields and kill the example."""
    crowd = make_crowd(rest)
    # More than one event holds, which the writers' dice may not bring about.
    rest.create("Huge__c", {"Name": "huge", "A__c": HUGE, "B__c": HUGE, "C__c": HUGE})
    for writer in writers:
        writer.start()
    for turn in range(OVERFLOWS):
        rest.close()  # the server does not keep a connection for as long as this may take
        org.wait_done(operations * (turn + 1) // (OVERFLOWS + 1))
        overflow(rest, crowd, 1000 * turn)
        if turn == OVERFLOWS - 1:
            rest.call("POST", f"{ADMIN}/apply", conversions())
        replica.restart()
    rest.close()
    for writer in writers:
        writer.join()
    assert [writer.failure for writer in writers] == [None] * len(writers)
    assert org.done >= operations


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_replica_of_twenty_objects_equals_the_source_after_random_operations(
    fresh_server: ServerProcess, rest: Rest, replica: Replica, operations: int, seed: int
) -> None:
    org = Org(fresh_server)
    dice = random.Random(seed)
    writers = [Writer(org, dice.randrange(1 << 30), operations) for _ in range(WRITERS)]
    write_and_disturb(rest, replica, org, writers, operations)
    last = rest.create("Account", {"Name": "last"})
    copy = replica.wait_for("Account", last)
    assert find_differences(rest, copy) == []
    assert [entity for entity, ids in org.ids.items() if not ids] == []
    told = read_topic(
        fresh_server.grpc,
        call_metadata(org.token, fresh_server.http, fresh_server.org_id),
        "/data/ChangeEvents",
        lambda event: last in event.header["recordIds"],
        timeout_s=3600,
    )
    kinds = Counter(event.header["changeType"] for event in told)
    print(f"{org.done} operations, {len(told)} events: {dict(kinds)}")  # noqa: T201
    # The copy was spared nothing.
    assert kinds["GAP_OVERFLOW"] == OVERFLOWS
    assert kinds.keys() >= {"CREATE", "UPDATE", "DELETE", "UNDELETE", "GAP_CREATE", "GAP_UPDATE"}
    assert any(len(event.header["recordIds"]) > 1 for event in told)
    assert any(event.header["recordIds"][0].endswith("*") for event in told)
    assert any(event.header["diffFields"] for event in told)
