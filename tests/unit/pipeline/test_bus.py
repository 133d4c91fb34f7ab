"""The resumable subscription and the position index, against a server that drops streams."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.pipeline.histories import History
from tests.pipeline.history_bus import TOKEN, HistoryBus
from tests.unit.client.test_login import OAUTH, LoginServer
from tidewire.client.login import Login
from tidewire.client.pubsub_messages import Fetched, Received
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid, ReplayIdInvalid, SessionInvalid
from tidewire.pipeline.bus import Bus, BusSettings, parse_settings, position_after, render_options
from tidewire.pipeline.index import PositionIndex
from tidewire.pipeline.source import ReadSettings, read_partition
from tidewire.pipeline.source_plans import SpanPartition
from tidewire.pipeline.spans import Span


@pytest.fixture(scope="module")
def history() -> History:
    made = History()
    for i in range(150):
        made.create("Contact", {"Name.LastName": f"n{i}"})
        made.commit(hidden=i % 2)
    return made


@pytest.fixture
def server(history: History) -> Iterator[HistoryBus]:
    with HistoryBus(history.events, history.position) as bus:
        yield bus


def settings_for(server: HistoryBus, token: str = TOKEN) -> BusSettings:
    return BusSettings(server.endpoint, "/data/ChangeEvents", org_id="00D", token=token, retry_s=20)


def test_stream_over_dropped_connections_gives_each_event_once_in_order(
    server: HistoryBus, history: History
) -> None:
    server.drop_every = 1
    seen: list[int] = []
    for fetched in Bus(settings_for(server), SystemClock()).stream(0, threading.Event()):
        seen += [event.replay_id for event in fetched.events]
        if seen and seen[-1] == history.events[-1].replay_id:
            break
    assert seen == [event.replay_id for event in history.events]
    assert server.subscriptions > 2


def test_stream_after_a_position_the_server_does_not_know_says_so(
    server: HistoryBus, history: History
) -> None:
    stream = Bus(settings_for(server), SystemClock()).stream(history.position + 5, threading.Event())
    with pytest.raises(ReplayIdInvalid, match=f"after replay id {history.position + 5}"):
        next(stream)


def test_stream_with_a_refused_token_and_no_login_fails_at_once(server: HistoryBus) -> None:
    stream = Bus(settings_for(server, "stolen"), SystemClock()).stream(0, threading.Event())
    with pytest.raises(SessionInvalid):
        next(stream)


def test_span_read_twice_gives_the_same_rows(server: HistoryBus, history: History) -> None:
    first, last = history.events[10].replay_id, history.events[120].replay_id
    part = SpanPartition(Span(first, last), last, None)

    def read() -> list[tuple[int | None, bytes | None]]:
        return [
            (row["replay_id"], row["payload"])
            for batch in read_partition(settings_for(server), ReadSettings(with_marks=True), part)
            for row in batch.to_pylist()
        ]

    rows = read()
    server.drop_every = 1
    assert read() == rows
    expected = [(e.replay_id, e.payload) for e in history.events[11:121]]
    assert rows == [*expected, (last, None)]


def test_index_cuts_by_rows_and_counts_what_lies_between(server: HistoryBus, history: History) -> None:
    index = PositionIndex(Bus(settings_for(server), SystemClock()), 0, SystemClock())
    try:
        assert index.wait_for(history.position, 120)
        positions = [event.replay_id for event in history.events]
        assert index.cut(0, 10) == positions[9]
        assert index.cut(positions[9], 10) == positions[19]
        assert index.cut(0, None) == history.position
        assert list(index.positions_in(positions[3], positions[7])) == positions[4:8]
        index.forget(positions[20])
        assert not index.covers(positions[19])
        assert index.cut(positions[20], 5) == positions[25]
    finally:
        index.close()


def test_index_passes_on_what_its_reading_met(server: HistoryBus, history: History) -> None:
    index = PositionIndex(Bus(settings_for(server), SystemClock()), history.position + 9, SystemClock())
    try:
        with pytest.raises(ReplayIdInvalid):
            index.wait_for(history.position + 10, 120)
    finally:
        index.close()


def event_at(replay_id: int, headers: dict[str, bytes]) -> Received:
    return Received(replay_id, "", "", b"", headers)


def test_position_beyond_the_events_is_trusted_from_our_server_only() -> None:
    foreign = Fetched([event_at(5, {})], latest_replay_id=9, pending=1)
    ours = Fetched([event_at(5, {"tidewire-tx-last": b"5"})], latest_replay_id=9, pending=1)
    assert (position_after(foreign, 1), position_after(ours, 1)) == (5, 9)


def test_empty_response_moves_the_position_only_while_demand_is_open() -> None:
    assert position_after(Fetched([], latest_replay_id=9, pending=1), 4) == 9
    assert position_after(Fetched([], latest_replay_id=9, pending=0), 4) == 4
    assert position_after(Fetched([], latest_replay_id=0, pending=1), 4) == 4


def test_settings_survive_reader_options() -> None:
    settings = BusSettings(
        "h:1", "/t", username="u", password="p", login_url="http://h", client_id="c", tls=True, retry_s=7
    )
    assert parse_settings(render_options(settings)) == settings


@pytest.mark.parametrize(
    "options,setting",
    [
        ({"topic": "/t", "token": "t"}, "endpoint"),
        ({"endpoint": "h:1", "token": "t"}, "topic"),
        ({"endpoint": "h:1", "topic": "/t"}, "token"),
        ({"endpoint": "h:1", "topic": "/t", "token": "t"}, "org_id"),
        ({"endpoint": "h:1", "topic": "/t", "token": "t", "org_id": "o", "retry_s": "soon"}, "retry_s"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(options: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        parse_settings(options)
    assert raised.value.details["setting"] == setting


def test_settings_never_show_secrets() -> None:
    shown = repr(BusSettings("h:1", "/t", token="tok-en", password="pass-word", client_secret="sec-ret"))
    assert not any(secret in shown for secret in ("tok-en", "pass-word", "sec-ret"))


def test_stream_whose_session_has_ended_signs_in_again(server: HistoryBus, history: History) -> None:
    with LoginServer() as logins:
        logins.body = OAUTH.replace(b'"tok"', f'"{TOKEN}"'.encode())
        thread = threading.Thread(target=logins.serve_forever)
        thread.start()
        settings = BusSettings(
            server.endpoint, "/t", username="u", password="p", login_url=logins.url, client_id="c", retry_s=20
        )
        bus = Bus(settings, SystemClock(), Login("ended", logins.url, "00D1"))
        fetched = next(bus.stream(0, threading.Event()))
        logins.shutdown()
        thread.join()
    assert fetched.events[0].replay_id == history.events[0].replay_id
    assert len(logins.posted) == 1


def test_stream_whose_new_session_is_refused_too_gives_up(server: HistoryBus) -> None:
    with LoginServer() as logins:
        thread = threading.Thread(target=logins.serve_forever)
        thread.start()
        settings = BusSettings(
            server.endpoint, "/t", username="u", password="p", login_url=logins.url, client_id="c", retry_s=20
        )
        with pytest.raises(SessionInvalid):
            next(Bus(settings, SystemClock()).stream(0, threading.Event()))
        logins.shutdown()
        thread.join()
    assert len(logins.posted) == 2
