"""Subscribe, live: where it starts, how demand is counted, and what keeps a quiet stream alive."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tests.running import Rest
from tests.wire.pubsub.conftest import Peer, create_accounts, position
from tidewire.testing import ServerProcess

ACCOUNTS = "/data/AccountChangeEvent"
CONTACTS = "/data/ContactChangeEvent"


def record_ids(peer: Peer, events: list[Any]) -> list[str]:
    return [peer.decode(event)["ChangeEventHeader"]["recordIds"][0] for event in events]


def test_subscribe_at_latest_gets_only_what_comes_after(peer: Peer, rest: Rest) -> None:
    create_accounts(rest, 1)
    with peer.latest(ACCOUNTS) as feed:
        created = create_accounts(rest, 3)
        events = feed.events(3)
    assert record_ids(peer, events) == created
    positions = [position(event.replay_id) for event in events]
    assert positions == sorted(set(positions))


def test_subscribe_at_earliest_gets_what_came_before(peer: Peer, rest: Rest) -> None:
    (created,) = create_accounts(rest, 1)
    found: list[str] = []
    with peer.feed(("tidewire-max-requested", "10000")) as feed:
        feed.ask(10_000, topic_name=ACCOUNTS, replay_preset=peer.pb.EARLIEST)
        while created not in found:
            found += record_ids(peer, feed.next().events)
    assert found.count(created) == 1


@pytest.mark.parametrize("length", [8, 10])
def test_subscribe_after_a_replay_id_starts_strictly_after_it(peer: Peer, rest: Rest, length: int) -> None:
    with peer.latest(ACCOUNTS) as feed:
        created = create_accounts(rest, 3)
        first = feed.events(3)[0]
    with peer.feed() as feed:
        feed.ask(2, topic_name=ACCOUNTS, replay_preset=peer.pb.CUSTOM, replay_id=first.replay_id[:length])
        assert record_ids(peer, feed.events(2)) == created[1:]


def test_subscribe_after_the_latest_replay_id_of_a_keepalive_loses_nothing(peer: Peer, rest: Rest) -> None:
    with peer.feed(("tidewire-keepalive-ms", "50")) as feed:
        resume_at = feed.ask(1, topic_name=CONTACTS).next().latest_replay_id
    (created,) = create_accounts(rest, 1)
    with peer.feed() as feed:
        feed.ask(1, topic_name=ACCOUNTS, replay_preset=peer.pb.CUSTOM, replay_id=resume_at)
        assert record_ids(peer, feed.events(1)) == [created]


def test_demand_is_never_exceeded_and_pending_is_true(peer: Peer, rest: Rest) -> None:
    with peer.latest(ACCOUNTS, 2) as feed:
        created = create_accounts(rest, 3)
        got: list[str] = []
        while len(got) < 2:
            response = feed.next()
            got += record_ids(peer, response.events)
            assert response.pending_num_requested == 2 - len(got)
        assert got == created[:2]
        feed.ask(5)
        response = feed.next()
        while not response.events:
            response = feed.next()
    assert record_ids(peer, response.events) == created[2:]
    assert response.pending_num_requested == 4


def test_demand_of_several_requests_adds_up(peer: Peer, rest: Rest) -> None:
    with peer.latest(ACCOUNTS, 3) as feed:
        feed.ask(4, topic_name=ACCOUNTS, replay_preset=peer.pb.EARLIEST)
        delivered = pending = 0
        while delivered + pending != 7:
            assert delivered < 6
            create_accounts(rest, 1)
            response = feed.next()
            delivered += len(response.events)
            pending = response.pending_num_requested


@pytest.mark.parametrize("lifted, granted", [(None, 100), ("500", 500), ("50000", 10_000)])
def test_demand_is_capped(peer: Peer, lifted: str | None, granted: int) -> None:
    extra = [] if lifted is None else [("tidewire-max-requested", lifted)]
    with peer.feed(("tidewire-keepalive-ms", "50"), *extra) as feed:
        assert feed.ask(60_000, topic_name=ACCOUNTS).next().pending_num_requested == granted


def test_keepalive_tells_how_far_the_log_has_been_read(peer: Peer, rest: Rest) -> None:
    with peer.latest(ACCOUNTS) as accounts, peer.latest(CONTACTS) as contacts:
        create_accounts(rest, 1)
        event = accounts.events(1)[0]
        reached = 0
        while reached < position(event.replay_id):
            response = contacts.next()
            assert not response.events
            assert response.rpc_id
            reached = position(response.latest_replay_id)


def test_event_names_the_end_of_its_transaction(peer: Peer, rest: Rest) -> None:
    with peer.latest(ACCOUNTS) as feed:
        create_accounts(rest, 1)
        event = feed.events(1)[0]
    headers = {header.key: header.value for header in event.event.headers}
    assert int(headers["tidewire-tx-last"]) >= position(event.replay_id)
    assert event.event.id


def test_call_half_closed_ends_with_ok_when_served(peer: Peer, rest: Rest) -> None:
    with peer.latest(ACCOUNTS, 1) as feed:
        feed.half_close()
        create_accounts(rest, 1)
        assert len([event for response in feed.call for event in response.events]) == 1
        assert feed.call.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("service", ["PubSub", "PubSubAPIService", "EventBusAPIService"])
def test_subscribe_answers_under_every_name_of_the_service(peer: Peer, service: str) -> None:
    method = peer.channel.stream_stream(
        f"/eventbus.v1.{service}/Subscribe",
        peer.pb.FetchRequest.SerializeToString,
        peer.pb.FetchResponse.FromString,
    )
    request = peer.pb.FetchRequest(topic_name=ACCOUNTS, num_requested=1)
    call = method(iter([request]), metadata=[*peer.metadata, ("tidewire-keepalive-ms", "50")], timeout=120)
    assert next(call).pending_num_requested == 1
    call.cancel()


@pytest.mark.parametrize(
    "fields, status, code",
    [
        ({"num_requested": 0}, "INVALID_ARGUMENT", "subscription.fetch.requested.events.invalid"),
        ({"num_requested": -5}, "INVALID_ARGUMENT", "subscription.fetch.requested.events.invalid"),
        ({"topic_name": ""}, "INVALID_ARGUMENT", "topic.validation.empty"),
        ({"topic_name": "/event/No_Such__e"}, "NOT_FOUND", "topic.meta.permission"),
        ({"topic_name": "/data/NoSuchChangeEvent"}, "NOT_FOUND", "topic.meta.permission"),
        ({"topic_name": "Account"}, "NOT_FOUND", "topic.meta.permission"),
        ({"replay_preset": 2}, "INVALID_ARGUMENT", "subscription.fetch.replayid.validation.failed"),
        (
            {"replay_preset": 2, "replay_id": b"12345"},
            "INVALID_ARGUMENT",
            "subscription.fetch.replayid.corrupted",
        ),
        (
            {"replay_preset": 2, "replay_id": b"\x3f" * 8},
            "INVALID_ARGUMENT",
            "subscription.fetch.replayid.corrupted",
        ),
    ],
)
def test_first_request_that_is_wrong_is_refused(
    peer: Peer, fields: dict[str, Any], status: str, code: str
) -> None:
    request = {"topic_name": ACCOUNTS, "num_requested": 1, **fields}
    with peer.feed() as feed:
        feed.ask(request.pop("num_requested"), **request)
        got_status, got_code, trailers = feed.refusal()
    assert (got_status, got_code) == (status, code)
    assert trailers["type"] == "Subscribe"
    assert trailers["rpc-id"] in feed.call.details()
    assert "Traceback" not in feed.call.details()


@pytest.mark.parametrize(
    "count, fields, code",
    [
        (1, {"topic_name": CONTACTS}, "subscription.fetch.topic.mismatch"),
        (0, {}, "subscription.fetch.requested.events.invalid"),
    ],
)
def test_later_request_that_is_wrong_ends_the_call(
    peer: Peer, count: int, fields: dict[str, Any], code: str
) -> None:
    with peer.latest(ACCOUNTS) as feed:
        feed.ask(count, **fields)
        assert feed.refusal()[:2] == ("INVALID_ARGUMENT", code)


def test_revoked_session_ends_the_stream(peer: Peer, server: ServerProcess, rest: Rest) -> None:
    token = server.login()
    metadata = [(name, token if name == "accesstoken" else value) for name, value in peer.metadata]
    peer.metadata = metadata
    with peer.latest(ACCOUNTS) as feed:
        rest.call("POST", f"/services/oauth2/revoke?token={token}")
        assert feed.refusal()[:2] == ("UNAUTHENTICATED", "service.auth.error")
