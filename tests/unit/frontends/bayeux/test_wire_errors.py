from __future__ import annotations

import json
import re

import pytest

from tidewire import errors
from tidewire.frontends.bayeux.session_guard import Rejection, render_rejection
from tidewire.frontends.bayeux.wire_errors import Reconnect, wire_error

FORM = re.compile(r"[0-9]{3}:[a-z_,]*:.+")


@pytest.mark.parametrize("leaf", errors.leaf_errors(), ids=lambda leaf: leaf.code)
def test_every_error_has_a_bayeux_text(leaf: type[errors.PlatformError]) -> None:
    found = wire_error(leaf("message"), "/topic/A")
    assert FORM.fullmatch(found.text)
    if leaf.retryable:
        assert found.reconnect is Reconnect.RETRY


def test_fault_of_ours_tells_nothing() -> None:
    assert wire_error(errors.InternalError("/var/lib/secret")).text == "500::Internal server error"
    assert wire_error(errors.LogCorrupt("at 5")).text == "500::Internal server error"


@pytest.mark.parametrize(
    "error, channel, text",
    [
        (
            errors.ChannelUnknown("x"),
            "/u/A",
            "400::The channel you requested to subscribe to does not exist {/u/A}",
        ),
        (errors.ChannelInvalid("x"), "", "400::Channel name not specified"),
        (errors.ChannelInvalid("x"), "a", "400::Channel subscriptions must start with a leading '/'"),
        (
            errors.ChannelForbidden("User not enabled for streaming"),
            "/topic/A",
            "403::User not enabled for streaming",
        ),
        (
            errors.FilterInvalid("Query fields {A} do not exist on the topic entity"),
            "/topic/A?A=1",
            "400::Query fields {A} do not exist on the topic entity",
        ),
        (errors.SessionInvalid("x"), "", "401::Authentication invalid"),
        (errors.AuthHeaderInvalid("x"), "", "401::Request requires authentication"),
        (errors.ClientUnknown("x"), "", "403::Unknown client"),
        (
            errors.ReplayIdExpired("x", replay_id=5),
            "/topic/A",
            "400::The replayId {5} you provided was invalid. Please provide a valid ID, -2 to replay all events, "
            "or -1 to replay only new events.",
        ),
    ],
)
def test_error_has_the_protocol_words(error: errors.PlatformError, channel: str, text: str) -> None:
    assert wire_error(error, channel).text == text


def test_busy_server_is_told_as_a_subscribes_cause_and_as_any_other_ones_error() -> None:
    busy = "503::Server is too busy. Please try your request again later."
    rejection = Rejection(wire_error(errors.WriteConflict("later"), "/topic/A"))
    subscribe = json.loads(render_rejection({"channel": "/meta/subscribe", "clientId": "c"}, rejection))
    assert subscribe["error"] == "403:denied_by_security_policy:subscribe_denied"
    assert subscribe["ext"]["sfdc"]["failureReason"] == busy
    connect = json.loads(render_rejection({"channel": "/meta/connect", "clientId": "c"}, rejection))
    assert (connect["error"], "ext" in connect, connect["advice"]["reconnect"]) == (busy, False, "retry")
