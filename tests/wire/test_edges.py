"""A server whose sockets belong to edge processes: clients cannot tell, and the death of one costs them a reconnect."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from tests.edges import CHANGES, PATH, WAIT_S, Client, edges_of, record_ids, until, wait_ended
from tests.running import API, InDoubt, Rest, call_metadata, read_topic
from tidewire.errors import InternalError
from tidewire.testing import READER_USERNAME, ServerProcess
from tidewire.testing.process import choose_ports


@pytest.fixture(scope="module")
def edged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two edges."""
    data = tmp_path_factory.mktemp("edged") / "data"
    with ServerProcess(data, options=["--edges", "2", "--bayeux-hold-s", "5"]) as process:
        yield process


@pytest.fixture
def edged_rest(edged: ServerProcess) -> Iterator[Rest]:
    rest = Rest(edged.http, edged.login())
    yield rest
    rest.close()


def test_client_whose_requests_reach_both_edges_keeps_its_session(
    edged: ServerProcess, edged_rest: Rest
) -> None:
    clients = [Client(edged, edged.login()) for _ in range(4)]
    for client in clients:
        client.open()
    for number in range(5):
        account = edged_rest.create("Account", {"Name": f"Roving {number}"})
        for client in clients:
            assert record_ids(client.next_events()) == [account]


def test_custom_channel_is_enriched_and_filtered_through_an_edge(
    edged: ServerProcess, edged_rest: Rest
) -> None:
    document = {
        "channels": {"Edged__chn": {"label": "Edged", "kind": "data"}},
        "channel_members": {
            "Edged_Lead": {
                "channel": "Edged__chn",
                "event": "LeadChangeEvent",
                "enriched": ["Company"],
                "filter": "Address.City = 'Kiel'",
            }
        },
    }
    edged_rest.call("POST", "/services/tidewire/v1/apply", document)
    client = Client(edged, edged.login())
    client.open()
    (reply,) = client.ask(channel="/meta/subscribe", subscription="/data/Edged__chn")
    assert reply["successful"], reply
    lead = edged_rest.create("Lead", {"LastName": "Edge", "Company": "Rim"})
    for city in ("Ulm", "Kiel"):
        edged_rest.call("PATCH", f"{API}/sobjects/Lead/{lead}", {"City": city})
    (data,) = client.next_events()
    assert (data["payload"]["Address"], data["payload"]["Company"]) == ({"City": "Kiel"}, "Rim")


def test_client_id_of_nobody_is_refused_whichever_edge_it_names(edged: ServerProcess) -> None:
    client = Client(edged, edged.login())
    for first in "01z":
        client.client_id = first + "x" * 32
        (reply,) = client.connect()
        assert reply["error"] == "403::Unknown client"


def test_held_connect_on_another_edge_is_answered_when_its_session_ends(edged: ServerProcess) -> None:
    token = edged.login()
    clients = [Client(edged, token) for _ in range(4)]
    for client in clients:
        client.open()
    address = urlsplit(edged.http).netloc
    held = []
    for client in clients:
        connection = HTTPConnection(address, timeout=WAIT_S)
        body = {"channel": "/meta/connect", "connectionType": "long-polling", "clientId": client.client_id}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", PATH, json.dumps([body]), headers)
        held.append(connection)
    assert requests.post(f"{edged.http}/services/oauth2/revoke", data={"token": token}, timeout=120).ok
    for connection in held:
        (reply,) = json.loads(connection.getresponse().read())
        connection.close()
        assert reply["error"].startswith("401::")


def test_grpc_and_bayeux_see_what_rest_wrote(edged: ServerProcess, edged_rest: Rest) -> None:
    client = Client(edged, edged.login())
    client.open()
    account = edged_rest.create("Account", {"Name": "Seen by all"})
    (event,) = client.next_events()
    metadata = call_metadata(edged.login(), edged.http, edged.org_id)
    seen = read_topic(edged.grpc, metadata, CHANGES, lambda e: e.header["recordIds"] == [account])
    assert seen[-1].replay_id == event["event"]["replayId"]


def test_subscriptions_of_all_edges_are_told_with_their_lag(edged: ServerProcess, edged_rest: Rest) -> None:
    client = Client(edged, edged.login())
    client.open()
    shown = client.client_id[:8]

    def lags() -> list[int]:
        streams = edged_rest.call("GET", "/services/tidewire/v1/status")["streams"]
        return [s["lag"] for s in streams if (s["protocol"], s["client_id"]) == ("bayeux", shown)]

    until(lambda: lags() == [0])
    account = edged_rest.create("Account", {"Name": "Not yet fetched"})
    until(lambda: lags()[0] > 0)
    assert record_ids(client.next_events()) == [account]
    until(lambda: lags() == [0])

    status = edged_rest.call("GET", "/services/tidewire/v1/status")
    assert status["sessions"]["bayeux"] >= 1
    assert status["delivered"]["change"] >= 1
    (changes,) = [family for family in status["log"] if family["family"] == "change"]
    assert changes["is_counted"]
    assert changes["events"] >= 1
    assert client.client_id not in json.dumps(status)


def test_tls_and_compression_are_the_edges(edged: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {edged.login()}"}
    url = f"{edged.https}{API}/sobjects/Account/describe"
    answer = requests.get(url, headers=headers, timeout=120, verify=str(edged.ca_path))
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.json()["name"] == "Account"


def test_upload_and_result_larger_than_any_buffer_cross_whole(edged: ServerProcess, edged_rest: Rest) -> None:
    jobs = f"{API}/jobs/ingest"
    job = edged_rest.call(
        "POST", jobs, {"object": "Contact", "operation": "insert", "contentType": "CSV", "lineEnding": "LF"}
    )
    rows = "".join(f"Crossing {number},{'x' * 200}\n" for number in range(8_000))
    headers = {"Authorization": f"Bearer {edged.login()}"}
    at = f"{edged.http}{jobs}/{job['id']}"
    body = f"LastName,Description\n{rows}".encode()
    put = requests.put(f"{at}/batches", body, headers={**headers, "Content-Type": "text/csv"}, timeout=120)
    assert put.status_code == 201, put.text
    edged_rest.call("PATCH", f"{jobs}/{job['id']}", {"state": "UploadComplete"})
    until(lambda: edged_rest.call("GET", f"{jobs}/{job['id']}")["state"] == "JobComplete")
    results = requests.get(f"{at}/successfulResults", headers=headers, timeout=120)
    assert results.text.count("Crossing ") == 8_000
    # Whoever leaves in the middle costs nobody anything.
    with requests.get(f"{at}/successfulResults", headers=headers, timeout=120, stream=True) as half:
        assert half.raw.read(1_000)
    assert requests.head(f"{at}/successfulResults", headers=headers, timeout=120).status_code == 200
    assert edged_rest.call("GET", f"{jobs}/{job['id']}")["numberRecordsProcessed"] == 8_000


def test_https_required_holds_for_bayeux_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", options=["--edges", "1"]) as server:
        token = server.login()
        headers = {"Authorization": f"Bearer {token}"}
        wanted = {"settings": {"https_required": True}}
        apply = requests.post(
            f"{server.http}/services/tidewire/v1/apply", json=wanted, headers=headers, timeout=120
        )
        assert apply.ok, apply.text
        handshake = [{"channel": "/meta/handshake", "supportedConnectionTypes": ["long-polling"]}]
        answer = requests.post(server.http + PATH, json=handshake, headers=headers, timeout=120)
        assert (answer.status_code, "HTTPS_REQUIRED" in answer.text) == (403, True)


def test_second_server_cannot_share_the_ports(edged: ServerProcess, tmp_path: Path) -> None:
    second = ServerProcess(
        tmp_path / "data", options=["--edges", "1", "--grpc", edged.grpc.replace("localhost", "127.0.0.1")]
    )
    with pytest.raises(InternalError, match="cannot listen"):
        second.start()


def test_edge_starts_whatever_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tidewire").mkdir()
    (tmp_path / "tidewire" / "__init__.py").write_text("raise SystemExit('another tidewire')")
    monkeypatch.chdir(tmp_path)
    program = ("-P", "-m", "tidewire.cli", "serve")
    with ServerProcess(tmp_path / "data", options=["--edges", "1"], program=program) as server:
        assert server.login()


def test_clients_of_all_edges_count_together(tmp_path: Path) -> None:
    options = ["--edges", "2", "--bayeux-clients", "4", "--bayeux-clients-per-user", "3"]
    handshake = {"channel": "/meta/handshake", "supportedConnectionTypes": ["long-polling"]}
    with ServerProcess(tmp_path / "data", options=options) as server:
        token, reader = server.login(), server.login(READER_USERNAME)
        # Each ends another one of the user's, or is refused if those are on the other edge.
        for _ in range(10):
            Client(server, token).ask(**handshake)
        # What one edge has ended may still count when another asks.
        until(lambda: bool(Client(server, reader).ask(**handshake)[0]["successful"]))
        (second,) = Client(server, reader).ask(**handshake)
    assert second["ext"]["sfdc"]["failureReason"].startswith("403::To protect all customers")


@pytest.mark.crash
def test_edges_that_die_are_replaced_and_clients_resume_without_loss(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", options=["--edges", "2"]) as server:
        rest = Rest(server.http, server.login())
        client = Client(server, server.login())
        client.open()
        written: list[str] = []
        seen: list[str] = []
        replay_id = 0
        for number in range(3):
            written.append(rest.create("Account", {"Name": f"Before {number}"}))
            for event in client.next_events():
                seen += record_ids([event])
                replay_id = event["event"]["replayId"]
            before = edges_of(server)
            assert len(before) == 2
            killed = before[: 1 + number % 2]
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            while True:
                try:
                    written.append(rest.create("Account", {"Name": f"Meanwhile {number}"}))
                    break
                except InDoubt:
                    continue  # not sent: the connection was the dead edge's
            for pid in killed:
                wait_ended(pid)  # or it would still be counted
            until(lambda: len(edges_of(server)) == 2)
            while True:
                try:
                    client.open(replay_id)
                    break
                except (OSError, HTTPException, AssertionError):
                    continue
        while len(seen) < len(written):
            seen += record_ids(client.next_events())
        rest.close()
        found = Rest(server.http, server.login())
        stored = [r["Id"] for r in found.query("SELECT Id FROM Account WHERE Name LIKE 'Before%'")]
        found.close()
        assert set(stored) <= set(seen)
        assert seen == written
        server.stop()


@pytest.mark.crash
def test_edges_end_when_the_core_is_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", options=["--edges", "2"]) as server:
        pids = edges_of(server)
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not any(_is_alive(pid) for pid in pids))
        server.restart()
        assert server.login()


def test_stopping_server_answers_held_connects_with_retry(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", options=["--edges", "2"]) as server:
        token = server.login()
        client = Client(server, token)
        client.open()
        body = {"channel": "/meta/connect", "connectionType": "long-polling", "clientId": client.client_id}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connections = [HTTPConnection(urlsplit(server.http).netloc, timeout=WAIT_S) for _ in range(2)]
        for connection in connections:
            connection.request("POST", PATH, json.dumps([body]), headers)
        # A newer connect sends the older one away: whichever is answered, the other is held by now.
        answered, _, _ = select.select([c.sock for c in connections], [], [], WAIT_S)
        (older,) = (c for c in connections if c.sock in answered)
        (held,) = (c for c in connections if c is not older)
        assert older.getresponse().status == 408
        os.kill(server.pid, signal.SIGTERM)
        (reply,) = json.loads(held.getresponse().read())
        for connection in connections:
            connection.close()
        assert reply["advice"]["reconnect"] == "retry"
        wait_ended(server.pid)  # a second signal at the very end would find nobody who handles it
        server.stop()


def test_port_on_which_another_server_has_just_ended_is_free_for_edges(tmp_path: Path) -> None:
    (port,) = choose_ports(1)
    address = ("127.0.0.1", port)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
        # It chooses its other ports now, while this one is taken.
        server = ServerProcess(tmp_path / "data", options=["--edges", "1", "--grpc", f"127.0.0.1:{port}"])
        with socket.create_connection(address) as client:
            # Who closes first keeps the port in mind for a minute.
            listener.accept()[0].close()
            assert client.recv(1) == b""
    with server:
        assert server.grpc.endswith(f":{port}")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it goes while it is looked at
        return False
