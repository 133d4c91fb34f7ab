"""The test kit's server, in a thread and as a process: the same calls, the same effects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import tidewire
from tidewire.client.login import Credentials, login
from tidewire.client.pubsub_blocking import BlockingPubSubClient
from tidewire.errors import (
    ConfigInvalid,
    InternalError,
    ObjectUnknown,
    PlatformError,
    RequestRefused,
    SessionInvalid,
    ValueMalformed,
)
from tidewire.testing import LocalServer, ServerProcess

ACCOUNTS = "/data/AccountChangeEvent"
DAY_S = 86_400


@pytest.fixture(scope="module", params=["thread", "process"])
def shared(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    with LocalServer(form=request.param) as running:
        yield running


@pytest.fixture
def local(shared: LocalServer) -> LocalServer:
    shared.reset()
    return shared


def status_of(local: LocalServer, token: str, path: str = "/services/data/v67.0/limits") -> int:
    request = urllib.request.Request(local.http + path, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def connected(local: LocalServer) -> BlockingPubSubClient:
    signed_in = login(Credentials(local.http, local.username, local.password))
    return BlockingPubSubClient(
        local.grpc,
        token=signed_in.token,
        instance_url=signed_in.instance_url,
        org_id=local.org_id,
        tls_ca=None,
    )


def header_of(event: Any) -> dict[str, Any]:
    header: dict[str, Any] = event.data["payload"]["ChangeEventHeader"]
    return header


def test_reset_server_has_lost_records_types_and_events_and_kept_its_addresses(local: LocalServer) -> None:
    before = (local.http, local.grpc, local.org_id, local.token)
    local.create("Account", Name="gone")
    local.apply(events={"Lost__e": {"fields": {"Code__c": {"type": "Text", "length": 20}}}})
    local.publish_event("Lost__e", Code__c="1")
    local.reset()
    assert local.query("SELECT Id FROM Account") == []
    with pytest.raises(RequestRefused):
        local.publish_event("Lost__e", Code__c="2")
    with local.listen(ACCOUNTS, replay=-2) as events:
        local.create("Account", Name="first")
        assert events.wait_for().data["payload"]["Name"] == "first"
    assert (local.http, local.grpc, local.org_id, local.token) == before
    assert status_of(local, local.token) == 200


def test_reset_server_disconnects_a_stream_and_forgets_clock_faults_and_pause(local: LocalServer) -> None:
    local.freeze(1_900_000_000_000)
    local.fail_next(503, count=100)
    local.pause_delivery()
    local.reset()
    assert local.now_ms() != 1_900_000_000_000
    with local.listen(ACCOUNTS) as events:
        local.create("Account", Name="told")
        assert events.wait_for().data["payload"]["Name"] == "told"


def test_clock_advanced_past_the_timeout_ends_a_session_that_nobody_used(local: LocalServer) -> None:
    token = local.login()
    local.advance(3600)
    assert status_of(local, token) == 200
    local.advance(3 * 3600)
    assert status_of(local, token) == 401
    assert status_of(local, local.login()) == 200


def test_clock_advanced_past_retention_drops_events_and_moves_today(local: LocalServer) -> None:
    local.freeze()  # or the day may end here
    local.create("Account", Name="old")
    local.advance(4 * DAY_S)
    assert local.query("SELECT Id FROM Account WHERE CreatedDate = TODAY") == []
    with local.listen(ACCOUNTS, replay=-2) as events:
        local.create("Account", Name="new")
        assert events.wait_for().data["payload"]["Name"] == "new"
    assert len(local.query("SELECT Id FROM Account WHERE CreatedDate = TODAY")) == 1


def test_frozen_clock_gives_records_its_time(local: LocalServer) -> None:
    assert local.freeze(1_900_000_000_000) == 1_900_000_000_000
    local.create("Account", Name="frozen")
    (row,) = local.query("SELECT CreatedDate FROM Account")
    assert row["CreatedDate"] == "2030-03-17T17:46:40.000+0000"
    assert local.unfreeze() >= 1_900_000_000_000


def test_subscriber_connected_over_an_advance_stays_signed_in(local: LocalServer) -> None:
    with local.listen(ACCOUNTS) as events:
        local.advance(5 * 3600)
        local.create("Account", Name="later")
        assert events.wait_for().data["payload"]["Name"] == "later"


def test_expired_sessions_of_one_user_leave_others_alone(local: LocalServer) -> None:
    reader, admin = local.login("reader@tidewire.local"), local.login()
    assert local.expire_sessions("reader@tidewire.local") == 1
    assert (status_of(local, reader), status_of(local, admin)) == (401, 200)
    assert local.expire_sessions() >= 1
    assert status_of(local, admin) == 401
    assert local.query("SELECT Id FROM Account") == []  # the kit signs in again


def test_expired_session_ends_a_pubsub_stream(local: LocalServer) -> None:
    local.create("Account", Name="read")
    with connected(local) as client, client.subscribe(ACCOUNTS, "earliest") as stream:
        assert next(stream).events
        local.expire_sessions()
        with pytest.raises(SessionInvalid):
            list(stream)


def test_forced_gap_names_the_records_and_no_field(local: LocalServer) -> None:
    account = local.create("Account", Name="changed below")
    with local.listen(ACCOUNTS) as events:
        local.force_gap("Account", [account], "DELETE")
        event = events.wait_for()
    assert header_of(event)["changeType"] == "GAP_DELETE"
    assert header_of(event)["recordIds"] == [account]
    assert set(event.data["payload"]) == {"ChangeEventHeader"}


def test_forced_overflow_comes_as_one_event_without_record(local: LocalServer) -> None:
    with local.listen(ACCOUNTS) as events:
        local.force_overflow("Account")
        assert header_of(events.wait_for())["changeType"] == "GAP_OVERFLOW"


def test_limited_changes_overflow_in_a_transaction_of_the_users_own(local: LocalServer) -> None:
    local.limit_changes(1)
    with local.listen(ACCOUNTS) as events:
        records = [{"attributes": {"type": "Account"}, "Name": f"row {n}"} for n in range(3)]
        body = {"allOrNone": True, "records": records}
        local.rest.call("POST", "/services/data/v67.0/composite/sobjects", body)
        kinds = [header_of(events.wait_for())["changeType"] for _ in range(2)]
    assert kinds == ["CREATE", "GAP_OVERFLOW"]


@pytest.mark.parametrize("entity", ["Nothing__c", "User"])
def test_forced_event_of_an_object_that_is_not_captured_is_refused(local: LocalServer, entity: str) -> None:
    with pytest.raises(ObjectUnknown):
        local.force_overflow(entity)
    with pytest.raises(ObjectUnknown):
        local.force_gap(entity, ["001000000000001AAA"])


def test_forced_gap_of_what_is_no_id_or_no_change_is_refused(local: LocalServer) -> None:
    for ids, change in (([], "UPDATE"), (["x"], "UPDATE"), (["001000000000001AAA"], "PAINT")):
        with pytest.raises(ValueMalformed):
            local.force_gap("Account", ids, change)


def test_disconnected_subscriber_comes_back_and_misses_nothing(local: LocalServer) -> None:
    with local.listen(ACCOUNTS) as events:
        local.create("Account", Name="one")
        events.wait_for()
        local.disconnect()
        local.create("Account", Name="two")
        assert events.wait_for().data["payload"]["Name"] == "two"


def test_disconnected_pubsub_stream_ends_with_an_error_that_may_be_tried_again(local: LocalServer) -> None:
    local.create("Account", Name="read")
    with connected(local) as client, client.subscribe(ACCOUNTS, "earliest") as stream:
        assert next(stream).events
        local.disconnect()
        with pytest.raises(PlatformError) as raised:
            list(stream)
    assert raised.value.retryable


def test_failed_requests_are_the_next_of_their_path_and_no_others(local: LocalServer) -> None:
    local.fail_next(503, count=2, path="/services/data")
    assert status_of(local, local.token, "/services/oauth2/userinfo") == 200
    statuses = [status_of(local, local.token) for _ in range(3)]
    assert statuses == [503, 503, 200]


def test_failed_pubsub_call_has_the_status_asked_for(local: LocalServer) -> None:
    local.fail_next("RESOURCE_EXHAUSTED", message="slow down")
    metadata = (("accesstoken", local.token), ("instanceurl", local.http), ("tenantid", local.org_id))
    with grpc.insecure_channel(local.grpc) as channel:
        get_topic = channel.unary_unary("/eventbus.v1.PubSub/GetTopic")
        with pytest.raises(grpc.RpcError) as raised:
            get_topic(b"", metadata=metadata, timeout=60)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert raised.value.details() == "slow down"


@pytest.mark.parametrize("status", [200, 99, "OK", "MAYBE"])
def test_failure_with_a_status_that_is_none_is_refused(local: LocalServer, status: int | str) -> None:
    with pytest.raises(ValueMalformed):
        local.fail_next(status)


@pytest.mark.parametrize("at_ms", [-1, 10**15])
def test_freezing_at_a_time_that_no_date_can_tell_is_refused(local: LocalServer, at_ms: int) -> None:
    with pytest.raises(ValueMalformed):
        local.freeze(at_ms)


def test_paused_delivery_holds_events_until_it_is_resumed(local: LocalServer) -> None:
    with local.listen(ACCOUNTS) as events, local.listen("/data/ContactChangeEvent") as contacts:
        local.create("Contact", LastName="before")
        contacts.wait_for()
        local.pause_delivery()
        local.create("Account", Name="held")
        local.create("Contact", LastName="held")
        assert (events.events, len(contacts.events)) == ([], 1)
        local.resume_delivery()
        assert events.wait_for().data["payload"]["Name"] == "held"
        assert contacts.wait_for().data["payload"]["Name"]["LastName"] == "held"


def test_event_that_does_not_come_is_an_assertion_that_tells_what_came(local: LocalServer) -> None:
    with local.listen(ACCOUNTS) as events:
        local.create("Account", Name="another")
        events.wait_for()
        with pytest.raises(AssertionError, match="another"):
            events.wait_for(timeout_s=0)


def test_listening_to_a_channel_that_is_not_there_is_refused(local: LocalServer) -> None:
    with pytest.raises(PlatformError), local.listen("/topic/NoSuchTopic"):
        pass


def test_control_channel_without_its_secret_is_not_found(local: LocalServer) -> None:
    address = local.control.rsplit("/", 1)[0]
    for url in (f"{address}/reset", f"{address}/guess/reset"):
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(url, data=b"{}", timeout=60)
        assert raised.value.code == 404
        raised.value.close()


@pytest.mark.parametrize(
    "name, body",
    [
        ("advance", b"{"),
        ("advance", b"[]"),
        ("advance", b"{}"),
        ("advance", b'{"seconds": "1"}'),
        ("advance", b'{"seconds": -1}'),
        ("advance", b'{"seconds": 1, "more": 2}'),
        ("advance", b'{"seconds": true}'),
        ("close", b"{}"),
    ],
)
def test_control_call_that_is_malformed_is_refused_with_a_reason(
    local: LocalServer, name: str, body: bytes
) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{local.control}/{name}", data=body, timeout=60)
    with raised.value as answer:
        assert answer.code == 400
        assert json.loads(answer.read())["message"]


def test_server_in_a_thread_leaves_neither_thread_nor_files(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that this thread starts, and that these start: the shared server may start some of its own meanwhile.
    own = [threading.current_thread()]
    start = threading.Thread.start

    def note_and_start(thread: threading.Thread) -> None:
        if threading.current_thread() in own:
            own.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note_and_start)
    server = LocalServer().start()
    data = server.ca_path.parents[1]
    assert data.is_dir()
    server.stop()
    server.stop()
    assert not data.exists()
    assert len(own) > 2
    assert {each.name for each in own[1:] if each.is_alive() and not each.daemon} == set()
    with pytest.raises(InternalError):
        server.reset()


@pytest.mark.parametrize("settings", [{"data": "x"}, {"edges": 2}, {"nothing": 1}, {"form": "cloud"}])
def test_settings_that_the_kit_cannot_take_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid):
        LocalServer(**settings)


@pytest.mark.parametrize(
    "flags, reason",
    [(("--data", "other"), "is not empty"), (("--data", "new", "--edges", "2"), "no edges")],
)
def test_process_that_could_not_be_reset_is_refused_and_touches_nothing(
    tmp_path: Path, flags: tuple[str, ...], reason: str
) -> None:
    kept = tmp_path / "other" / "org.db"
    kept.parent.mkdir()
    kept.write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "tidewire.testing", *flags],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(tidewire.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert reason in done.stderr
    assert [path.read_text() for path in kept.parent.iterdir()] == ["mine"]


def test_ordinary_server_offers_no_control(server: ServerProcess) -> None:
    assert server.ready["event"] == "ready"
    assert "control" not in server.ready


def test_delivery_paused_over_a_disconnect_stays_paused(local: LocalServer) -> None:
    with local.listen(ACCOUNTS) as events:
        local.pause_delivery()
        local.disconnect()
        local.create("Account", Name="held")
        with local.listen(ACCOUNTS, replay=-2) as others:
            assert (events.events, others.events) == ([], [])
            local.resume_delivery()
            assert others.wait_for().data["payload"]["Name"] == "held"
