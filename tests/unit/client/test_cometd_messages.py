"""Replies, advice and errors as the client reads them."""

from __future__ import annotations

from typing import Any

import pytest

from tidewire import errors
from tidewire.client.cometd_messages import (
    Advice,
    error_of,
    http_error,
    is_event,
    merge_advice,
    parse_messages,
    replay_id_of,
)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("401::Authentication invalid", errors.SessionInvalid),
        ("401::Request requires authentication", errors.SessionInvalid),
        ("402::Unknown client", errors.ClientUnknown),
        ("403::Unknown client", errors.ClientUnknown),
        ("403::Client has not completed handshake", errors.ClientUnknown),
        ("400::The channel you requested to subscribe to does not exist {/topic/X}", errors.ChannelUnknown),
        ("404::Unknown channel", errors.ChannelUnknown),
        ("400::The replayId {5} you provided was invalid.", errors.ReplayIdInvalid),
        ("403::Subscriber does not have access to the entity in this topic", errors.ChannelForbidden),
        ("403::Restricted channel", errors.ChannelForbidden),
        ("403::Organization total events daily limit exceeded", errors.LimitExceeded),
        ("503::Server is too busy. Please try your request again later.", errors.ServerUnreachable),
        ("500::Internal server error", errors.ServerUnreachable),
        ("400::Query fields {x} do not exist on the topic entity", errors.RequestRefused),
        ("", errors.RequestRefused),
        ("nonsense", errors.RequestRefused),
    ],
)
def test_error_text_becomes_an_error_of_ours(text: str, expected: type[errors.PlatformError]) -> None:
    assert type(error_of({"error": text}, "/topic/X")) is expected


def test_cause_in_ext_counts_more_than_the_error() -> None:
    reply = {
        "error": "403:denied_by_security_policy:subscribe_denied",
        "ext": {"sfdc": {"failureReason": "503::Server is too busy."}},
    }
    assert error_of(reply).retryable


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, Advice("retry", 5, 7)),
        ({}, Advice("retry", 5, 7)),
        ({"reconnect": "handshake"}, Advice("handshake", 5, 7)),
        ({"interval": 100, "timeout": 200.0}, Advice("retry", 100, 200)),
        ({"reconnect": "dance", "interval": -1, "timeout": True}, Advice("retry", 5, 7)),
        ("none", Advice("retry", 5, 7)),
    ],
)
def test_advice_changes_what_it_mentions_legally(given: Any, expected: Advice) -> None:
    assert merge_advice(Advice("retry", 5, 7), {"advice": given}) == expected


@pytest.mark.parametrize(
    "status, expected",
    [
        (401, errors.SessionInvalid),
        (403, errors.ClientUnknown),
        (404, errors.RequestRefused),
        (413, errors.RequestRefused),
        (429, errors.ServerUnreachable),
        (503, errors.ServerUnreachable),
    ],
)
def test_http_status_becomes_an_error_of_ours(status: int, expected: type[errors.PlatformError]) -> None:
    assert type(http_error(status)) is expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[1]", b"null"])
def test_response_that_is_not_a_list_of_messages_is_rejected(body: bytes) -> None:
    with pytest.raises(errors.ProtocolViolation):
        parse_messages(body)


def test_replies_are_not_events_and_events_may_lack_a_replay_id() -> None:
    assert not is_event({"channel": "/meta/connect", "data": {}})
    assert not is_event({"data": {}})
    assert is_event({"channel": "/topic/X", "data": {}})
    assert replay_id_of({"data": {"event": {"replayId": 5}}}) == 5
    for data in ({}, {"event": None}, {"event": {"replayId": "5"}}, {"event": {"replayId": True}}, None):
        assert replay_id_of({"data": data}) is None
