"""Every error of the tree has its place in the protocol, and none tells the peer too much."""

from __future__ import annotations

import grpc
import pytest

from tidewire import errors
from tidewire.frontends.pubsub.wire_errors import CODE_PREFIX, STATUS_AND_CODE, STATUS_OF_CODE, render_failure

ORG = "CORE/prod/00DTW0000000001EAA"


def failure_of(error: errors.PlatformError) -> tuple[str, str, dict[str, str]]:
    failure = render_failure(error, rpc="Subscribe", rpc_id="rpc-1", tenant=ORG, topic="/event/A__e")
    return (
        failure.status,
        failure.text,
        {key: value for key, value in failure.trailers if isinstance(value, str)},
    )


def test_table_covers_the_whole_tree() -> None:
    assert set(STATUS_AND_CODE) == set(errors.leaf_errors())


def test_table_uses_status_names_that_grpc_knows() -> None:
    names = {status for status, _ in STATUS_AND_CODE.values()} | set(STATUS_OF_CODE.values())
    assert names <= set(grpc.StatusCode.__members__)
    assert "OK" not in names


@pytest.mark.parametrize("cls", errors.leaf_errors(), ids=lambda cls: cls.code)
def test_failure_carries_the_trailers_that_clients_branch_on(cls: type[errors.PlatformError]) -> None:
    _, text, trailers = failure_of(cls("what happened"))
    assert trailers["error-code"].startswith(CODE_PREFIX)
    assert trailers["rpc-id"] == "rpc-1"
    assert trailers["type"] == "Subscribe"
    assert trailers["tidewire-code"] == cls.code
    assert text.endswith(" rpcId: rpc-1")
    assert all(key.islower() and value.isascii() for key, value in trailers.items())


@pytest.mark.parametrize("cls", errors.leaf_errors(), ids=lambda cls: cls.code)
def test_failure_of_the_server_itself_says_nothing_internal(cls: type[errors.PlatformError]) -> None:
    status, text, _ = failure_of(cls("/var/lib/secret.db"))
    if issubclass(
        cls, errors.StorageError | errors.ServerUnreachable | errors.InternalError | errors.ConfigInvalid
    ):
        assert status in {"UNAVAILABLE", "UNKNOWN", "INTERNAL"}
        assert "secret" not in text


@pytest.mark.parametrize("cls", errors.leaf_errors(), ids=lambda cls: cls.code)
def test_failure_that_may_pass_is_not_called_the_callers_fault(cls: type[errors.PlatformError]) -> None:
    if cls.retryable:
        assert STATUS_AND_CODE[cls][0] in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}


def test_unknown_topic_is_answered_in_the_documented_words() -> None:
    status, text, _ = failure_of(errors.TopicUnknown("no such topic"))
    assert status == "NOT_FOUND"
    assert text == (
        f"The topic information for org {ORG} and topic /event/A__e not found. "
        "Ensure the topic name is correct and that the topic exists. rpcId: rpc-1"
    )


def test_code_set_by_the_call_replaces_the_tables() -> None:
    status, text, trailers = failure_of(
        errors.ProtocolViolation("idle", wire_code="publish.stream.sweeper.timeout")
    )
    assert status == "DEADLINE_EXCEEDED"
    assert trailers["error-code"] == CODE_PREFIX + "publish.stream.sweeper.timeout"
    assert text == "idle rpcId: rpc-1"


def test_blank_topic_is_not_reported_as_unknown() -> None:
    status, text, _ = failure_of(errors.ChannelInvalid("blank", wire_code="topic.validation.empty"))
    assert (status, text) == ("INVALID_ARGUMENT", "blank rpcId: rpc-1")


def test_expired_replay_id_tells_the_earliest_one() -> None:
    _, _, trailers = failure_of(errors.ReplayIdExpired("too old", replay_id=3, earliest=40))
    assert trailers["error-code"] == CODE_PREFIX + "subscription.fetch.replayid.corrupted"
    assert trailers["tidewire-earliest-replay-id"] == "40"
