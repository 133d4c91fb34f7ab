"""The export of the log as the pipeline's client reads it, from a live server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from tests.edges import edged
from tests.orgs import READER
from tests.pipeline.archive_lake import settings_for
from tests.pipeline.histories import History, write_bronze
from tests.running import Rest
from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD
from tidewire.errors import ChannelUnknown, ReplayIdExpired, ReplayIdInvalid
from tidewire.pipeline.lake.spans import Span, join_spans
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.source.archive_replay import HybridPlanner
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.source.event_source import ROWS, ReadSettings, read_partition
from tidewire.pipeline.source.log_export import LogExport, find_export
from tidewire.pipeline.source.offsets import Offset
from tidewire.pipeline.source.plans import BusPlanner, ExportPlanner, open_planner
from tidewire.testing import ServerProcess

CONTACTS = "/data/ContactChangeEvent"


@pytest.fixture
def bus(server: ServerProcess) -> Iterator[Bus]:
    opened = Bus(settings_for(server, CONTACTS), SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def export(bus: Bus) -> Iterator[LogExport]:
    opened = LogExport(bus)
    yield opened
    opened.close()


@pytest.fixture
def contacts(rest: Rest, export: LogExport) -> tuple[int, int]:
    """The positions before and after thirty contacts."""
    before = export.plan(0, limit=0).head
    for i in range(30):
        rest.create("Contact", {"LastName": f"Export {i}", "Description": "x" * 500})
    return before, export.plan(0, limit=0).head


def rows_of(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema=ROWS)


def test_span_read_from_the_export_equals_the_subscription(
    server: ServerProcess, bus: Bus, contacts: tuple[int, int]
) -> None:
    after, through = contacts
    clock = SystemClock()
    planners = (BusPlanner(bus, clock, 2.0), ExportPlanner(bus, server.http, clock))
    tables = []
    for planner in planners:
        parts = planner.divide(Span(after, through), 7)
        assert join_spans(part.span for part in parts) == Span(after, through)
        assert len(parts) == 5
        read = [read_partition(bus.settings, ReadSettings(), part) for part in parts]
        tables.append(rows_of(batch for batches in read for batch in batches))
        planner.close()
    by_bus, by_export = tables
    assert by_bus.num_rows == 30
    assert by_export.equals(by_bus)


def test_planner_over_the_export_cuts_by_rows_and_stops_at_its_bound(
    server: ServerProcess, rest: Rest, bus: Bus, export: LogExport, contacts: tuple[int, int]
) -> None:
    after, through = contacts
    planner = ExportPlanner(bus, server.http, SystemClock())
    end = planner.cut(after, 10)
    assert sum(rows for _, rows in export.plan(after, through=end, limit=100).parts) == 10
    planner.bound()
    rest.create("Contact", {"LastName": "Too late"})
    assert after < end < through <= planner.cut(end, None)
    bound = planner.cut(end, 1_000)
    assert planner.cut(bound, 1_000) == bound
    assert planner.cut(bound, None) == bound
    assert planner.starting("earliest") <= after
    assert planner.starting("latest") > bound
    assert planner.starting(after) == after
    with pytest.raises(ReplayIdInvalid):
        planner.starting(through + (1 << 40))  # the bound alone would make an empty read of it
    planner.check(Offset(through, planner.incarnation_of(through)))
    with pytest.raises(ReplayIdInvalid, match="belongs to incarnation other-1"):
        planner.check(Offset(through, "other-1"))
    planner.close()


def test_archive_that_begins_later_than_the_log_leaves_older_events_to_the_server(
    server: ServerProcess, bus: Bus, export: LogExport, contacts: tuple[int, int], tmp_path: Path
) -> None:
    after, through = contacts
    later = History(through)
    later.create("Contact", {"Name.LastName": "archived"})
    later.commit()
    lake = Lake(str(tmp_path / "lake"))
    write_bronze(lake, later.events, later.position)
    planner = HybridPlanner(lake, ExportPlanner(bus, server.http, SystemClock()))
    oldest = export.plan(0, limit=0).after
    assert planner.starting("earliest") == oldest
    # A time leads to the first change; the log may begin before it with events of other kinds.
    assert oldest <= planner.starting("@1000") <= after
    planner.close()


def test_export_is_found_by_itself_unless_it_is_turned_off(server: ServerProcess, bus: Bus) -> None:
    assert find_export(bus) == server.http
    assert isinstance(open_planner(bus, SystemClock(), 2.0), ExportPlanner)
    assert find_export(Bus(replace(bus.settings, export="off"), SystemClock())) is None


def test_reader_without_the_permissions_is_served_by_the_subscription(server: ServerProcess) -> None:
    settings = BusSettings(
        server.grpc, "/data/AccountChangeEvent", username=READER, password=DEV_PASSWORD, login_url=server.http
    )
    assert find_export(Bus(settings, SystemClock())) is None


def test_export_that_was_asked_for_and_is_not_there_is_an_error(server: ServerProcess, bus: Bus) -> None:
    assert find_export(Bus(replace(bus.settings, export=server.http), SystemClock())) == server.http
    unknown = replace(bus.settings, export=server.http, topic="/data/No__chn")
    with pytest.raises(ChannelUnknown):
        find_export(Bus(unknown, SystemClock()))


def test_export_over_connections_that_break_gives_each_event_once(
    server: ServerProcess, bus: Bus, export: LogExport, contacts: tuple[int, int]
) -> None:
    span = Span(*contacts)
    whole = rows_of(export.read(span))
    with _Cutter(server.http, after_bytes=(900, 5_000, 12_000, 20_000)) as cutter:
        cut = LogExport(bus, cutter.url)
        broken = rows_of(cut.read(span))
        cut.close()
    assert broken.equals(whole)
    assert cutter.connections > 4


def test_position_that_is_too_old_or_was_never_assigned_is_reported_as_such(
    export: LogExport, contacts: tuple[int, int]
) -> None:
    with pytest.raises(ReplayIdInvalid, match=f"after replay id {contacts[1] + 10**9}"):
        export.plan(contacts[1] + 10**9, limit=1)
    with pytest.raises(ReplayIdExpired, match="after replay id 12345"):
        next(export.read(Span(12_345, contacts[1])))


def test_export_through_an_edge_process_is_whole(tmp_path: Path) -> None:
    with edged(tmp_path / "data", 1) as server:
        rest = Rest(server.http, server.login())
        records = [
            {"attributes": {"type": "Contact"}, "LastName": f"Edge {i}", "Description": "y" * 2_000}
            for i in range(200)
        ]
        for _ in range(12):
            rest.call(
                "POST", "/services/data/v60.0/composite/sobjects", {"allOrNone": True, "records": records}
            )
        rest.close()
        bus = Bus(settings_for(server, CONTACTS), SystemClock())
        export = LogExport(bus, server.http)
        plan = export.plan(0, limit=10_000)
        rows = rows_of(export.read(Span(plan.after, plan.through)))
        assert sum(count for _, count in plan.parts) == rows.num_rows > 0
        assert rows["transaction_last"][-1].as_py() <= plan.head
        export.close()
        bus.close()


class _Cutter:
    """Passes bytes to a server and back, and breaks each of its first connections after so many."""

    def __init__(self, url: str, after_bytes: tuple[int, ...]) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 80)
        self._after_bytes = list(after_bytes)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> _Cutter:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            left = self._after_bytes.pop(0) if self._after_bytes else 1 << 40
            server = socket.create_connection(self._target)
            threading.Thread(target=self._pass, args=(peer, server, 1 << 40), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, peer, left), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, left: int) -> None:
        try:
            while data := source.recv(min(4096, left)):
                sink.sendall(data)
                left -= len(data)
                if left <= 0:
                    break
        except OSError:
            pass
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
