"""Streaming clients by other people, unmodified: each watches a push topic, loses its server twice and comes back.

Records are written before, between and after the deaths. In the end each client has seen every notification that the
log holds, once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.watcher import Watcher
from tests.running import Rest
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "/topic/StreamWatch"
DEATHS = 2
_COME_BACK_S = 120.0


@dataclass(frozen=True, slots=True)
class Client:
    """A program of this folder, and what it wants for an address."""

    script: str
    path: str = "/cometd/59.0"


CLIENTS = {
    "cometd": Client("cometd_watch.mjs"),
    "faye": Client("faye_watch.mjs"),
    "jsforce": Client("jsforce_watch.mjs", ""),
    "aiosfstream": Client("aiosfstream_watch.py", ""),
    "java": Client("java/CometdWatch.java"),
}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own with the topic on it."""
    with ServerProcess(tmp_path / "data") as server:
        rest = Rest(server.http, server.login())
        query = "SELECT Id, Name, Phone FROM Account"
        rest.create("PushTopic", {"Name": "StreamWatch", "Query": query, "ApiVersion": 59.0})
        rest.close()
        yield server


def write(server: ServerProcess, token: str, mark: str) -> str:
    """Create, change and delete accounts; returns the id of the one created last."""
    rest = Rest(server.http, token)
    ids = [rest.create("Account", {"Name": f"{mark} {n}"}) for n in range(4)]
    rest.update("Account", ids[0], {"Phone": mark})
    rest.delete("Account", ids[1])
    last = rest.create("Account", {"Name": f"{mark} last"})
    rest.close()
    return last


def wait_seen(watcher: Watcher, record_id: str) -> None:
    """Wait until the client has seen the notification of a record."""
    watcher.wait_for(lambda lines: any(_is_about(line, record_id) for line in lines), _COME_BACK_S)


def _is_about(line: dict[str, Any], record_id: str) -> bool:
    return bool(line["kind"] == "event" and line["data"]["sobject"]["Id"] == record_id)


@pytest.mark.parametrize("name", CLIENTS)
def test_client_that_loses_its_server_resumes_without_loss_or_repeat(
    watched: ServerProcess, tmp_path: Path, name: str
) -> None:
    client = CLIENTS[name]
    token = watched.login()
    arguments = [watched.http + client.path, token, "-2", TOPIC]
    with Watcher(client.script, arguments, watched.ca_path, tmp_path / "client.log") as watcher:
        watcher.wait_subscribed(1, timeout_s=_COME_BACK_S)
        wait_seen(watcher, write(watched, token, "before"))
        for death in range(DEATHS):
            watched.kill()
            watched.start()
            # Most of this happens before the client has found out that there is a server again.
            wait_seen(watcher, write(watched, token, f"after {death}"))
        seen = watcher.events
    arguments = [watched.http + "/cometd/59.0", token, "-2", TOPIC]
    with Watcher("cometd_watch.mjs", arguments, watched.ca_path, tmp_path / "judge.log") as judge:
        judge.wait_for(
            lambda lines: len([x for x in lines if x["kind"] == "event"]) >= len(seen), _COME_BACK_S
        )
        kept = judge.events
    assert [event["replayId"] for event in seen] == [event["replayId"] for event in kept]
    assert [event["data"] for event in seen] == [event["data"] for event in kept]
    assert len(kept) == 7 * (1 + DEATHS)


@pytest.mark.parametrize("name", CLIENTS)
def test_client_that_subscribes_after_an_id_sees_only_what_follows_it(
    watched: ServerProcess, tmp_path: Path, name: str
) -> None:
    client = CLIENTS[name]
    token = watched.login()
    write(watched, token, "one")
    last = write(watched, token, "two")
    arguments = [watched.http + client.path, token, "-2", TOPIC]
    with Watcher(client.script, arguments, watched.ca_path, tmp_path / "all.log") as watcher:
        wait_seen(watcher, last)
        everything = watcher.events
    middle = everything[len(everything) // 2]["replayId"]
    arguments = [watched.http + client.path, token, str(middle), TOPIC]
    with Watcher(client.script, arguments, watched.ca_path, tmp_path / "rest.log") as watcher:
        wait_seen(watcher, last)
        assert watcher.events == everything[len(everything) // 2 + 1 :]
