"""Bayeux behaviour that time, sockets or logins decide: holds, windows, lost peers, cookies, limits, restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bayeux import PATH, Dialler, Poller
from tests.running import Rest
from tidewire.testing import ServerProcess

HOLD_S = 1.0
WINDOW_S = 5.0


@pytest.fixture(scope="module")
def quick_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with short holds."""
    options = ["--bayeux-hold-s", str(HOLD_S)]
    with ServerProcess(tmp_path_factory.mktemp("quick") / "data", options=options) as process:
        yield process


@pytest.fixture
def forgetful_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a window so short that a client on a busy machine may miss it."""
    with ServerProcess(tmp_path / "data", options=["--bayeux-reconnect-s", str(WINDOW_S)]) as process:
        yield process


@pytest.fixture
def poller(quick_server: ServerProcess, dial: Dialler) -> Poller:
    return Poller(dial.plain(quick_server), quick_server.login())


def test_held_connect_is_answered_empty_when_its_time_is_up(poller: Poller) -> None:
    poller.open()
    begun = time.monotonic()
    poller.connect()
    (reply,) = poller.receive()
    assert reply == {
        "clientId": poller.client_id,
        "channel": "/meta/connect",
        "id": "poll",
        "successful": True,
    }
    assert time.monotonic() - begun >= 0.9 * HOLD_S  # timers count in whole milliseconds


def test_client_that_stays_away_is_forgotten(
    forgetful_server: ServerProcess, poller: Poller, dial: Dialler
) -> None:
    away = Poller(dial.plain(forgetful_server), forgetful_server.login())
    away.open()
    # Polls on another server pass the time: six whole holds are longer than one window.
    poller.open()
    for _ in range(7):
        poller.connect()
        assert poller.receive()[-1]["successful"]
    away.connect()
    (reply,) = away.receive()
    assert reply["error"] == "403::Unknown client"
    assert reply["advice"] == {"reconnect": "handshake", "interval": 0}


def test_event_during_a_lost_connection_waits_for_the_next_connect(
    quick_server: ServerProcess, poller: Poller
) -> None:
    rest = Rest(quick_server.http, quick_server.login())
    poller.open("/data/AccountChangeEvent")
    poller.connect()
    poller.connection.close()
    account = rest.create("Account", {"Name": "Lost And Found"})
    poller.connect()
    messages = poller.receive()
    rest.close()
    assert [m["channel"] for m in messages] == ["/data/AccountChangeEvent", "/meta/connect"]
    assert messages[0]["data"]["payload"]["ChangeEventHeader"]["recordIds"] == [account]


def test_logout_answers_the_held_connect_at_once(server: ServerProcess, dial: Dialler) -> None:
    token = server.login()
    poller = Poller(dial.plain(server), token)
    poller.open("/data/AccountChangeEvent")
    poller.connect()
    dial.revoke(server, token)
    (reply,) = poller.receive()  # waits for less than a hold
    assert reply == {
        "clientId": poller.client_id,
        "advice": {"reconnect": "none", "interval": 0},
        "channel": "/meta/connect",
        "id": "poll",
        "error": "401::Authentication invalid",
        "successful": False,
    }
    poller.connect()
    assert poller.receive()[0]["error"] == "401::Authentication invalid"


def test_new_token_of_the_same_user_keeps_the_subscriptions(
    server: ServerProcess, rest: Rest, dial: Dialler
) -> None:
    old = server.login()
    poller = Poller(dial.plain(server), old)
    poller.open("/data/AccountChangeEvent")
    renewed = Poller(dial.plain(server), server.login())
    renewed.client_id = poller.client_id
    assert renewed.ask({"channel": "/meta/subscribe", "subscription": "/data/AccountChangeEvent"})[0][
        "successful"
    ]
    dial.revoke(server, old)
    account = rest.create("Account", {"Name": "Renewed"})
    seen: list[str] = []
    while account not in seen:
        renewed.connect()
        messages = renewed.receive()
        assert messages[-1]["successful"], messages
        seen += [m["data"]["payload"]["ChangeEventHeader"]["recordIds"][0] for m in messages[:-1]]


@pytest.mark.parametrize("size, status", [(32_768, 200), (32_769, 413)])
def test_body_of_the_limit_is_read_and_one_byte_more_is_refused(
    server: ServerProcess, dial: Dialler, dev_token: str, size: int, status: int
) -> None:
    body = json.dumps([{"channel": "/meta/connect", "id": ""}])
    body = body.replace('"id": ""', f'"id": "{"x" * (size - len(body))}"')
    assert len(body) == size
    connection = dial.plain(server)
    connection.request("POST", PATH, body, {"Authorization": dev_token, "Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    assert response.status == status
    assert (answer == b"Maximum Request Size Exceeded\n") is (status == 413)


def test_websocket_offer_is_declined_quickly(server: ServerProcess, dial: Dialler) -> None:
    connection = dial.plain(server)
    connection.request("GET", PATH, headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    response = connection.getresponse()
    response.read()
    assert response.status == 405
    assert response.headers["Allow"] == "POST"


def test_cookie_is_set_once_and_is_secure_only_under_tls(server: ServerProcess, dial: Dialler) -> None:
    token = server.login()
    plain = Poller(dial.plain(server), token)
    plain.open()
    assert plain.cookie.startswith("BAYEUX_BROWSER=")
    assert plain.cookie.endswith("; Path=/cometd/; HttpOnly")
    returning = Poller(dial.plain(server), token, plain.cookie.split(";")[0])
    returning.open()
    assert returning.cookie == ""
    secure = Poller(dial.secure(server), token)
    secure.open()
    assert secure.cookie.endswith("; Path=/cometd/; HttpOnly; Secure")


def test_strict_server_wants_the_cookie_back(tmp_path: Path, dial: Dialler) -> None:
    with ServerProcess(tmp_path / "data", options=["--bayeux-require-cookie"]) as strict:
        token = strict.login()
        careless = Poller(dial.plain(strict), token)
        (reply,) = careless.ask({"channel": "/meta/handshake"})
        careless.client_id = reply["clientId"]
        careless.connect()
        (reply,) = careless.receive()
        assert reply["error"] == (
            f"400::Client {careless.client_id} has established a session, but no BAYEUX_BROWSER cookie present"
        )
        cookie = careless.cookie.split(";")[0]
        careful = Poller(dial.plain(strict), token, cookie)
        careful.client_id = careless.client_id
        careful.connect()
        assert careful.receive()[0]["successful"]
        foreign = Poller(dial.plain(strict), token, "BAYEUX_BROWSER=somebodyelse1")
        foreign.client_id = careless.client_id
        foreign.connect()
        assert foreign.receive()[0]["error"] == "403::Unknown client"


def test_stopping_server_answers_held_connects_with_retry(fresh_server: ServerProcess, dial: Dialler) -> None:
    poller = Poller(dial.plain(fresh_server), fresh_server.login())
    poller.open("/data/AccountChangeEvent")
    poller.connect()
    # A round trip on another connection: the held connect was sent before it.
    Poller(dial.plain(fresh_server), fresh_server.login()).open()
    fresh_server.stop()
    (reply,) = poller.receive()
    assert reply["successful"]
    assert reply["advice"] == {"reconnect": "retry", "interval": 0}


def test_large_replay_is_paged_over_several_replies_without_gap_or_repeat(
    fresh_server: ServerProcess, dial: Dialler
) -> None:
    token = fresh_server.login()
    rest = Rest(fresh_server.http, token)
    made = [rest.create("Account", {"Name": f"Paged {i}"}) for i in range(1100)]
    rest.close()
    poller = Poller(dial.plain(fresh_server), token)
    poller.open()
    replay = {"replay": {"/data/AccountChangeEvent": -2}}
    message = {"channel": "/meta/subscribe", "subscription": "/data/AccountChangeEvent", "ext": replay}
    assert poller.ask(message)[0]["successful"]
    seen: list[str] = []
    positions: list[int] = []
    while len(seen) < len(made):
        poller.connect()
        events = poller.receive()[:-1]
        assert len(events) <= 1000
        for event in events:
            seen += event["data"]["payload"]["ChangeEventHeader"]["recordIds"]
            positions.append(event["data"]["event"]["replayId"])
    assert seen == made
    assert positions == sorted(set(positions))


def test_long_replay_is_paged_by_bytes(server: ServerProcess, rest: Rest, dial: Dialler) -> None:
    query = "SELECT Id, Name, Description FROM Account WHERE Name LIKE 'Heavy %'"
    rest.create("PushTopic", {"Name": "HeavyReplay", "Query": query, "ApiVersion": 60.0})
    made = [rest.create("Account", {"Name": f"Heavy {i}", "Description": "x" * 30_000}) for i in range(40)]
    poller = Poller(dial.plain(server), server.login())
    poller.open()
    assert poller.subscribe("/topic/HeavyReplay", ext={"replay": {"/topic/HeavyReplay": -2}})["successful"]
    seen: list[str] = []
    replies = 0
    while len(seen) < len(made):
        events = poller.poll()
        assert sum(len(json.dumps(event)) for event in events) < 600_000
        seen += [event["data"]["sobject"]["Id"] for event in events]
        replies += 1
    assert seen == made
    assert replies > 1


@pytest.mark.parametrize(
    "body",
    [
        "[" * 5000,
        '{"channel":',
        '[{"channel":"/meta/connect"},null]',
        "\ud800".encode("utf-8", "surrogatepass"),
        '{"channel":"/meta/connect","id":' + "[" * 2000 + "]" * 2000 + "}",
    ],
    ids=["nested", "cut short", "null", "no text", "deep id"],
)
def test_malformed_post_is_refused_and_the_connection_goes_on(
    server: ServerProcess, dial: Dialler, dev_token: str, body: str | bytes
) -> None:
    poller = Poller(dial.plain(server), dev_token)
    headers = {"Authorization": f"Bearer {dev_token}", "Content-Type": "application/json"}
    poller.connection.request("POST", PATH, body, headers)
    response = poller.connection.getresponse()
    response.read()
    assert response.status == 400
    assert poller.shake_hands()["successful"]


def test_messages_out_of_sequence_are_answered_one_by_one(server: ServerProcess, dial: Dialler) -> None:
    poller = Poller(dial.plain(server), server.login())
    replies = poller.ask(
        {"channel": "/meta/connect", "connectionType": "long-polling", "id": 1},
        {"channel": "/meta/unsubscribe", "subscription": "/topic/X", "id": 2},
        {"channel": "/meta/disconnect", "id": 3},
        {"channel": "/topic/X", "data": {}, "id": 4},
        {"channel": "/meta/subscribe", "subscription": "/topic/X", "clientId": "0", "id": 5},
    )
    assert [(reply["id"], reply["successful"]) for reply in replies] == [(n, False) for n in range(1, 6)]
    no_handshake = "403::Client has not completed handshake"
    assert [reply["error"] for reply in replies] == [no_handshake] * 4 + ["403::Unknown client"]


def test_slow_headers_and_bodies_hold_no_session_and_block_nobody(
    server: ServerProcess, dial: Dialler, dev_token: str
) -> None:
    for index in range(50):
        connection = dial.plain(server)
        connection.putrequest("POST", PATH)
        connection.putheader("Authorization", f"Bearer {dev_token}")
        connection.putheader("Content-Length", "32768")
        connection.endheaders(b"[" if index % 2 else None)
    poller = Poller(dial.plain(server), dev_token)
    poller.open("/data/AccountChangeEvent")
    assert poller.ask({"channel": "/meta/disconnect"})[0]["successful"]
