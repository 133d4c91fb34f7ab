"""The true path: foreign clients write and watch while the server is killed again and again.

simple-salesforce writes over TLS; the npm CometD client watches a push topic and the change events; the npm
Pub/Sub client watches the same changes over gRPC. Each finds its own way back after every kill. In the end
each of them has seen every acknowledged change once, in order, and what they saw adds up to what a query
answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from tests.clients.forced import ForceRecords, connect_force
from tests.clients.watcher import Watcher
from tests.crash.ledger import Kind, Ledger
from tests.crash.trial import Trial
from tests.crash.verdict import MARKER_FIELD, find_violations
from tests.running import SeenEvent
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1200)]

PUSH_TOPIC = "/topic/AccountWatch"
CHANGES = "/data/AccountChangeEvent"
_CATCH_UP_S = 180.0
_SPARK_S = 300.0
_CHANGE_TYPES = {"created": "CREATE", "updated": "UPDATE", "deleted": "DELETE", "undeleted": "UNDELETE"}


def seen_notifications(lines: Iterable[dict[str, Any]]) -> list[SeenEvent]:
    """Push-topic notifications in the form of change events."""
    seen: list[SeenEvent] = []
    for line in lines:
        if line["channel"] == PUSH_TOPIC:
            record = line["data"]["sobject"]
            header = {
                "recordIds": [record["Id"]],
                "changeType": _CHANGE_TYPES[line["data"]["event"]["type"]],
            }
            payload = {"ChangeEventHeader": header, MARKER_FIELD: record.get(MARKER_FIELD)}
            seen.append(SeenEvent(line["replayId"], str(line["replayId"]), payload))
    return seen


def seen_changes(lines: Iterable[dict[str, Any]], *, is_bayeux: bool) -> list[SeenEvent]:
    """Change events as either client prints them."""
    return [
        SeenEvent(
            line["replayId"], str(line["replayId"]), line["data"]["payload"] if is_bayeux else line["data"]
        )
        for line in lines
        if line["channel"] == CHANGES
    ]


def outline(events: Iterable[SeenEvent]) -> list[tuple[int, str, tuple[str, ...], str]]:
    """What two clients of different protocols must agree on."""
    return [
        (e.replay_id, e.header["changeType"], tuple(e.header["recordIds"]), e.payload.get(MARKER_FIELD) or "")
        for e in events
    ]


@dataclass(frozen=True, slots=True)
class Journey:
    """What is left when the writing is over: the server, the promises it made, and what each client saw."""

    server: ServerProcess
    token: str
    ledger: Ledger
    by_push_topic: list[SeenEvent]
    by_cometd: list[SeenEvent]
    by_pubsub: list[SeenEvent]
    handshakes: int
    rows: list[dict[str, Any]]

    @property
    def records(self) -> dict[str, str]:
        """The marker of each living record."""
        return {row["Id"]: row[MARKER_FIELD] for row in self.rows}


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory, kills: int, seed: int) -> Iterator[Journey]:
    """The whole way, once: write and watch through `--kills` kills, then let everybody catch up."""
    folder = tmp_path_factory.mktemp("true-path")
    with ServerProcess(folder / "data") as server:
        yield travel(server, folder, kills, seed)


def travel(server: ServerProcess, folder: Path, kills: int, seed: int) -> Journey:
    """Start the clients, write through the kills, write a last record and wait until everybody has seen it."""
    token = server.login()
    force = connect_force(server.https, token, server.ca_path)
    admin = ForceRecords(force)
    query = f"SELECT Id, Name, {MARKER_FIELD} FROM Account"
    topic = {"Name": "AccountWatch", "Query": query, "ApiVersion": 62.0, "NotifyForFields": "All"}
    admin.create("PushTopic", topic)
    trial = Trial(
        server,
        seed,
        connect=lambda: ForceRecords(connect_force(server.https, token, server.ca_path)),
        writers=3,
    )
    cometd_arguments = [f"{server.https}/cometd/62.0", token, "-2", PUSH_TOPIC, CHANGES]
    pubsub_arguments = [server.grpc_tls, server.https, "-2", CHANGES, "user-supplied", token, server.org_id]
    with (
        Watcher("cometd_watch.mjs", cometd_arguments, server.ca_path, folder / "cometd.log") as cometd,
        Watcher("pubsub_watch.mjs", pubsub_arguments, server.ca_path, folder / "pubsub.log") as pubsub,
    ):
        cometd.wait_subscribed(2)

        def kill_while_watched() -> None:
            for watcher in (cometd, pubsub):
                watcher.wait_more_events(_CATCH_UP_S)
            trial.kill_at_random()

        trial.write_through(kills, kill_while_watched)
        last_id = admin.create("Account", {"Name": "the last one", MARKER_FIELD: "the last one"})
        trial.ledger.note(last_id, Kind.CREATE, "the last one", is_acknowledged=True)
        cometd.wait_for(lambda lines: sum(last_id in str(x) for x in lines) >= 2, _CATCH_UP_S)
        pubsub.wait_for(lambda lines: any(last_id in str(x) for x in lines), _CATCH_UP_S)
    rows = [
        {"Id": row["Id"], "Name": row["Name"], MARKER_FIELD: row[MARKER_FIELD]}
        for row in force.query_all(query)["records"]
    ]
    admin.close()
    return Journey(
        server,
        token,
        trial.ledger,
        by_push_topic=seen_notifications(cometd.events),
        by_cometd=seen_changes(cometd.events, is_bayeux=True),
        by_pubsub=seen_changes(pubsub.events, is_bayeux=False),
        handshakes=len([x for x in cometd.lines if x["kind"] == "handshake" and x["successful"]]),
        rows=rows,
    )


def test_cometd_client_on_a_push_topic_gets_every_acknowledged_change_once_in_order(
    journey: Journey,
) -> None:
    assert find_violations(journey.ledger, journey.by_push_topic, journey.records) == []


def test_cometd_client_on_change_events_gets_acknowledged_changes_once_in_order(
    journey: Journey,
) -> None:
    assert find_violations(journey.ledger, journey.by_cometd, journey.records) == []


def test_pubsub_client_sees_every_acknowledged_change_once_and_in_order(journey: Journey) -> None:
    assert find_violations(journey.ledger, journey.by_pubsub, journey.records) == []


def test_both_protocols_show_the_same_changes_under_the_same_replay_ids(journey: Journey) -> None:
    assert outline(journey.by_cometd) == outline(journey.by_pubsub)


def test_cometd_client_came_back_by_itself_after_every_kill(journey: Journey, kills: int) -> None:
    assert journey.handshakes >= 1 + kills


@pytest.mark.spark
def test_spark_replica_equals_the_answer_to_a_query(journey: Journey, tmp_path: Path) -> None:
    server = journey.server
    place = [str(tmp_path / "lake"), server.grpc_tls, str(server.ca_path), server.http]
    what = [journey.token, server.org_id, "Account", "Name", MARKER_FIELD]
    done = subprocess.run(
        [sys.executable, "-m", "tests.clients.replicate", *place, *what],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=_SPARK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    replicated = json.loads(done.stdout)
    assert sorted(replicated, key=itemgetter("Id")) == sorted(journey.rows, key=itemgetter("Id"))
