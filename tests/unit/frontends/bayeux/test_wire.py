from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import AuthHeaderInvalid, BodyMalformed, ResourceUnknown, VersionUnsupported
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.wire_errors import Reconnect, WireError


@pytest.mark.parametrize(
    "path, version, is_durable",
    [
        ("/cometd/23.0", 23.0, False),
        ("/cometd/36.0", 36.0, False),
        ("/cometd/37.0", 37.0, True),
        ("/cometd/62.0/", 62.0, True),
        ("/cometd/62.0/connect", 62.0, True),
        ("/cometd/replay/36.0", 36.0, True),
        ("/cometd/replay/36.0/handshake", 36.0, True),
    ],
)
def test_path_tells_version_and_durability(path: str, version: float, is_durable: bool) -> None:
    assert wire.parse_endpoint(path) == wire.Endpoint(version, is_durable)


@pytest.mark.parametrize(
    "path, channel, replays",
    [
        ("/cometd/36.0", "/u/a", False),
        ("/cometd/replay/36.0", "/u/a", True),
        ("/cometd/replay/36.0", "/topic/A", False),
        ("/cometd/37.0", "/u/a", True),
        ("/cometd/37.0", "/topic/A", True),
    ],
)
def test_replay_below_37_is_for_generic_events(path: str, channel: str, replays: bool) -> None:
    assert wire.parse_endpoint(path).replays(channel) is replays


@pytest.mark.parametrize(
    "ext", [None, True, {}, {"/c": "EXPANDED"}, {"/c": "expanded"}, {"/other": "COMPACT"}]
)
def test_expanded_payload_format_is_accepted(ext: object) -> None:
    assert wire.check_format({"ext": {"payload.format": ext}}, "/c") is None


@pytest.mark.parametrize("wanted, shown", [("COMPACT", "COMPACT"), (7, "7"), ({"a": None}, "{a=null}")])
def test_other_payload_format_is_refused(wanted: object, shown: str) -> None:
    error = wire.check_format({"ext": {"payload.format": {"/c": wanted}}}, "/c")
    text = f"400::The payload format {{{shown}}} isn't supported for channel {{/c}}. Use EXPANDED."
    assert error == WireError(text)


@pytest.mark.parametrize("path", ["/cometd", "/cometd/"])
def test_path_without_version_is_refused_as_such(path: str) -> None:
    with pytest.raises(VersionUnsupported, match="mandatory"):
        wire.parse_endpoint(path)


@pytest.mark.parametrize(
    "path", ["/cometd/22.0", "/cometd/68.0", "/cometd/62", "/cometd/62.5", "/cometd/v62.0", "/cometd/nan"]
)
def test_path_with_another_version_is_refused(path: str) -> None:
    with pytest.raises(VersionUnsupported, match="Unsupported API version"):
        wire.parse_endpoint(path)


@pytest.mark.parametrize(
    "path", ["/cometdx/62.0", "/cometd/62.0/other", "/cometd/62.0/connect/more", "/a/cometd/62.0"]
)
def test_other_path_is_unknown(path: str) -> None:
    with pytest.raises(ResourceUnknown):
        wire.parse_endpoint(path)


@pytest.mark.parametrize(
    "body, content_type",
    [
        (b'[{"a":"\xc3\xa9"}]', "application/json"),
        (b'[{"a":"\xc3\xa9"}]', ""),
        (b'{"a":"\xc3\xa9"}', "application/json; charset=UTF-8"),
        (b'[{"a":"\xe9"}]', "application/json; charset=iso-8859-1"),
        (b"message=%5B%7B%22a%22%3A%22%C3%A9%22%7D%5D", "application/x-www-form-urlencoded"),
        (b"other=1&message=%7B%22a%22%3A%22%C3%A9%22%7D", "application/x-www-form-urlencoded;charset=utf-8"),
    ],
)
def test_messages_are_read_from_every_legal_envelope(body: bytes, content_type: str) -> None:
    assert wire.parse_messages(body, content_type) == [{"a": "é"}]


@pytest.mark.parametrize(
    "body, content_type",
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b"[1]", "application/json"),
        (b'"text"', "application/json"),
        (b"[{}", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"[" + b"{}," * 256 + b"{}]", "application/json"),
        (b"\xff\xfe", "text/json; charset=utf-8"),
        (b"[{}]", "application/json; charset=zlib"),
        (b"other=1", "application/x-www-form-urlencoded"),
        (b"message=nonsense", "application/x-www-form-urlencoded"),
    ],
)
def test_body_without_messages_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(BodyMalformed):
        wire.parse_messages(body, content_type)


@given(body=st.binary(max_size=200), content_type=st.text(max_size=40))
def test_any_body_is_read_or_refused(body: bytes, content_type: str) -> None:
    try:
        messages = wire.parse_messages(body, content_type)
    except BodyMalformed:
        return
    assert all(isinstance(message, dict) for message in messages)


@pytest.mark.parametrize("header", ["OAuth 00D!abc", "Bearer 00D!abc", "bearer  00D!abc", "00D!abc"])
def test_token_is_found_in_all_three_shapes(header: str) -> None:
    assert wire.parse_token(header) == "00D!abc"


@pytest.mark.parametrize("header", [None, "", "  ", "Bearer", "Basic abc", "Bearer a b"])
def test_header_without_token_is_refused(header: str | None) -> None:
    with pytest.raises(AuthHeaderInvalid):
        wire.parse_token(header)


def test_browser_cookie_is_found_among_others() -> None:
    assert wire.parse_browser("a=1; BAYEUX_BROWSER=abcdefgh12; b=2") == "abcdefgh12"
    assert wire.parse_browser("XBAYEUX_BROWSER=abcdefgh12") == ""
    assert wire.parse_browser("BAYEUX_BROWSER=<script>") == ""
    assert wire.parse_browser("") == ""


@pytest.mark.parametrize(
    "ext, expected",
    [
        (None, -1),
        ({}, -1),
        ({"replay": True}, -1),
        ({"replay": {"/topic/A": -1}}, -1),
        ({"replay": {"/topic/A": -2, "/topic/B": 5}}, -2),
        ({"replay": {"/topic/A": 0}}, 0),
        ({"replay": {"/topic/A": 12.0}}, 12),
        ({"replay": {"/topic/A": "12"}}, 12),
    ],
)
def test_replay_map_tells_where_to_start(ext: object, expected: int) -> None:
    message: wire.Message = {"channel": wire.SUBSCRIBE}
    if ext is not None:
        message["ext"] = ext
    assert wire.parse_replay(message, "/topic/A") == expected


@pytest.mark.parametrize(
    "replay, shown",
    [
        ({}, "{{}}"),
        ({"/topic/A": None}, "{{/topic/A=null}}"),
        ({"/topic/B": 5, "/topic/A?x=1": 6}, "{{/topic/B=5, /topic/A?x=1=6}}"),
        (7, "{7}"),
    ],
)
def test_replay_map_without_the_channel_is_shown_in_the_error(replay: object, shown: str) -> None:
    found = wire.parse_replay({"ext": {"replay": replay}}, "/topic/A")
    assert isinstance(found, WireError)
    start = "400::The replayId for channel {/topic/A} wasn't found using the provided replay ID map "
    assert found.text.startswith(start + shown + ". Ensure")


@pytest.mark.parametrize("value", [-3, 1 << 53, 1.5, True, "x", [1], {}])
def test_value_that_is_no_replay_id_is_refused(value: object) -> None:
    found = wire.parse_replay({"ext": {"replay": {"/topic/A": value}}}, "/topic/A")
    assert isinstance(found, WireError)
    assert "you provided was invalid" in found.text


@pytest.mark.parametrize("value", [None, "", [], ["/a", ""], ["/a", 1], {"a": 1}, 5])
def test_subscription_that_names_no_channel_is_none(value: object) -> None:
    assert wire.parse_channels({"subscription": value}) is None


def test_subscription_may_be_one_name_or_many() -> None:
    assert wire.parse_channels({"subscription": "/a"}) == ["/a"]
    assert wire.parse_channels({"subscription": ["/a", "/b"]}) == ["/a", "/b"]


@pytest.mark.parametrize("message_id", ["7", 7, None, '"<script>\n'])
def test_reply_echoes_the_id_as_it_was_sent(message_id: object) -> None:
    message = {"channel": wire.SUBSCRIBE, "id": message_id, "subscription": ["/a"]}
    assert json.loads(wire.render_reply(message, "c")) == {
        "clientId": "c",
        "channel": wire.SUBSCRIBE,
        "id": message_id,
        "subscription": ["/a"],
        "successful": True,
    }


def test_failure_of_a_message_without_channel_or_id_has_neither() -> None:
    reply = wire.render_failure({"channel": 5}, WireError("400::x", Reconnect.NONE, "503::busy"))
    assert json.loads(reply) == {
        "advice": {"reconnect": "none", "interval": 0},
        "ext": {"sfdc": {"failureReason": "503::busy"}},
        "error": "400::x",
        "successful": False,
    }


@pytest.mark.parametrize("advice", [None, 5, {}, {"timeout": -1}, {"timeout": True}, {"timeout": "0"}])
def test_odd_advice_of_a_client_is_ignored(advice: object) -> None:
    assert wire.advice_ms({"advice": advice}, "timeout") is None
