"""The resumable subscription and the position index, against a server that drops streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.pipeline.histories import History
from tests.pipeline.history_bus import TOKEN, HistoryBus
from tests.unit.client.test_login import OAUTH, LoginServer
from tidewire.client.login import Login
from tidewire.client.pubsub_messages import Fetched, Received
from tidewire.clock import ManualClock, SystemClock
from tidewire.errors import ConfigInvalid, ReplayIdInvalid, ServerUnreachable, SessionInvalid
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.source.bus import (
    SERVER_OPTIONS,
    Bus,
    BusSettings,
    Deduplicator,
    check_names,
    parse_settings,
    position_after,
    render_options,
)
from tidewire.pipeline.source.event_source import ReadSettings, read_partition, read_span
from tidewire.pipeline.source.plans import BusPlanner, SpanPartition
from tidewire.pipeline.source.position_index import PositionIndex


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


def test_span_has_each_event_once_in_order_when_the_server_repeats_and_shuffles(
    server: HistoryBus, history: History
) -> None:
    server.is_sloppy, server.drop_every = True, 2
    last = history.events[-1].replay_id
    index = PositionIndex(Bus(settings_for(server), SystemClock()), 0, SystemClock())
    try:
        assert index.wait_for(last, 120)
        assert list(index.positions_in(0, last)) == [event.replay_id for event in history.events]
    finally:
        index.close()
    part = SpanPartition(Span(0, last), last, None)
    payloads = [p for batch in read_span(settings_for(server), part) for p in batch["payload"].to_pylist()]
    assert payloads == [event.payload for event in history.events]


def test_events_that_share_a_replay_id_are_each_taken_once() -> None:
    order = Deduplicator(4)
    first = Fetched([Received(n, "", "", b"%d" % n, {}) for n in (4, 5, 5)], latest_replay_id=5, pending=1)
    second = Fetched([Received(5, "", "", p, {}) for p in (b"5", b"more")], latest_replay_id=5, pending=1)
    assert [event.payload for event in order.put(first).events] == [b"5"]
    assert [event.payload for event in order.put(second).events] == [b"more"]
    again = order.put(Fetched([Received(5, "", "", b"5", {})], latest_replay_id=9, pending=1))
    assert position_after(again, 5) == 5


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
            for batch in read_partition(settings_for(server), ReadSettings(with_watermarks=True), part)
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


@pytest.fixture
def one_page() -> Iterator[HistoryBus]:
    """A server whose whole log is one response."""
    made = History()
    for i in range(20):
        made.create("Contact", {"Name.LastName": f"n{i}"})
        made.commit()
    with HistoryBus(made.events, made.position) as bus:
        yield bus


def run_aside(call: Callable[[], object]) -> Future[object]:
    """A call in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(12_000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it has not happened")


def test_bounded_read_of_a_slow_server_counts_silence_from_its_first_answer(one_page: HistoryBus) -> None:
    one_page.may_answer.clear()
    planner = BusPlanner(Bus(settings_for(one_page), SystemClock()), SystemClock(), settle_s=0)
    planner.bound()
    cut = run_aside(lambda: planner.cut(0, None))
    wait_until(lambda: one_page.subscriptions == 2)
    assert not cut.done()
    one_page.may_answer.set()
    assert cut.result(120) == one_page.head
    (part,) = planner.divide(Span(0, one_page.head), 0)
    assert isinstance(part, SpanPartition)
    assert part.last_row == one_page.events[-1].replay_id
    planner.close()


def test_bounded_read_of_a_server_that_never_answers_fails(one_page: HistoryBus) -> None:
    one_page.may_answer.clear()
    bus = Bus(settings_for(one_page), SystemClock())
    index = PositionIndex(bus, 0, SystemClock(), answer_s=0.2)
    try:
        with pytest.raises(ServerUnreachable, match="has not answered the subscription"):
            index.wait_for_rows(0, 1, settle_s=0)
    finally:
        index.close()


def test_bounded_read_at_the_end_of_a_silent_log_ends_after_the_first_response(
    one_page: HistoryBus,
) -> None:
    one_page.may_answer.clear()
    last = one_page.events[-1].replay_id
    one_page.head = last
    index = PositionIndex(Bus(settings_for(one_page), SystemClock()), last, SystemClock())
    try:
        waiting = run_aside(lambda: index.wait_for_rows(last, 1, settle_s=0))
        wait_until(lambda: one_page.subscriptions == 2)  # its own, and the one that asks for the oldest event
        assert not waiting.done()
        one_page.may_answer.set()
        assert waiting.result(120) is False
        assert index.cut(last, None) == last
    finally:
        index.close()


def test_bounded_read_over_a_broken_connection_does_not_take_the_break_for_the_end(
    server: HistoryBus, history: History
) -> None:
    clock = ManualClock()
    server.drop_every, server.holds_after_drop = 1, True
    index = PositionIndex(Bus(settings_for(server), SystemClock()), 0, clock)
    try:
        wait_until(lambda: server.subscriptions == 2)
        server.drop_every = 0
        clock.advance(60)
        waiting = run_aside(lambda: index.wait_for_rows(0, len(history.events), settle_s=30))
        server.may_answer.set()
        assert waiting.result(120) is True
    finally:
        index.close()


def test_planner_returns_no_newest_position_while_the_connection_is_broken(
    server: HistoryBus, history: History
) -> None:
    server.drop_every, server.holds_after_drop = 1, True
    planner = BusPlanner(Bus(settings_for(server), SystemClock()), SystemClock(), settle_s=0)
    try:
        planner.cut(0, None)
        wait_until(lambda: server.subscriptions == 2)
        assert planner.newest() is None
        server.drop_every = 0
        server.may_answer.set()
        wait_until(lambda: planner.newest() == history.position)
    finally:
        planner.close()


def test_index_that_is_full_hands_out_what_it_has_and_continues(server: HistoryBus, history: History) -> None:
    index = PositionIndex(Bus(settings_for(server), SystemClock()), 0, SystemClock(), max_ahead=50)
    try:
        seen: list[int] = []
        after = 0
        index.aim(history.position)
        while index.wait_for_rows(after, 1_000, settle_s=120):
            through = index.cut(after, None)
            seen += index.positions_in(after, through)
            index.forget(through)
            after = through
        seen += index.positions_in(after, index.cut(after, None))
    finally:
        index.close()
    assert seen == [event.replay_id for event in history.events]


def test_stream_that_the_server_ends_is_opened_again_and_not_for_ever(server: HistoryBus) -> None:
    server.end_every = True
    bus = Bus(replace(settings_for(server), retry_s=0.3), SystemClock())
    with pytest.raises(ServerUnreachable, match="ended the subscription"):
        next(bus.stream(0, threading.Event()))
    assert 2 <= server.subscriptions < 20


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
        ({"endpoint": "h:1", "topic": "/t", "token": "t", "org_id": "o", "tls": "yes"}, "tls"),
    ],
)
def test_options_that_make_no_sense_are_rejected_by_name(options: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        parse_settings(options)
    assert raised.value.details["setting"] == setting


def test_option_that_no_source_has_is_rejected_with_the_nearest_one() -> None:
    known = SERVER_OPTIONS | {"max_rows"}
    check_names(["Endpoint", "max_rows", "path", "provider", "serialization.format"], known)
    with pytest.raises(ConfigInvalid, match="no option 'max_row'; did you mean 'max_rows'"):
        check_names(["endpoint", "max_row"], known)
    with pytest.raises(ConfigInvalid, match=r"no option 'zzz': there are client_id, .* username"):
        check_names(["zzz"], known)


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


def test_stream_whose_new_session_is_rejected_too_gives_up(server: HistoryBus) -> None:
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
