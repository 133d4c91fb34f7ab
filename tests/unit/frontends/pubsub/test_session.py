"""Who is calling, demand arithmetic, and the times at which a call speaks or ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import (
    AuthHeaderInvalid,
    BodyMalformed,
    BodyTooLarge,
    ChannelInvalid,
    DemandInvalid,
    PlatformError,
    ProtocolViolation,
    ReplayIdInvalid,
    TopicUnknown,
)
from tidewire.frontends.pubsub.flow_control import Due
from tidewire.frontends.pubsub.headers import CallHeaders, parse_headers
from tidewire.frontends.pubsub.request_rules import check_publish, check_publish_topic, check_size
from tidewire.frontends.pubsub.session import SubscribeSession
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.ids import make_id
from tidewire.schema.proto import pubsub_pb2 as pb

ORG = make_id("00D", 1)
SETTINGS = PubSubSettings()
TOPIC = "/data/AccountChangeEvent"


def headers(max_requested: int | None = None, keepalive_ms: int | None = None) -> CallHeaders:
    return CallHeaders("t", ORG, "", max_requested, keepalive_ms)


def opened(
    requested: int, *, max_requested: int | None = None, keepalive_ms: int | None = None
) -> SubscribeSession:
    session = SubscribeSession(SETTINGS, headers(max_requested, keepalive_ms), 0.0)
    session.start(pb.FetchRequest(topic_name=TOPIC, num_requested=requested))
    return session


def wire_code(error: PlatformError) -> object:
    return error.details.get("wire_code")


@pytest.mark.parametrize("tenant", [ORG[:15], ORG, f"core/my/{ORG}", f"CORE/prod/{ORG[:15]}"])
def test_headers_of_today_are_read(tenant: str) -> None:
    metadata = [("accesstoken", "tok"), ("instanceurl", "https://x"), ("tenantid", tenant)]
    assert parse_headers(metadata) == CallHeaders("tok", ORG, "", None, None)


def test_headers_of_the_first_generation_are_read() -> None:
    metadata = [
        ("x-sfdc-api-session-token", "tok"),
        ("x-sfdc-instance-url", "https://x"),
        ("x-sfdc-tenant-id", f"core/my/{ORG}"),
        ("x-client-trace-id", "trace"),
        ("tidewire-max-requested", "500"),
        ("tidewire-keepalive-ms", "75"),
    ]
    assert parse_headers(metadata) == CallHeaders("tok", ORG, "trace", 500, 75)


@pytest.mark.parametrize("name", ["accesstoken", "instanceurl", "tenantid"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_header_missing_or_blank_is_refused_by_name(name: str, value: str | None) -> None:
    given_headers = {"accesstoken": "tok", "instanceurl": "https://x", "tenantid": ORG}
    if value is None:
        del given_headers[name]
    else:
        given_headers[name] = value
    with pytest.raises(AuthHeaderInvalid, match=name):
        parse_headers(given_headers.items())


@pytest.mark.parametrize("tenant", ["nonsense", "core/x/y", f"other/x/{ORG}", f"core/{ORG}"])
def test_tenant_of_another_form_is_refused(tenant: str) -> None:
    with pytest.raises(AuthHeaderInvalid, match="tenantid"):
        parse_headers([("accesstoken", "tok"), ("instanceurl", "https://x"), ("tenantid", tenant)])


@pytest.mark.parametrize("text", ["", "ten", "-5", "1e3", "9" * 10])
def test_extension_header_without_a_number_is_refused(text: str) -> None:
    usual = [("accesstoken", "tok"), ("instanceurl", "https://x"), ("tenantid", ORG)]
    with pytest.raises(BodyMalformed, match="tidewire-keepalive-ms"):
        parse_headers([*usual, ("tidewire-keepalive-ms", text)])


def test_extension_header_lifting_the_cap_to_nothing_is_refused() -> None:
    usual = [("accesstoken", "tok"), ("instanceurl", "https://x"), ("tenantid", ORG)]
    with pytest.raises(DemandInvalid):
        parse_headers([*usual, ("tidewire-max-requested", "0")])


def test_demand_adds_up_to_the_cap() -> None:
    session = opened(60)
    session.receive(pb.FetchRequest(num_requested=30))
    assert session.control.pending == 90
    session.receive(pb.FetchRequest(topic_name=TOPIC, num_requested=30))
    assert session.control.pending == 100


@pytest.mark.parametrize("asked, granted", [(5_000, 5_000), (50_000, 10_000), (20, 20)])
def test_demand_cap_follows_the_request_header_within_bounds(asked: int, granted: int) -> None:
    assert opened(60_000, max_requested=asked).control.pending == granted


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 150)), max_size=30))
def test_demand_equals_requested_less_delivered_within_zero_and_cap(steps: list[tuple[bool, int]]) -> None:
    session = opened(1)
    expected = 1
    for is_request, amount in steps:
        if is_request:
            session.receive(pb.FetchRequest(num_requested=amount))
            expected = min(100, expected + amount)
        else:
            delivered = min(amount, expected)
            session.control.record_sent(delivered, 0, 0.0)
            expected -= delivered
        assert session.control.pending == expected
    assert session.control.error is None


@pytest.mark.parametrize("requested", [0, -1, -(2**31)])
def test_demand_of_nothing_is_refused(requested: int) -> None:
    with pytest.raises(DemandInvalid):
        opened(requested)
    session = opened(1)
    session.receive(pb.FetchRequest(num_requested=requested))
    assert isinstance(session.control.error, DemandInvalid)


def test_later_request_for_another_topic_is_an_error() -> None:
    session = opened(1)
    session.receive(pb.FetchRequest(topic_name="/event/Other__e", num_requested=1))
    assert isinstance(session.control.error, ProtocolViolation)


def test_later_replay_options_are_ignored() -> None:
    session = opened(1)
    session.receive(pb.FetchRequest(replay_preset=pb.CUSTOM, replay_id=b"bad", num_requested=1))
    assert session.control.error is None
    assert session.control.pending == 2


@pytest.mark.parametrize("replay_id", [(77).to_bytes(8, "big"), (77).to_bytes(8, "big") + b"\0\0"])
def test_start_after_a_replay_id_of_either_length(replay_id: bytes) -> None:
    session = SubscribeSession(SETTINGS, headers(), 0.0)
    request = pb.FetchRequest(topic_name=TOPIC, replay_preset=pb.CUSTOM, replay_id=replay_id, num_requested=1)
    start = session.start(request)
    assert (start.topic, start.preset, start.position) == (TOPIC, pb.CUSTOM, 77)


@pytest.mark.parametrize("preset", [pb.CUSTOM, 7])
def test_start_without_a_usable_replay_option_is_refused(preset: int) -> None:
    session = SubscribeSession(SETTINGS, headers(), 0.0)
    request = pb.FetchRequest(topic_name=TOPIC, num_requested=1)
    request.replay_preset = pb.ReplayPreset.ValueType(preset)
    with pytest.raises(ReplayIdInvalid) as caught:
        session.start(request)
    assert wire_code(caught.value) == "subscription.fetch.replayid.validation.failed"


def test_start_with_a_corrupted_replay_id_is_refused() -> None:
    session = SubscribeSession(SETTINGS, headers(), 0.0)
    with pytest.raises(ReplayIdInvalid) as caught:
        session.start(
            pb.FetchRequest(topic_name=TOPIC, replay_preset=pb.CUSTOM, replay_id=b"1234567", num_requested=1)
        )
    assert wire_code(caught.value) is None


@pytest.mark.parametrize("topic", ["", "  "])
def test_start_on_a_blank_topic_is_refused(topic: str) -> None:
    session = SubscribeSession(SETTINGS, headers(), 0.0)
    with pytest.raises(ChannelInvalid) as caught:
        session.start(pb.FetchRequest(topic_name=topic, num_requested=1))
    assert wire_code(caught.value) == "topic.validation.empty"


@pytest.mark.parametrize("topic", ["AccountChangeEvent", "/topic/Invoices", "/u/Notes", "/event/A__e?Id='1'"])
def test_start_on_a_channel_of_another_protocol_is_unknown(topic: str) -> None:
    session = SubscribeSession(SETTINGS, headers(), 0.0)
    with pytest.raises(TopicUnknown):
        session.start(pb.FetchRequest(topic_name=topic, num_requested=1))


def test_keepalive_is_due_after_its_time_and_again() -> None:
    session = opened(5)
    assert session.control.due(10, 59.9) is Due.NOTHING
    assert session.control.wait_s(59.0) == pytest.approx(1.0)
    assert session.control.due(10, 60.0) is Due.KEEPALIVE
    session.control.record_sent(0, 10, 60.0)
    assert session.control.due(10, 119.9) is Due.NOTHING
    assert session.control.due(10, 120.0) is Due.KEEPALIVE


def test_keepalive_asked_for_is_sent_only_when_the_position_moved() -> None:
    session = opened(5, keepalive_ms=200)
    session.control.record_sent(1, 10, 0.0)
    assert session.control.due(11, 0.1) is Due.NOTHING
    assert session.control.due(10, 0.3) is Due.NOTHING
    assert session.control.due(11, 0.3) is Due.KEEPALIVE
    assert session.control.wait_s(0.15) == pytest.approx(0.05)
    assert session.control.wait_s(0.3) == pytest.approx(0.2)


def test_keepalive_asked_for_too_often_is_slowed_down() -> None:
    session = opened(5, keepalive_ms=1)
    assert session.control.due(11, 0.049) is Due.NOTHING
    assert session.control.due(11, 0.051) is Due.KEEPALIVE


def test_call_that_owes_nothing_ends_after_its_last_event_not_its_last_keepalive() -> None:
    session = opened(1)
    session.control.record_sent(1, 10, 30.0)
    session.control.record_sent(0, 11, 80.0)
    assert session.control.due(11, 89.9) is Due.NOTHING
    assert session.control.wait_s(80.0) == pytest.approx(10.0)
    assert session.control.due(11, 90.0) is Due.END


def test_call_with_new_demand_does_not_end() -> None:
    session = opened(1)
    session.control.record_sent(1, 10, 0.0)
    session.receive(pb.FetchRequest(num_requested=1))
    assert session.control.due(10, 60.0) is Due.KEEPALIVE


def test_call_half_closed_ends_when_everything_owed_is_delivered() -> None:
    session = opened(2)
    session.control.half_close()
    session.control.record_sent(1, 10, 0.0)
    assert session.control.due(10, 1.0) is Due.NOTHING
    session.control.record_sent(1, 11, 1.0)
    assert session.control.due(11, 1.0) is Due.END


def test_publish_stream_keeps_the_topic_of_its_first_request() -> None:
    assert check_publish_topic("/event/A__e", "") == "/event/A__e"
    assert check_publish_topic("", "/event/A__e") == "/event/A__e"
    with pytest.raises(ProtocolViolation) as caught:
        check_publish_topic("/event/B__e", "/event/A__e")
    assert wire_code(caught.value) == "publish.topic.mismatch"


def test_publish_without_topic_or_events_is_refused() -> None:
    with pytest.raises(ChannelInvalid) as no_topic:
        check_publish(pb.PublishRequest(events=[pb.ProducerEvent()]))
    assert wire_code(no_topic.value) == "publish.topic.validation.empty"
    with pytest.raises(BodyMalformed) as no_events:
        check_publish(pb.PublishRequest(topic_name="/event/A__e"))
    assert wire_code(no_events.value) == "publish.event.count.invalid"


def test_request_over_the_size_limit_is_refused() -> None:
    check_size(b"x" * SETTINGS.max_request_bytes, SETTINGS)
    with pytest.raises(BodyTooLarge):
        check_size(b"x" * (SETTINGS.max_request_bytes + 1), SETTINGS)
