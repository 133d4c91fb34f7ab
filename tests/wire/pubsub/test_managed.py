"""Managed subscriptions, live, with and without edges: setup, positions, commits, one reader at a time."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from tests.running import Refused, Rest
from tests.wire.pubsub.conftest import ManagedFeed, Peer, position
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.timeout(300)  # a server with edges may take long to start

TOOLING = "/services/data/v62.0/tooling"
OBJECT = f"{TOOLING}/sobjects/ManagedEventSubscription"
APPLY = "/services/tidewire/v1/apply"
MANAGED = "managed.subscription"
PASSWORD = "correct horse battery"
FORBIDDEN = ("PERMISSION_DENIED", "subscription.topic.cannot.subscribe")
_numbers = itertools.count()


def make(rest: Rest, name: str, topic: str, **metadata: str) -> str:
    given = {"label": name, "topicName": topic, "defaultReplay": "EARLIEST", "state": "RUN"} | metadata
    made = rest.call("POST", OBJECT, {"FullName": name, "Metadata": given})
    assert made["success"]
    return str(made["id"])


def name_of(topic: str) -> str:
    return "Sub_" + topic.removeprefix("/event/").removesuffix("__e")


def dates(peer: Peer, events: list[Any]) -> list[int]:
    return [peer.decode(event)["CreatedDate"] for event in events]


def opened(feed: ManagedFeed, name: str, count: int = 10) -> ManagedFeed:
    return feed.ask(count, developer_name=name)


def test_subscription_is_found_as_clients_look_for_it(setup: Rest, fresh_event: str) -> None:
    name = name_of(fresh_event)
    made = make(setup, name, fresh_event)
    assert made.startswith("18x")
    for field, value in (("Id", made), ("DeveloperName", name)):
        soql = f"SELECT Id, DeveloperName, Metadata FROM ManagedEventSubscription WHERE {field}='{value}' LIMIT 1"
        answer = setup.call("GET", f"{TOOLING}/query/?q={quote(soql)}")
        assert answer["size"] == 1
        (row,) = answer["records"]
        assert (row["Id"], row["DeveloperName"]) == (made, name)
        assert (row["Metadata"]["topicName"], row["Metadata"]["state"]) == (fresh_event, "RUN")


@pytest.mark.parametrize(
    "change, code",
    [
        ({"topicName": "/topic/Invoices"}, "INVALID_INPUT"),
        ({"topicName": "/event/Nothing_Here__e"}, "INVALID_INPUT"),
        ({"topicName": ""}, "REQUIRED_FIELD_MISSING"),
        ({"state": "PAUSE"}, "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
        ({"defaultReplay": "CUSTOM"}, "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
    ],
)
def test_setup_that_is_wrong_is_refused(
    setup: Rest, fresh_event: str, change: dict[str, str], code: str
) -> None:
    with pytest.raises(Refused, match=code):
        make(setup, name_of(fresh_event), fresh_event, **change)


def test_topic_of_a_subscription_cannot_change(setup: Rest, fresh_event: str) -> None:
    made = make(setup, name_of(fresh_event), fresh_event)
    changed = {"label": "x", "topicName": "/data/ChangeEvents"}
    with pytest.raises(Refused, match="topicName"):
        setup.call("PATCH", f"{OBJECT}/{made}", {"Metadata": changed})


def test_commit_moves_the_start_of_the_next_call(setup: Rest, admin: Peer, fresh_event: str) -> None:
    name = name_of(fresh_event)
    made = make(setup, name, fresh_event)
    admin.publish(fresh_event, 1, 2, 3)
    with admin.managed() as feed:
        events = opened(feed, name).events(3)
        assert dates(admin, events) == [1, 2, 3]
        answer = feed.commit(events[1].replay_id, "my-commit")
        assert (answer.commit_request_id, answer.replay_id) == ("my-commit", events[1].replay_id)
        assert answer.process_time > 0
        assert not answer.HasField("error")
        feed.half_close()
        feed.call.cancel()
    assert dates(admin, take_over(admin, subscription_id=made)) == [3]


def take_over(peer: Peer, **named: str) -> list[Any]:
    """The first event of a call, which may come before the one before it has been noticed to be over."""
    while True:
        with peer.managed() as feed:
            try:
                return feed.ask(1, **named).events(1)
            except grpc.RpcError:
                assert feed.call.code() is grpc.StatusCode.ALREADY_EXISTS


def test_position_outlives_the_death_of_the_server(
    tmp_path_factory: pytest.TempPathFactory, stubs: Any
) -> None:
    with ServerProcess(tmp_path_factory.mktemp("managed") / "data") as server:
        rest = Rest(server.http, server.login())
        fields = {"Text__c": {"type": "Text", "label": "Text"}}
        rest.call(
            "POST", "/services/tidewire/v1/apply", {"events": {"Kept__e": {"label": "K", "fields": fields}}}
        )
        make(rest, "Kept", "/event/Kept__e")
        with grpc.insecure_channel(server.grpc) as channel:
            peer = Peer(stubs, channel, server, server.login())
            peer.publish("/event/Kept__e", 1, 2)
            with peer.managed() as feed:
                first, second = opened(feed, "Kept").events(2)
                assert not feed.commit(first.replay_id).HasField("error")
                server.kill()
        server.restart()
        rest.close()
        with grpc.insecure_channel(server.grpc) as channel:
            peer = Peer(stubs, channel, server, server.login())
            with peer.managed() as feed:
                assert [e.replay_id for e in opened(feed, "Kept").events(1)] == [second.replay_id]


def test_second_reader_is_refused_until_the_first_has_gone(
    setup: Rest, admin: Peer, fresh_event: str
) -> None:
    name = name_of(fresh_event)
    make(setup, name, fresh_event)
    admin.publish(fresh_event, 1)
    with admin.managed() as first:
        opened(first, name).events(1)
        with admin.managed() as second:
            status, code, trailers = opened(second, name).refusal()
        assert (status, code) == ("ALREADY_EXISTS", f"{MANAGED}.already.active")
        assert trailers["type"] == "ManagedSubscribe"
        first.half_close()
        admin.publish(fresh_event, *range(2, 11))
        first.events(9)
        assert list(first.call) == []
    assert dates(admin, take_over(admin, developer_name=name)) == [1]


def test_subscription_that_is_stopped_ends_its_reader_and_refuses_others(
    setup: Rest, admin: Peer, fresh_event: str
) -> None:
    name = name_of(fresh_event)
    made = make(setup, name, fresh_event)
    admin.publish(fresh_event, 1)
    stopped = {"label": name, "topicName": fresh_event, "state": "STOP"}
    with admin.managed() as feed:
        opened(feed, name).events(1)
        setup.call("PATCH", f"{OBJECT}/{made}", {"Metadata": stopped})
        assert feed.refusal()[:2] == ("FAILED_PRECONDITION", f"{MANAGED}.config.stopped")
    with admin.managed() as feed:
        assert opened(feed, name).refusal()[:2] == ("FAILED_PRECONDITION", f"{MANAGED}.config.stopped")


def test_subscription_that_is_deleted_forgets_its_position(
    setup: Rest, admin: Peer, fresh_event: str
) -> None:
    name = name_of(fresh_event)
    made = make(setup, name, fresh_event)
    admin.publish(fresh_event, 1, 2)
    with admin.managed() as feed:
        events = opened(feed, name).events(2)
        feed.commit(events[1].replay_id)
        setup.call("DELETE", f"{OBJECT}/{made}")
        assert feed.refusal()[:2] == ("NOT_FOUND", f"{MANAGED}.config.deleted")
    make(setup, name, fresh_event)
    assert dates(admin, take_over(admin, developer_name=name)) == [1]


@pytest.mark.parametrize(
    "named, code",
    [
        ({"developer_name": "Nobody"}, "developer.name.not.found"),
        ({"subscription_id": "18x000000000001AAA"}, "subscription.id.not.found"),
    ],
)
def test_subscription_that_does_not_exist_is_not_found(admin: Peer, named: dict[str, str], code: str) -> None:
    with admin.managed() as feed:
        assert feed.ask(1, **named).refusal()[:2] == ("NOT_FOUND", f"{MANAGED}.{code}")


@pytest.mark.parametrize(
    "count, given, code",
    [
        (1, {}, "id.or.developer.name.empty"),
        (1, {"subscription_id": "18x0"}, "subscription.id.invalid"),
        (0, {"developer_name": "Any"}, "fetch.request.invalid"),
        (-1, {"developer_name": "Any"}, "fetch.request.events.invalid"),
        (1, {"developer_name": "Any", "auth_refresh": "token"}, "fetch.request.auth.request.restricted"),
    ],
)
def test_first_request_that_breaks_a_rule_is_refused(
    admin: Peer, count: int, given: dict[str, str], code: str
) -> None:
    with admin.managed() as feed:
        assert feed.ask(count, **given).refusal()[:2] == ("INVALID_ARGUMENT", f"{MANAGED}.{code}")


def test_call_that_changes_its_subscription_is_refused(setup: Rest, admin: Peer, fresh_event: str) -> None:
    make(setup, name_of(fresh_event), fresh_event)
    with admin.managed() as feed:
        opened(feed, name_of(fresh_event)).ask(1, developer_name="Other")
        assert feed.refusal()[:2] == ("INVALID_ARGUMENT", "subscription.fetch.topic.mismatch")


def test_request_for_nothing_is_refused(setup: Rest, admin: Peer, fresh_event: str) -> None:
    make(setup, name_of(fresh_event), fresh_event)
    with admin.managed() as feed:
        opened(feed, name_of(fresh_event)).ask(0)
        assert feed.refusal()[:2] == ("INVALID_ARGUMENT", f"{MANAGED}.fetch.request.invalid")


def test_commit_of_what_is_older_than_the_last_one_fails_alone(
    setup: Rest, admin: Peer, fresh_event: str
) -> None:
    name = name_of(fresh_event)
    make(setup, name, fresh_event)
    admin.publish(fresh_event, 1, 2, 3)
    with admin.managed() as feed:
        first, second, third = opened(feed, name).events(3)
        assert not feed.commit(second.replay_id).HasField("error")
        assert feed.commit(first.replay_id).error.code == admin.pb.COMMIT
        assert not feed.commit(second.replay_id).HasField("error")
    assert [e.replay_id for e in take_over(admin, developer_name=name)] == [third.replay_id]


def test_commits_that_wait_together_are_each_answered(setup: Rest, admin: Peer, fresh_event: str) -> None:
    name = name_of(fresh_event)
    make(setup, name, fresh_event)
    first, second, third = admin.publish(fresh_event, 1, 2, 3)
    with admin.managed() as feed:
        # What comes with the first request waits until the subscription is open, as the next one then does.
        for result, request_id, named in (
            (second, "later", {"developer_name": name}),
            (first, "earlier", {}),
        ):
            wanted = admin.pb.CommitReplayRequest(commit_request_id=request_id, replay_id=result.replay_id)
            feed.ask(1, commit_replay_id_request=wanted, **named)
        answers: dict[str, bool] = {}
        while len(answers) < 2:
            response = feed.next()
            if response.HasField("commit_response"):
                answer = response.commit_response
                answers[answer.commit_request_id] = answer.HasField("error")
        assert answers == {"later": False, "earlier": True}
    assert [e.replay_id for e in take_over(admin, developer_name=name)] == [third.replay_id]


@pytest.mark.parametrize("replay_id", [b"", b"12345", (2**62).to_bytes(8, "big") + b"\0\0"])
def test_commit_of_an_id_that_is_none_fails_alone(
    setup: Rest, admin: Peer, fresh_event: str, replay_id: bytes
) -> None:
    make(setup, name_of(fresh_event), fresh_event)
    admin.publish(fresh_event, 1)
    with admin.managed() as feed:
        opened(feed, name_of(fresh_event), 2).events(1)
        answer = feed.commit(replay_id)
        assert (answer.error.code, answer.replay_id) == (admin.pb.COMMIT, replay_id)
        assert answer.error.msg
        (result,) = admin.publish(fresh_event, 2)
        assert [e.replay_id for e in feed.events(1)] == [result.replay_id]


def test_status_tells_how_far_streams_and_subscriptions_are(
    setup: Rest, admin: Peer, fresh_event: str
) -> None:
    name = name_of(fresh_event)
    make(setup, name, fresh_event)
    results = admin.publish(fresh_event, 1, 2, 3)
    with admin.managed() as feed:
        feed.ask(2, developer_name=name).events(2)
        feed.commit(results[0].replay_id)
        while True:
            status = setup.call("GET", "/services/tidewire/v1/status")
            streams = [s for s in status["streams"] if s["managed"] == name]
            if streams and streams[0]["position"] == position(results[1].replay_id):
                break
    (stream,) = streams
    (managed,) = [m for m in status["managed"] if m["name"] == name]
    assert stream["topic"] == fresh_event
    assert stream["lag"] == status["head"] - position(results[1].replay_id) > 0
    assert managed["is_read"]
    assert managed["lag"] == status["head"] - position(results[0].replay_id) > stream["lag"]


class Stranger:
    """A user with the right to call APIs and, to begin with, no other."""

    def __init__(self, setup: Rest) -> None:
        self._setup = setup
        self._rights = f"Stranger_{next(_numbers)}_{os.getpid()}"
        self.username = f"{self._rights.lower()}@example.org"
        self.allow()
        user = {"password": PASSWORD, "last_name": "Stranger", "permission_sets": [self._rights]}
        setup.call("POST", APPLY, {"users": {self.username: user}})

    def allow(self, **objects: list[str]) -> None:
        """Let the user do this, and nothing else."""
        rights = {"permissions": ["ApiEnabled"], "objects": objects}
        self._setup.call("POST", APPLY, {"permission_sets": {self._rights: rights}})


@pytest.fixture
def stranger(setup: Rest) -> Stranger:
    return Stranger(setup)


@pytest.fixture
def stranger_peer(stubs: Any, host: ServerProcess, stranger: Stranger) -> Iterator[Peer]:
    """The stranger's connection to `host`."""
    with grpc.insecure_channel(host.grpc) as channel:
        yield Peer(stubs, channel, host, host.login(stranger.username, PASSWORD))


def managed_status(setup: Rest, name: str) -> dict[str, Any]:
    status = setup.call("GET", "/services/tidewire/v1/status")
    (found,) = [m for m in status["managed"] if m["name"] == name]
    return dict(found)


@pytest.mark.parametrize("kind", ["event", "channel", "changes"])
def test_user_without_rights_on_the_topic_is_refused_and_holds_nothing(
    setup: Rest, stranger_peer: Peer, fresh_event: str, kind: str
) -> None:
    event = fresh_event.removeprefix("/event/")
    channel = event.removesuffix("__e") + "__chn"
    members = {name_of(fresh_event): {"channel": channel, "event": event}}
    channels = {channel: {"label": "Fresh", "kind": "event"}}
    setup.call("POST", APPLY, {"channels": channels, "channel_members": members})
    topic = {"event": fresh_event, "channel": f"/event/{channel}", "changes": "/data/ChangeEvents"}[kind]
    name = name_of(fresh_event)
    make(setup, name, topic)
    with stranger_peer.managed(("tidewire-keepalive-ms", "50")) as feed:
        assert opened(feed, name).refusal()[:2] == FORBIDDEN
    assert not managed_status(setup, name)["is_read"]


def test_reader_whose_rights_are_taken_away_is_ended_and_commits_nothing_more(
    setup: Rest, stranger: Stranger, stranger_peer: Peer, fresh_event: str
) -> None:
    name = name_of(fresh_event)
    make(setup, name, "/data/ChangeEvents", defaultReplay="LATEST")
    stranger.allow(Account=["read", "view_all"])
    with stranger_peer.managed(("tidewire-keepalive-ms", "50")) as feed:
        head = opened(feed, name).next().latest_replay_id
        assert not feed.commit(head).HasField("error")
        stranger.allow()
        assert feed.refusal()[:2] == FORBIDDEN
    assert managed_status(setup, name)["position"] == position(head)
