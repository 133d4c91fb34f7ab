"""A server with an edition: who is refused when an allocation is used up, where, and what limits tell."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.bayeux import Dialler, Poller
from tests.running import Refused, Rest
from tidewire.testing import ServerProcess

CHANNEL = "/data/AccountChangeEvent"
CLIENTS = 20
WAIT_S = 120.0


@pytest.fixture
def free_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the smallest edition."""
    options = ["--edition", "free"]
    with ServerProcess(tmp_path_factory.mktemp("free") / "data", options=options) as process:
        yield process


def _limit(server: ServerProcess, version: str, name: str) -> tuple[int, int]:
    rest = Rest(server.http, server.login())
    row = rest.call("GET", f"/services/data/v{version}/limits")[name]
    rest.close()
    return row["Max"], row["Remaining"]


def _wait_limit(server: ServerProcess, version: str, name: str, remaining: int) -> None:
    """Edges report a few times a second."""
    rest = Rest(server.http, server.login())
    deadline = time.monotonic() + WAIT_S
    while (found := rest.call("GET", f"/services/data/v{version}/limits")[name]["Remaining"]) != remaining:
        assert time.monotonic() < deadline, found
    rest.close()


def test_handshake_beyond_the_allocation_is_denied_until_a_client_goes(
    free_server: ServerProcess, dial: Dialler
) -> None:
    token = free_server.login()
    pollers = [Poller(dial.plain(free_server), token) for _ in range(CLIENTS)]
    assert all(poller.shake_hands()["successful"] for poller in pollers)
    assert _limit(free_server, "62.0", "DurableStreamingApiConcurrentClients") == (CLIENTS, 0)
    late = Poller(dial.plain(free_server), token)
    reply = late.shake_hands(id="7")
    assert reply == {
        "ext": {
            "sfdc": {"failureReason": "403::Organization concurrent user limit exceeded"},
            "replay": True,
            "payload.format": True,
        },
        "advice": {"reconnect": "none"},
        "channel": "/meta/handshake",
        "id": "7",
        "error": "403::Handshake denied",
        "successful": False,
    }
    old = Poller(dial.plain(free_server), token, path="/cometd/36.0")
    assert old.shake_hands()["successful"]
    assert _limit(free_server, "36.0", "StreamingApiConcurrentClients") == (CLIENTS, CLIENTS - 1)
    pollers[0].ask({"channel": "/meta/disconnect"})
    assert late.shake_hands()["successful"]


def test_push_topic_beyond_the_allocation_is_refused(free_server: ServerProcess) -> None:
    rest = Rest(free_server.http, free_server.login())
    ((active,),) = [
        (r["expr0"],) for r in rest.query("SELECT COUNT(Id) FROM PushTopic WHERE IsActive = true")
    ]
    for number in range(40 - active):
        rest.create(
            "PushTopic", {"Name": f"T{number}", "Query": "SELECT Id, Name FROM Lead", "ApiVersion": 62.0}
        )
    with pytest.raises(Refused) as refused:
        rest.create("PushTopic", {"Name": "Late", "Query": "SELECT Id, Name FROM Lead", "ApiVersion": 62.0})
    rest.close()
    assert refused.value.status == 403


def test_subscribe_after_the_last_event_of_the_day_is_refused_also_after_a_restart(
    free_server: ServerProcess, dial: Dialler
) -> None:
    token = free_server.login()
    pollers = [Poller(dial.plain(free_server), token) for _ in range(CLIENTS)]
    for poller in pollers:
        poller.open(CHANNEL)
    rest = Rest(free_server.http, token)
    for first in (0, 200, 400):
        records = [
            {"attributes": {"type": "Account"}, "Name": f"A{n}"} for n in range(first, min(first + 200, 500))
        ]
        rest.call("POST", "/services/data/v62.0/composite/sobjects", {"records": records})
    rest.close()
    for poller in pollers:
        seen = 0
        while seen < 500:
            seen += len(poller.poll())
        assert seen == 500
    _wait_limit(free_server, "62.0", "DailyDeliveredPlatformEvents", 0)
    pollers[0].ask({"channel": "/meta/disconnect"})
    late = Poller(dial.plain(free_server), token)
    late.shake_hands()
    refusal = "403::Organization total events daily limit exceeded"
    assert late.subscribe(CHANNEL)["error"] == refusal
    assert late.subscribe("/topic/Nope")["error"].startswith("400::The channel you requested")
    assert _limit(free_server, "62.0", "DailyDurableStreamingApiEvents") == (10_000, 10_000)
    assert _limit(free_server, "47.0", "MonthlyPlatformEvents") == (300_000, 290_000)
    free_server.stop()
    free_server.start()
    again = Poller(dial.plain(free_server), token)
    again.shake_hands()
    assert again.subscribe(CHANNEL)["error"] == refusal


def test_definition_that_captures_more_than_the_allocation_is_refused_whole(
    free_server: ServerProcess,
) -> None:
    rest = Rest(free_server.http, free_server.login())
    further = {"capture": ["Case", "Lead", "Campaign"]}  # beside the three of a development org
    with pytest.raises(Refused) as refused:
        rest.call("POST", "/services/tidewire/v1/apply", further)
    assert refused.value.status == 403
    (error,) = json.loads(refused.value.body)
    assert error["errorCode"] == "LIMIT_EXCEEDED"
    assert "entities selected for Change Data Capture, 5," in error["message"]
    rest.call("POST", "/services/tidewire/v1/apply", {"capture": ["Case", "Lead"]})
    rest.close()


def test_edition_that_nobody_knows_stops_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = ServerProcess(tmp_path_factory.mktemp("deluxe") / "data", options=["--edition", "deluxe"])
    with pytest.raises(Exception, match="edition must be one of"):
        server.start()
