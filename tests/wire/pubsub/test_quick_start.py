"""The Pub/Sub guide's Python quick start, examples/pubsub_quick_start.py, run as its users run it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_tools import protoc

from tests.running import Rest
from tests.wire.pubsub.conftest import PROTO
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PROGRAM = Path(__file__).parents[3] / "examples" / "pubsub_quick_start.py"
CHANGES = "/data/OpportunityChangeEvent"
ORDERS = "/event/Order_Event__e"
_LIMIT_S = 60.0

Event = tuple[str, dict[str, Any]]


class QuickStart:
    """The example with stubs of its own, against one server."""

    def __init__(self, server: ServerProcess, stubs: Path) -> None:
        self._env = {
            **os.environ,
            "PYTHONPATH": str(stubs),
            "TIDEWIRE_URL": server.http,
            "TIDEWIRE_GRPC": server.grpc_tls,
            "TIDEWIRE_CA": str(server.ca_path),
        }

    def run(self, *arguments: str) -> list[str]:
        """Run it to its end; its lines."""
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def events(self, topic: str, after: str, count: int) -> list[Event]:
        """The events after a replay id."""
        lines = self.run("subscribe", topic, "--after", after, "--count", str(count))
        return [parse_event(line) for line in lines if not line.startswith("#")]

    @contextmanager
    def subscribed(self, topic: str) -> Iterator[queue.SimpleQueue[str]]:
        """Its lines while it runs."""
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        with subprocess.Popen(
            [sys.executable, str(PROGRAM), "subscribe", topic],
            env=self._env,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None

            def read(stdout: Any) -> None:
                for line in stdout:
                    lines.put(line.rstrip())

            reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
            reader.start()
            try:
                yield lines
            finally:
                process.kill()
                reader.join()


def parse_event(line: str) -> Event:
    replay_id, _, fields = line.partition(" ")
    return replay_id, json.loads(fields)


@pytest.fixture(scope="module")
def quick_start(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> QuickStart:
    made = tmp_path_factory.mktemp("quick_start_stubs")
    arguments = ["protoc", f"--proto_path={PROTO}", f"--python_out={made}", f"--grpc_python_out={made}"]
    assert protoc.main([*arguments, "pubsub_api.proto"]) == 0
    return QuickStart(server, made)


def create_opportunity(rest: Rest, name: str) -> str:
    return rest.create(
        "Opportunity", {"Name": name, "StageName": "Prospecting", "CloseDate": "2031-01-31", "Amount": 7}
    )


def test_quick_start_sees_changes_as_they_come_and_resumes_by_replay_id(
    quick_start: QuickStart, rest: Rest
) -> None:
    with quick_start.subscribed(CHANGES) as lines:
        # It begins with new events, and does not say when: make some until the first has come.
        made: list[str] = []
        first = ""
        while not first:
            assert len(made) < _LIMIT_S
            made.append(create_opportunity(rest, f"Quick start {len(made)}"))
            try:
                first = lines.get(timeout=1)
            except queue.Empty:
                continue
    replay_id, fields = parse_event(first)
    header = fields["ChangeEventHeader"]
    assert header["changeType"] == "CREATE"
    assert header["recordIds"][0] in made
    assert (fields["StageName"], fields["Amount"]) == ("Prospecting", 7.0)
    later = [create_opportunity(rest, f"Quick start after {n}") for n in range(2)]
    missed = made[made.index(header["recordIds"][0]) + 1 :]
    events = quick_start.events(CHANGES, replay_id, len(missed) + len(later))
    assert [event["ChangeEventHeader"]["recordIds"] for _, event in events] == [[r] for r in missed + later]
    resumed = quick_start.events(CHANGES, events[-2][0], 1)
    assert resumed == events[-1:]


def test_quick_start_publishes_orders_and_reads_them_back_by_replay_id(quick_start: QuickStart) -> None:
    ids = []
    for number in ("100", "101", "102"):
        fields = json.dumps({"Order_Number__c": number, "Has_Shipped__c": True})
        (replay_id,) = quick_start.run("publish", ORDERS, fields)
        assert len(bytes.fromhex(replay_id)) == 10
        ids.append(replay_id)
    events = quick_start.events(ORDERS, ids[0], 2)
    found = [(i, event["Order_Number__c"], event["Has_Shipped__c"]) for i, event in events]
    assert found == [(ids[1], "101", True), (ids[2], "102", True)]
