"""Requests of a managed subscription, and the metadata keys of our own."""

from __future__ import annotations

import pytest

from tidewire.errors import (
    BodyMalformed,
    ChannelInvalid,
    DemandInvalid,
    LimitExceeded,
    ProtocolViolation,
    SessionInvalid,
)
from tidewire.frontends.pubsub.headers import CallHeaders, parse_headers
from tidewire.frontends.pubsub.session import ManagedSession
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.frontends.pubsub.wire import render_replay_id
from tidewire.ids import make_id
from tidewire.schema.proto import pubsub_pb2 as pb

ORG = make_id("00D", 1)
ID = make_id("18x", 7)
METADATA = [("accesstoken", "t"), ("instanceurl", "https://x"), ("tenantid", ORG)]


def opened() -> ManagedSession:
    session = ManagedSession(PubSubSettings(), CallHeaders("t", ORG, ""), 0.0)
    assert session.start(pb.ManagedFetchRequest(subscription_id=ID[:15], num_requested=5), 0) == (ID, "")
    session.bind(ID, "Mine")
    return session


def commit(position: int, request_id: str = "c") -> pb.CommitReplayRequest:
    return pb.CommitReplayRequest(commit_request_id=request_id, replay_id=render_replay_id(position))


def test_commits_that_wait_are_answered_by_the_newest() -> None:
    session = opened()
    for number in (1, 2, 3):
        request = pb.ManagedFetchRequest(commit_replay_id_request=commit(number, f"c{number}"))
        session.receive(request, 77, 1.0)
    (taken,) = session.take_commits()
    assert (taken.request_id, taken.position, taken.received_ms) == ("c3", 3, 77)
    assert session.take_commits() == []
    assert (session.control.pending, session.control.error) == (5, None)


def test_commit_that_would_be_refused_takes_no_other_ones_place() -> None:
    session = opened()
    for wanted in (
        commit(6, "c1"),
        commit(7, "c2"),
        commit(5, "c3"),
        pb.CommitReplayRequest(commit_request_id="c4", replay_id=b"none"),
        commit(8, "c5"),
        commit(9, "c6"),
    ):
        session.receive(pb.ManagedFetchRequest(commit_replay_id_request=wanted), 0, 0.0)
    taken = session.take_commits()
    assert [(c.request_id, c.position) for c in taken] == [("c2", 7), ("c3", 5), ("c4", None), ("c6", 9)]


def test_call_with_too_many_commits_that_stand_for_no_other_ends() -> None:
    session = opened()
    for number in range(1_000, 0, -1):
        session.receive(pb.ManagedFetchRequest(commit_replay_id_request=commit(number)), 0, 0.0)
    before = session.control.error
    session.receive(pb.ManagedFetchRequest(commit_replay_id_request=commit(0)), 0, 0.0)
    assert (before, type(session.control.error)) == (None, LimitExceeded)
    assert len(session.take_commits()) == 1_000


def test_request_with_commit_and_demand_does_both() -> None:
    session = opened()
    session.receive(pb.ManagedFetchRequest(num_requested=2, commit_replay_id_request=commit(1)), 0, 0.0)
    assert session.control.pending == 7
    assert len(session.take_commits()) == 1


@pytest.mark.parametrize("named", [{"subscription_id": ID}, {"developer_name": "mine"}, {}])
def test_later_request_may_repeat_the_subscription(named: dict[str, str]) -> None:
    session = opened()
    session.receive(pb.ManagedFetchRequest(num_requested=1, **named), 0, 0.0)  # type: ignore[arg-type]
    assert session.control.error is None


def test_later_request_for_another_subscription_ends_the_call() -> None:
    session = opened()
    session.receive(pb.ManagedFetchRequest(num_requested=1, developer_name="Other"), 0, 0.0)
    assert isinstance(session.control.error, ProtocolViolation)


def test_later_request_for_nothing_ends_the_call() -> None:
    session = opened()
    session.receive(pb.ManagedFetchRequest(), 0, 0.0)
    assert isinstance(session.control.error, DemandInvalid)


def test_first_request_must_name_a_subscription() -> None:
    session = ManagedSession(PubSubSettings(), CallHeaders("t", ORG, ""), 0.0)
    with pytest.raises(ChannelInvalid):
        session.start(pb.ManagedFetchRequest(num_requested=1), 0)


def test_first_request_must_not_refresh_the_token() -> None:
    session = ManagedSession(PubSubSettings(), CallHeaders("t", ORG, ""), 0.0)
    with pytest.raises(SessionInvalid):
        session.start(pb.ManagedFetchRequest(developer_name="A", num_requested=1, auth_refresh="t"), 0)


def test_call_without_commits_ends_after_half_an_hour() -> None:
    session = opened()
    session.check_commits(1799.9)
    session.receive(pb.ManagedFetchRequest(commit_replay_id_request=commit(1)), 0, 1000.0)
    session.check_commits(2799.9)
    with pytest.raises(ProtocolViolation, match="1800 seconds"):
        session.check_commits(2800.0)
    assert session.wait_s(2790.0) <= 10.0


def test_headers_of_our_own_are_read() -> None:
    extra = [
        ("tidewire-replay-from-ms", "1700000000000"),
        ("tidewire-replay-policy", "Nearest"),
        ("tidewire-compression", "gzip"),
    ]
    found = parse_headers([*METADATA, *extra])
    assert (found.from_ms, found.replays_nearest, found.wants_gzip) == (1_700_000_000_000, True, True)


@pytest.mark.parametrize(
    "name, value",
    [
        ("tidewire-replay-from-ms", "yesterday"),
        ("tidewire-replay-from-ms", "1" * 16),
        ("tidewire-replay-policy", "closest"),
        ("tidewire-compression", "br"),
    ],
)
def test_headers_of_our_own_that_say_nothing_are_refused(name: str, value: str) -> None:
    with pytest.raises(BodyMalformed, match=name):
        parse_headers([*METADATA, (name, value)])
