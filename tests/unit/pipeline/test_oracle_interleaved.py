"""The lake against the oracle while everything that keeps a lake works on it, in any order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.verdict import manifest_positions
from tests.unit.pipeline.fold_base import make_base
from tests.unit.pipeline.oracle import ENTITIES, Org
from tests.unit.pipeline.test_oracle import lake_rows, oracle_rows
from tests.unit.pipeline.upkeep.test_resync import EPOCH, Mirror
from tidewire.errors import StoreClosed
from tidewire.pipeline.apply.dead_letters import retry
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import try_open_table
from tidewire.pipeline.upkeep.audit import audit
from tidewire.pipeline.upkeep.compaction import CompactionRules, Compactor
from tidewire.pipeline.upkeep.purge import purge

AT_ONCE = CompactionRules(readable_s=1e9, keep_bronze_days=0, keep_history_days=0)
"""Everything is dropped that no readable moment needs, and all moments stay readable."""


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp())
    yield place
    shutil.rmtree(place)


class Kept(Mirror):
    """A lake with all of its housekeeping, and what was ever read into it."""

    def __init__(self, org: Org, place: Path) -> None:
        super().__init__(org, place)
        self.reads_seen: set[tuple[str, str, int, int]] = set()

    def keep(self) -> None:
        """One of the things that nobody waits for."""
        compactor = Compactor(self.lake, EPOCH, self.clock, AT_ONCE)
        match self.org.random.choice(["join", "forget", "drop", "audit", "retry", "base"]):
            case "join":
                for name in compactor.names():
                    compactor.join(name, at_least=2)
            case "forget":
                self.clock.advance(3_601)
                compactor.forget_done()
            case "drop":
                self.note_reads()
                compactor.drop_old()
            case "audit":
                self.audit(self.org.random.choice(ENTITIES))
            case "retry":
                retry(self.lake, EPOCH, self.clock)
            case _:
                for entity in ENTITIES:
                    make_base(self.lake, entity, EPOCH)

    def audit(self, entity: str) -> int | None:
        """How many records of an object differ; None if apply is behind."""
        try:
            return audit(self.lake, EPOCH, self.reader, entity, self.clock, wait_s=0).drifted
        except StoreClosed:
            return None

    def note_reads(self) -> None:
        """Tell the oracle of reads before they are dropped."""
        for name in self.lake.names("reads"):
            table = try_open_table(self.lake, name)
            for row in read_rows(table).to_pylist() if table is not None else ():
                key = name.partition("/")[2], row["record_id"], row["fence"], row["settled"]
                if key not in self.reads_seen:
                    self.reads_seen.add(key)
                    self.org.read(*key, key[2])


@pytest.mark.timeout(300)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_lake_under_all_its_housekeeping_equals_the_oracle_at_every_position(
    scratch: Path, seed: int
) -> None:
    mirror = Kept(Org(seed, conceals=True), scratch)
    for _ in range(mirror.org.random.randint(6, 14)):
        mirror.org.transact()
        mirror.step()
        mirror.keep()
    mirror.settle()
    for entity in ENTITIES:
        mirror.audit(entity)
    mirror.note_reads()
    positions = manifest_positions(mirror.lake)
    for position in positions:
        assert lake_rows(mirror.lake, position) == oracle_rows(mirror.org, position)
    assert mirror.living() == mirror.truth()
    assert [mirror.audit(entity) for entity in ENTITIES] == [0] * len(ENTITIES)
    row = manifest.newest(mirror.lake)
    assert row is not None
    assert {(state.state, state.dirty) for state in row.entities.values()} == {("ready", 0)}
    entity, record_id = mirror.org.random.choice(sorted(lake_rows(mirror.lake)))
    purge(mirror.lake, EPOCH, entity, record_id, mirror.clock)
    for position in positions:
        expected = oracle_rows(mirror.org, position)
        expected.pop((entity, record_id), None)
        assert lake_rows(mirror.lake, position) == expected
