"""Names that users type."""

from __future__ import annotations

import pytest

from tidewire.errors import ChannelInvalid
from tidewire.names import (
    ChannelKind,
    ChannelName,
    change_event_name,
    entity_of_change_event,
    is_api_name,
    parse_channel,
)


def test_channel_is_taken_apart() -> None:
    assert parse_channel("/topic/X?Name='a b'&Phone=1") == ChannelName(
        ChannelKind.PUSH_TOPIC, "X", "Name='a b'&Phone=1"
    )
    assert parse_channel("/u/a/b/c") == ChannelName(ChannelKind.GENERIC, "a/b/c")
    assert parse_channel("/data/ChangeEvents").path == "/data/ChangeEvents"


@pytest.mark.parametrize("text", ["", "topic/X", "/", "/topic", "/topic/", "/meta/connect", "//x"])
def test_invalid_channel_is_rejected(text: str) -> None:
    with pytest.raises(ChannelInvalid):
        parse_channel(text)


@pytest.mark.parametrize(
    "entity, event",
    [("Account", "AccountChangeEvent"), ("Invoice_Statement__c", "Invoice_Statement__ChangeEvent")],
)
def test_change_event_names_go_both_ways(entity: str, event: str) -> None:
    assert change_event_name(entity) == event
    assert entity_of_change_event(event) == entity


def test_other_names_are_no_change_events() -> None:
    assert [entity_of_change_event(n) for n in ("ChangeEvent", "Order__e", "ChangeEvents")] == [None] * 3


@pytest.mark.parametrize(
    "name", ["Account", "A1", "My_Object__c", "Order__e", "Sales__chn", "ns__X__c", "my_ns__Order__e"]
)
def test_api_names(name: str) -> None:
    assert is_api_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1A",
        "A__",
        "A b",
        "A__x",
        "_A",
        "A__c__c",
        "é",
        "A" * 81,
        "a;DROP",
        "a__b__X__c",
        "a" * 16 + "__X__c",
    ],
)
def test_no_api_names(name: str) -> None:
    assert not is_api_name(name)
