"""What crosses between edge and core comes out as it went in."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tidewire import errors
from tidewire.access.principal import Principal
from tidewire.delivery.link import CoreLink
from tidewire.errors import InternalError, PlatformError, ReplayIdExpired
from tidewire.eventlog.log import LogBounds, LogPage
from tidewire.events import CommittedBatch, Event, Family
from tidewire.matching.channel_values import ChannelGrant, PublishDraft, PublishOutcomes, Rejection
from tidewire.server.link import LocalLink
from tidewire.server.wire_link import CoreWire, open_remote_link
from tidewire.server.wire_values import (
    CALLS,
    dump,
    load,
    make_codec,
    pack_batch,
    pack_error,
    unpack_batch,
    unpack_error,
)

EVENT = Event(7, "Ünïted__e", Family.CHANGE, b"\x00\xff", 1_700_000_000_000, "schema", "uuid", 9)
PRINCIPAL = Principal("00D", "005", "user@example.org", "session")
GRANT = ChannelGrant(
    "/topic/A",
    Family.PUSH_TOPIC,
    frozenset({"0IF"}),
    (("0IF", frozenset({"Phone"})),),
    3,
    (("0IF", "Account"),),
)


def _leaves(kind: type[PlatformError]) -> list[type[PlatformError]]:
    children = kind.__subclasses__()
    return [kind] if not children else [leaf for child in children for leaf in _leaves(child)]


def test_batch_round_trips() -> None:
    batch = CommittedBatch((EVENT, EVENT._replace(position=8)), 9, 4, ("ended",), (("A", 8),))
    assert unpack_batch(load(dump((pack_batch(batch),)))[0]) == batch


@pytest.mark.parametrize(
    "name, result",
    [
        ("authenticate", PRINCIPAL),
        ("open_channel", GRANT),
        ("visible_record_ids", frozenset({"001", "002"})),
        ("read_log_bounds", LogBounds(1, 1 << 62)),
        ("read_log", LogPage((EVENT,), 9)),
        ("publish", PublishOutcomes(("a", "b"), 7, ((1, Rejection("code", "text")),), "sid")),
    ],
)
def test_result_round_trips(name: str, result: Any) -> None:
    codec = CALLS[name].result
    sent = load(dump((result if codec.pack is None else codec.pack(result),)))[0]
    assert (sent if codec.unpack is None else codec.unpack(sent)) == result


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("renew_channel", (PRINCIPAL, GRANT, 62.0)),
        ("read_log", (Family.GENERIC, frozenset({"a"}), 5, 500, 1 << 18)),
        ("publish", (PRINCIPAL, "/event/A__e", [PublishDraft("schema", b"\x01", "")])),
        ("touch_sessions", (frozenset({"one", "two"}),)),
    ],
)
def test_arguments_round_trip(name: str, arguments: tuple[Any, ...]) -> None:
    form = CALLS[name]
    sent = load(dump((form.pack_arguments(arguments),)))[0]
    assert tuple(form.unpack_arguments(sent)) == arguments


def test_every_call_of_the_link_has_a_form_a_stub_and_an_implementation() -> None:
    declared = {name for name in dir(CoreLink) if not name.startswith("_")}
    assert CALLS.keys() | {"watch_commits"} == declared
    link = open_remote_link(CoreWire(), "00D")
    for name in declared:
        is_request = inspect.iscoroutinefunction(getattr(CoreLink, name))
        assert inspect.iscoroutinefunction(getattr(link, name)) is is_request, name
        assert inspect.iscoroutinefunction(getattr(LocalLink, name)) is is_request, name


@pytest.mark.parametrize("kind", _leaves(errors.PlatformError), ids=lambda kind: kind.__name__)
def test_error_round_trips_to_the_same_class(kind: type[PlatformError]) -> None:
    came = unpack_error(load(dump(pack_error(kind("text", fields=["A"], at=3))))[:3])
    assert (type(came), came.message, came.details) == (kind, "text", {"fields": ["A"], "at": 3})


def test_error_detail_that_cannot_be_copied_is_sent_as_text() -> None:
    came = unpack_error(pack_error(ReplayIdExpired("old", family=Family.CHANGE, replay_id=3)))
    assert came.details == {"family": str(Family.CHANGE), "replay_id": 3}


def test_type_that_cannot_be_copied_is_rejected_when_its_codec_is_made() -> None:
    with pytest.raises(InternalError):
        make_codec(object)
