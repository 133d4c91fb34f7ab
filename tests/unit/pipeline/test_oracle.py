"""The lake against the oracle: any history, cut anywhere, with reads and bases in between."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import SCHEMAS, native_rows, write_bronze
from tests.pipeline.verdict import manifest_positions
from tests.unit.pipeline.fold_base import make_base
from tests.unit.pipeline.oracle import ENTITIES, Org
from tidewire.pipeline.apply.dead_letters import open_letters
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import DIRTY_TABLE, Dirty, open_dirty, open_resyncs, render_control
from tidewire.pipeline.lake.tables import READS, Lake, append_counted, append_rows, open_table
from tidewire.pipeline.replicas.replica import read_replica

EPOCH = 1
Rows = dict[tuple[str, str], tuple[dict[str, Any], bool, bool]]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp())
    yield place
    shutil.rmtree(place)


def lake_rows(lake: Lake, as_of: int | None = None) -> Rows:
    """(values, is deleted, is stale) of every row of every replica."""
    row = manifest.newest(lake, as_of)
    found: Rows = {}
    for entity in row.entities if row is not None else ():
        rows = read_replica(lake, entity, as_of=as_of, with_deleted=True)
        for (record_id, is_deleted, values), is_stale in zip(
            native_rows(rows), rows["_stale"].to_pylist(), strict=True
        ):
            found[entity, record_id] = values, is_deleted, is_stale
    return found


def oracle_rows(org: Org, position: int) -> Rows:
    return {
        key: (state.values, state.is_deleted, state.is_stale)
        for key, state in org.oracle.at(position).items()
    }


def commit_reads(lake: Lake, org: Org, entity: str, ids: list[str], fence: int, settled: int) -> None:
    """Read records as a server would that answers at a moment between the two positions."""
    now = org.random.choice([fence, settled])
    rows: list[dict[str, Any]] = []
    for record_id in ids:
        org.read(entity, record_id, fence, settled, now)
        values = org.rows_at(entity, now).get(record_id)
        rows.append(
            {
                "record_id": record_id,
                "replay_id": fence,
                "sequence": len(org.oracle.told),
                "change_type": "MISSING" if values is None else "READ",
                "commit_ms": 0,
                "schema_id": org.schema_at(entity, now).schema_id,
                "values_json": json.dumps(values or {}),
                "fence": fence,
                "settled": settled,
            }
        )
    with manifest.lock:
        table = open_table(lake, f"reads/{entity}")
        append_rows(table, pa.Table.from_pylist(rows, schema=READS), None, EPOCH, "reads")
        done = [Dirty(entity, record_id, fence, "") for record_id in ids]
        append_counted(lake, DIRTY_TABLE, render_control(done, 0, "done"), EPOCH, "reads")
        row = manifest.newest(lake)
        state = row.entities.get(entity) if row is not None else None
        # An object of which nothing but a damaged event has come has no schema yet either.
        is_new = state is None or not state.schemas
        schemas = {entity: [SCHEMAS[entity][0].schema_id]} if is_new else {}
        versions = {table.name: table.delta.version()}
        manifest.append(lake, EPOCH, 0, cause="reads", versions=versions, schemas=schemas)


def knows(lake: Lake, position: int, entity: str) -> bool:
    row = manifest.newest(lake, position)
    return row is not None and entity in row.entities


def read_something(lake: Lake, org: Org) -> None:
    """Read some records at a fence between the base and the end of the log, perhaps above what is applied."""
    row = manifest.newest(lake)
    entity = org.random.choice(ENTITIES)
    base = row.entities[entity].base_position if row is not None and entity in row.entities else -1
    # A moment that is over, when nothing of the object was known, has no columns for what is read of it later.
    moments = manifest_positions(lake)[:-1] if row is not None else []
    unaware = [position for position in moments if not knows(lake, position, entity)]
    fences = [
        position for position, _ in org.past if position >= base and position > max(unaware, default=-1)
    ]
    if not fences:
        return
    i = org.random.randrange(len(fences))
    settled = org.random.choice(fences[i : i + 3])
    ids = sorted({*org.live[entity], *org.bin[entity]})
    commit_reads(lake, org, entity, org.random.sample(ids, min(len(ids), 3)), fences[i], settled)


@pytest.mark.timeout(300)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), max_rows=st.integers(4, 40))
def test_lake_equals_the_oracle_after_every_manifest(scratch: Path, seed: int, max_rows: int) -> None:
    org = Org(seed, conceals=True)
    lake = Lake(tempfile.mkdtemp(dir=scratch))
    for _ in range(org.random.randint(2, 5)):
        first = len(org.history.events)
        for _ in range(org.random.randint(1, 6)):
            org.transact()
        events = org.history.events[first:]
        repeated = [event for event in events for _ in range(1 + (org.random.random() < 0.1))]
        write_bronze(lake, repeated, org.history.position)
        if org.random.random() < 0.5:
            read_something(lake, org)
        apply_all(lake, max_rows)
        assert lake_rows(lake) == oracle_rows(org, org.history.position)
        if org.random.random() < 0.7:
            read_something(lake, org)
            assert lake_rows(lake) == oracle_rows(org, org.history.position)
        if org.random.random() < 0.6:
            make_base(lake, org.random.choice(ENTITIES), EPOCH)
            assert lake_rows(lake) == oracle_rows(org, org.history.position)
    for position in manifest_positions(lake):
        assert lake_rows(lake, position) == oracle_rows(org, position)
    assert {letter.replay_id for letter in open_letters(lake)} == org.corrupt


@pytest.mark.timeout(300)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_reading_what_the_control_tables_ask_for_makes_the_lake_equal_the_org(
    scratch: Path, seed: int
) -> None:
    org = Org(seed)
    lake = Lake(tempfile.mkdtemp(dir=scratch))
    for _ in range(14):
        org.transact()
    write_bronze(lake, org.history.events, org.history.position)
    apply_all(lake, 12)
    end = org.history.position
    for entity, asked in open_dirty(lake).items():
        commit_reads(lake, org, entity, sorted(asked), end, end)
    for entity in open_resyncs(lake):
        ids = {*org.live[entity], *org.bin[entity]}
        commit_reads(lake, org, entity, sorted(ids), end, end)
    truth = {(entity, i): row for entity in ENTITIES for i, row in org.live[entity].items()}
    found = {
        key: {name: value for name, value in values.items() if "__old_" not in name}
        for key, (values, is_deleted, _) in lake_rows(lake).items()
        if not is_deleted
    }
    assert found == truth
    assert not any(is_stale for _, is_deleted, is_stale in lake_rows(lake).values() if not is_deleted)
    assert open_dirty(lake) == {}
