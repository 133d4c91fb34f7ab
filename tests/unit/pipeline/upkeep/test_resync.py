"""Snapshot, resync and reconcile of a simulated org that keeps changing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import write_bronze
from tests.pipeline.verdict import manifest_positions
from tests.unit.pipeline.fold_base import make_base
from tests.unit.pipeline.oracle import ENTITIES, Org
from tests.unit.pipeline.org_reader import OrgReader
from tests.unit.pipeline.test_oracle import lake_rows, oracle_rows
from tidewire.clock import ManualClock
from tidewire.errors import AccessDenied, PlatformError, StoreClosed
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import OPEN, Dirty, Resync, failed_resyncs, open_resyncs
from tidewire.pipeline.lake.dirty import append_dirty, failed_records, open_records
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.status.lake_status import read_status
from tidewire.pipeline.upkeep import resync, snapshot
from tidewire.pipeline.upkeep.fenced_reads import FencedReader
from tidewire.pipeline.upkeep.reconcile import Reconciler
from tidewire.pipeline.upkeep.resync import Resyncer

EPOCH = 1


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp())
    yield place
    shutil.rmtree(place)


class Mirror:
    """A lake that follows an org, step by step."""

    def __init__(self, org: Org, place: Path) -> None:
        self.org = org
        self.lake = Lake(tempfile.mkdtemp(dir=place))
        self.reader = OrgReader(org)
        self.clock = ManualClock()
        self.archived = 0
        self.reconciler = Reconciler(self.lake, EPOCH, self.reader, self.clock)
        self.resyncer = Resyncer(self.lake, EPOCH, self.reader, self.clock, rows_per_page=3)

    def archive(self) -> None:
        events = [event for event in self.org.history.events if event.replay_id > self.archived]
        if self.org.history.position > self.archived:
            write_bronze(self.lake, events, self.org.history.position)
            self.archived = self.org.history.position

    def apply(self) -> None:
        if self.archived:
            apply_all(self.lake, 15)

    def step(self) -> None:
        """Something that the pipeline may do at any time."""
        self.clock.advance(1)
        match self.org.random.choice(["archive", "apply", "reconcile", "resync", "resync", "base"]):
            case "archive":
                self.archive()
            case "apply":
                self.apply()
            case "reconcile":
                self.reconciler.once(self.org.random.randint(1, 5))
            case "resync":
                self.resyncer.advance(1)
            case _:
                make_base(self.lake, self.org.random.choice(ENTITIES), EPOCH)

    def settle(self) -> None:
        """Go on until nothing is left to do."""
        for _ in range(60):
            self.clock.advance(1)
            self.archive()
            self.apply()
            self.reconciler.once()
            self.resyncer.advance()
            if not open_records(self.lake) and not open_resyncs(self.lake):
                return
        pytest.fail(f"{open_records(self.lake)} {open_resyncs(self.lake)}")

    def living(self) -> dict[tuple[str, str], dict[str, Any]]:
        rows = lake_rows(self.lake)
        assert not any(is_stale for _, is_deleted, is_stale in rows.values() if not is_deleted)
        return {
            key: {name: value for name, value in values.items() if "__old_" not in name}
            for key, (values, is_deleted, _) in rows.items()
            if not is_deleted
        }

    def truth(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(entity, i): row for entity in ENTITIES for i, row in self.org.live[entity].items()}


@pytest.mark.timeout(300)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_lake_started_in_the_middle_by_a_snapshot_ends_equal_to_the_org(scratch: Path, seed: int) -> None:
    mirror = Mirror(Org(seed), scratch)
    for _ in range(mirror.org.random.randint(1, 8)):
        mirror.org.transact()
    mirror.archived = snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock)
    for _ in range(mirror.org.random.randint(4, 20)):
        if mirror.org.random.random() < 0.4:
            mirror.org.transact()
        mirror.step()
    mirror.settle()
    assert mirror.living() == mirror.truth()
    row = manifest.newest(mirror.lake)
    assert row is not None
    assert {state.state for state in row.entities.values()} == {"ready"}


@pytest.mark.timeout(300)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
@example(seed=71)  # a base is made while a read has brought a type that apply has not reached
@example(seed=1063)  # an overflow, and later in the same batch a renamed field
@example(seed=2042)  # the last chunk of a resync is empty, and its schema newer than what apply has reached
def test_lake_with_reads_at_any_time_equals_the_oracle_at_every_position(scratch: Path, seed: int) -> None:
    mirror = Mirror(Org(seed), scratch)
    for _ in range(mirror.org.random.randint(8, 20)):
        mirror.org.transact()
        mirror.step()
        mirror.step()
    mirror.settle()
    for name in mirror.lake.names("reads"):
        table = try_open_table(mirror.lake, name)
        assert table is not None
        for row in read_rows(table).to_pylist():
            fence = row["fence"]
            mirror.org.read(name.partition("/")[2], row["record_id"], fence, row["settled"], fence)
    for position in manifest_positions(mirror.lake):
        assert lake_rows(mirror.lake, position) == oracle_rows(mirror.org, position)
    assert mirror.living() == mirror.truth()


def test_snapshot_of_an_org_without_records_is_done(scratch: Path) -> None:
    mirror = Mirror(Org(1), scratch)
    snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock)
    mirror.settle()
    assert mirror.living() == {}


def test_snapshot_again_reads_everything_again_though_the_log_has_not_moved(scratch: Path) -> None:
    mirror = Mirror(Org(2), scratch)
    for _ in range(5):
        mirror.org.transact()
    for _ in range(2):
        mirror.archived = snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock)
        assert set(open_resyncs(mirror.lake)) == set(ENTITIES)
        before = mirror.reader.reads
        mirror.settle()
        assert mirror.reader.reads >= before + len(ENTITIES)
        mirror.clock.advance(1)
    assert mirror.living() == mirror.truth()


def test_snapshot_completes_and_can_be_repeated_when_the_clock_is_set_back(
    scratch: Path,
) -> None:
    mirror = Mirror(Org(2), scratch)
    for _ in range(5):
        mirror.org.transact()
    mirror.archived = snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock)
    mirror.resyncer.advance(1)
    mirror.clock.step(-7_200)
    mirror.settle()
    mirror.clock.step(-7_200)
    snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock)
    assert set(open_resyncs(mirror.lake)) == set(ENTITIES)
    mirror.settle()
    assert mirror.living() == mirror.truth()


def ask_without_contacts(scratch: Path, entities: Sequence[str]) -> Mirror:
    """A lake whose objects are asked for at a server that refuses to give contacts."""
    mirror = Mirror(Org(4), scratch)
    for _ in range(4):
        mirror.org.transact()
    mirror.reader.refuse = lambda entity, ids: AccessDenied("no") if entity == "Contact" else None
    mirror.archived = snapshot.read_position(mirror.reader, "Account")
    snapshot.begin(mirror.lake, EPOCH, mirror.archived, mirror.clock)
    asked = [Resync(entity, "snapshot", mirror.archived) for entity in entities]
    resync.request_resyncs(mirror.lake, EPOCH, mirror.clock.now_ms(), asked)
    return mirror


def test_object_read_after_it_had_failed_is_ready_though_the_clock_was_set_back(scratch: Path) -> None:
    mirror = ask_without_contacts(scratch, ["Contact"])
    while open_resyncs(mirror.lake):
        mirror.clock.advance(400)
        mirror.resyncer.advance()
    assert set(failed_resyncs(mirror.lake)) == {"Contact"}
    mirror.reader.refuse = lambda entity, ids: None
    mirror.clock.step(-7_200)
    while "Contact" not in open_resyncs(mirror.lake):
        mirror.org.transact()
        mirror.org.overflow("Contact")
        mirror.org.history.commit()
        mirror.org.past.append(
            (mirror.org.history.position, {e: dict(r) for e, r in mirror.org.live.items()})
        )
        mirror.archive()
        mirror.apply()
    mirror.clock.advance(400)
    mirror.settle()
    assert failed_resyncs(mirror.lake) == {}


def test_snapshot_that_was_interrupted_continues_with_the_chunks_it_has(scratch: Path) -> None:
    mirror = Mirror(Org(9), scratch)
    while len(mirror.org.live["Account"]) < 7:
        mirror.org.transact()
    mirror.archived = snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock)
    asked = open_resyncs(mirror.lake)
    while not resync.read_chunks(mirror.lake, asked["Account"]):
        mirror.resyncer.advance(1)
    read = {entity: resync.read_chunks(mirror.lake, each) for entity, each in asked.items()}
    mirror.clock.advance(1)
    mirror.org.transact()
    snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock)
    still = open_resyncs(mirror.lake)
    assert "Account" in still
    assert {entity: resync.read_chunks(mirror.lake, each) for entity, each in still.items()} == read
    mirror.settle()
    assert mirror.living() == mirror.truth()


def test_resync_that_apply_has_not_reached_waits_and_then_is_done(scratch: Path) -> None:
    mirror = Mirror(Org(3), scratch)
    mirror.org.transact()
    mirror.archive()
    mirror.apply()
    mirror.org.transact()
    resync.request_resyncs(mirror.lake, EPOCH, mirror.clock.now_ms(), [Resync("Account", "audit", 1)])
    assert [each.state for each in mirror.resyncer.advance() if each.entity == "Account"] == ["reading"]
    assert [each.state for each in mirror.resyncer.advance() if each.entity == "Account"] == ["waiting"]
    mirror.settle()
    assert "Account" not in open_resyncs(mirror.lake)


def test_object_that_cannot_be_read_ends_as_failed_and_holds_up_nobody(scratch: Path) -> None:
    mirror = ask_without_contacts(scratch, ENTITIES)
    for _ in range(30):
        mirror.clock.advance(400)
        mirror.resyncer.advance()
    assert open_resyncs(mirror.lake) == {}
    assert set(failed_resyncs(mirror.lake)) == {"Contact"}
    row = manifest.newest(mirror.lake)
    assert row is not None
    states = {entity: state.state for entity, state in row.entities.items()}
    assert states == {"Account": "ready", "Bill__c": "ready", "Contact": "failed", "Invoice__c": "ready"}
    mirror.reader.refuse = lambda entity, ids: None
    snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock, ["Contact"])
    mirror.settle()
    assert failed_resyncs(mirror.lake) == {}
    assert mirror.living() == mirror.truth()


def refuse_one(record_id: str) -> Any:
    def refuse(entity: str, ids: Iterable[str]) -> PlatformError | None:
        return AccessDenied("not this one") if record_id in ids else None

    return refuse


def test_record_that_is_rejected_is_isolated_and_closed_as_failed(scratch: Path) -> None:
    mirror = Mirror(Org(5), scratch)
    while len(mirror.org.live["Account"]) < 5:
        mirror.org.transact()
    mirror.archive()
    mirror.apply()
    mirror.settle()
    ids = sorted(mirror.org.live["Account"])
    position = mirror.org.history.position
    # Asked for by an event that is later than what the server has read so far.
    mirror.org.transact()
    append_dirty(mirror.lake, EPOCH, 0, [Dirty("Account", each, position + 1, "gap") for each in ids], OPEN)
    mirror.reader.refuse = refuse_one(ids[2])
    mirror.clock.advance(400)
    mirror.reconciler.once()
    assert set(open_records(mirror.lake)["Account"]) == {ids[2]}
    before = mirror.reader.reads
    mirror.reconciler.once()
    assert mirror.reader.reads == before
    for _ in range(3):
        mirror.clock.advance(400)
        mirror.reconciler.once()
    assert "Account" not in open_records(mirror.lake)
    assert set(failed_records(mirror.lake)["Account"]) == {ids[2]}
    assert read_status(mirror.lake).given_up == 1
    mirror.reader.refuse = lambda entity, ids: None
    mirror.clock.advance(400)
    assert mirror.reconciler.retry_failed() == 1
    assert failed_records(mirror.lake) == {}
    assert read_status(mirror.lake).given_up == 0


def test_server_that_cannot_be_asked_fails_no_record(scratch: Path) -> None:
    mirror = Mirror(Org(6), scratch)
    append_dirty(mirror.lake, EPOCH, 0, [Dirty("Account", "001000000000001AAA", 1, "gap")], OPEN)
    mirror.reader.refuse = lambda entity, ids: StoreClosed("stopping")
    for _ in range(12):
        mirror.clock.advance(400)
        assert mirror.reconciler.once() == 0
    assert set(open_records(mirror.lake)) == {"Account"}
    assert failed_records(mirror.lake) == {}


def test_read_of_a_server_that_reports_no_position_lies_between_what_bronze_held(scratch: Path) -> None:
    mirror = Mirror(Org(7), scratch)
    while not mirror.org.live["Account"]:
        mirror.org.transact()
    mirror.archive()
    reader = FencedReader(mirror.lake, OrgReader(mirror.org, tells=False), settle_s=0)
    page = reader.read_range("Account", "", "", 10)
    assert page.fence == page.settled == mirror.org.history.position
    assert len(page.rows) == len(mirror.org.live["Account"])


def test_records_gone_in_great_number_are_settled_step_by_step(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "SUSPECTS_AT_ONCE", 2)
    mirror = Mirror(Org(8), scratch)
    while len(mirror.org.live["Account"]) < 7:
        mirror.org.transact()
    mirror.settle()
    mirror.org.transact()
    mirror.archive()
    mirror.apply()
    for rows in (mirror.org.live, mirror.org.past[-1][1]):
        rows["Account"].clear()
    snapshot.start(mirror.lake, EPOCH, mirror.reader, mirror.clock, ["Account"])
    states = []
    while open_resyncs(mirror.lake):
        found = {each.entity: each.state for each in mirror.resyncer.advance()}
        states.append(found.get("Account"))
        assert len(states) < 30
    assert states.count("reading") >= 4
    mirror.settle()
    assert mirror.living() == mirror.truth()
