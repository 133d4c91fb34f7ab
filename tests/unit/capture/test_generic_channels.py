"""The living channels of generic streaming, as they are found while committed changes are taken in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tidewire.capture import generic
from tidewire.capture.generic import GenericChannels
from tidewire.events import Change, ChangeType

FIRST, SECOND = "0M6000000000001AAA", "0M6000000000002AAA"


def change(record_id: str, name: str | None) -> Change:
    kind = ChangeType.DELETE if name is None else ChangeType.UPDATE
    return Change(
        generic.CHANNEL_OBJECT, record_id, kind, {}, None if name is None else {"Name": name}, (), 1
    )


def follow_by_line(
    channels: GenericChannels, changes: list[Change], look: Callable[[], object]
) -> set[object]:
    """What somebody sees who looks before every line that takes in the changes."""
    seen: set[object] = set()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename != generic.__file__:
            return None
        sys.settrace(None)
        seen.add(look())
        sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        channels.follow(changes)
    finally:
        sys.settrace(before)
    return seen


@pytest.fixture
def channels() -> GenericChannels:
    made = GenericChannels()
    made.follow([change(FIRST, "/u/one"), change(SECOND, "/u/two")])
    return made


def test_channel_that_keeps_its_name_is_always_found(channels: GenericChannels) -> None:
    seen = follow_by_line(
        channels,
        [change(FIRST, "/u/one")],
        lambda: (channels.try_name(FIRST), channels.try_id("/u/one"), channels.is_variant("/U/one")),
    )
    assert seen == {("/u/one", FIRST, True)}


def test_channels_that_swap_names_are_always_found(channels: GenericChannels) -> None:
    seen = follow_by_line(
        channels,
        [change(FIRST, "/u/two"), change(SECOND, "/u/one")],
        lambda: None in (channels.try_name(FIRST), channels.try_id("/u/one"), channels.try_id("/u/two")),
    )
    assert seen == {False}
    assert (channels.try_id("/u/one"), channels.try_id("/u/two")) == (SECOND, FIRST)


def test_name_that_changed_its_case_is_a_variant_from_then_on(channels: GenericChannels) -> None:
    channels.follow([change(FIRST, "/u/ONE")])
    assert (channels.try_id("/u/one"), channels.try_id("/u/ONE")) == (None, FIRST)
    assert channels.is_variant("/u/one")
    assert not channels.is_variant("/u/ONE")


def test_deleted_channel_frees_its_name_unless_another_took_it(channels: GenericChannels) -> None:
    channels.follow([change(FIRST, None), change(SECOND, "/u/one")])
    assert (channels.try_name(FIRST), channels.try_id("/u/one"), channels.try_id("/u/two")) == (
        None,
        SECOND,
        None,
    )
    channels.follow([change(SECOND, None)])
    assert (channels.try_name(SECOND), channels.try_id("/u/one")) == (None, None)
    assert not channels.is_variant("/U/one")
