"""Acknowledgements of replies: kept until they come, sent again if they do not."""

from __future__ import annotations

from collections.abc import Callable

from tidewire.frontends.bayeux.ack import Acknowledgements, wants_acknowledgements


def _give(*events: bytes) -> Callable[[], list[bytes]]:
    return lambda: list(events)


def test_events_that_were_not_acknowledged_are_sent_again_before_any_other() -> None:
    acks = Acknowledgements()
    assert acks.take_in({"ext": {"ack": 0}})
    assert (acks.collect(_give(b"a", b"b")), acks.next_batch()) == ([b"a", b"b"], 1)
    assert not acks.take_in({"ext": {"ack": 0}})
    assert (acks.collect(_give(b"c")), acks.next_batch()) == ([b"a", b"b"], 2)
    assert acks.take_in({"ext": {"ack": 2}})
    assert acks.collect(_give(b"c")) == [b"c"]


def test_lost_reply_without_events_costs_nothing() -> None:
    acks = Acknowledgements()
    assert (acks.collect(_give()), acks.next_batch()) == ([], 1)
    assert acks.take_in({"ext": {"ack": 0}})
    assert acks.collect(_give(b"a")) == [b"a"]


def test_client_that_is_ahead_of_what_was_stored_goes_on_with_its_own_count() -> None:
    acks = Acknowledgements(3)
    assert acks.take_in({"ext": {"ack": 7}})
    assert acks.next_batch() == 8


def test_connect_without_a_usable_number_acknowledges_everything() -> None:
    for ext in (None, {}, {"ack": None}, {"ack": "1"}, {"ack": True}, "ack", {"ack": 1 << 80}):
        acks = Acknowledgements()
        acks.collect(_give(b"a"))
        acks.next_batch()
        assert acks.take_in({"ext": ext})
        assert acks.collect(_give(b"b")) == [b"b"]
        assert acks.next_batch() == 2


def test_only_a_plain_true_asks_for_the_extension() -> None:
    asked: list[dict[str, object]] = [
        {"ext": {"ack": True}},
        {"ext": {"ack": False}},
        {"ext": {"ack": 1}},
        {"ext": 5},
        {},
    ]
    assert [wants_acknowledgements(message) for message in asked] == [True, False, False, False, False]
