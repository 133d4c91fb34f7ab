"""What npm cometd is offered beyond the original service: WebSocket, ack, kept sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.watcher import Watcher
from tests.running import Rest
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]

CHANNEL = "/data/AccountChangeEvent"


@pytest.fixture(scope="module")
def extra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with everything that must be asked for."""
    options = ["--bayeux-websocket", "--bayeux-durable-sessions"]
    with ServerProcess(tmp_path_factory.mktemp("extra") / "data", options=options) as process:
        yield process


def _watch(server: ServerProcess, directory: Path, *extras: str) -> Watcher:
    arguments = [f"{server.http}/cometd/62.0", server.login(), CHANNEL, *extras]
    watcher = Watcher("cometd_extras.mjs", arguments, server.ca_path, directory / "node.log")
    watcher.wait_subscribed(1)
    return watcher


def _names(watcher: Watcher) -> list[str]:
    return [event["data"]["payload"]["Name"] for event in watcher.events]


def _create(server: ServerProcess, names: list[str]) -> None:
    rest = Rest(server.http, server.login())
    for name in names:
        rest.create("Account", {"Name": name})
    rest.close()


def _wait_names(watcher: Watcher, names: list[str], timeout_s: float = 120.0) -> None:
    def has_all(lines: list[dict[str, Any]]) -> bool:
        seen = {x["data"]["payload"].get("Name") for x in lines if x["kind"] == "event"}
        return seen.issuperset(names)

    watcher.wait_for(has_all, timeout_s)


@pytest.mark.parametrize("extras", [("websocket",), ("websocket", "ack"), ("long-polling", "ack")])
def test_npm_cometd_receives_events_once_and_in_order(
    extra_server: ServerProcess, tmp_path: Path, extras: tuple[str, ...]
) -> None:
    names = [f"{'-'.join(extras)} {number}" for number in range(20)]
    with _watch(extra_server, tmp_path, *extras) as watcher:
        handshake = watcher.lines[0]
        assert handshake["transport"] == extras[0]
        assert handshake["ack"] is (True if "ack" in extras else None)
        _create(extra_server, names)
        _wait_names(watcher, names)
        assert _names(watcher) == names
        batches = [x["ack"] for x in watcher.lines if x["kind"] == "connect" and x["successful"]]
    assert batches == (list(range(1, len(batches) + 1)) if "ack" in extras else [None] * len(batches))


@pytest.mark.parametrize("extras", [("long-polling",), ("long-polling", "ack"), ("websocket",)])
def test_npm_cometd_session_survives_a_kill_without_handshake_or_loss(
    extra_server: ServerProcess, tmp_path: Path, extras: tuple[str, ...]
) -> None:
    kind = "-".join(extras)
    before = [f"before {kind} {number}" for number in range(5)]
    after = [f"after {kind} {number}" for number in range(5)]
    with _watch(extra_server, tmp_path, *extras) as watcher:
        _create(extra_server, before)
        _wait_names(watcher, before)
        extra_server.kill()
        extra_server.start()
        _create(extra_server, after)
        _wait_names(watcher, after, timeout_s=60)
        seen = [name for name in _names(watcher) if name in {*before, *after}]
        handshakes = [x for x in watcher.lines if x["kind"] == "handshake"]
    assert len(handshakes) == 1
    # What the last reply before the kill brought may have come again.
    assert list(dict.fromkeys(seen)) == [*before, *after]
    assert [name for name in seen if name in after] == after
