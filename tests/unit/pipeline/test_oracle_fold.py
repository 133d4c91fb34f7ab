"""Decode and fold against the oracle on Arrow tables alone, at every position and with every base."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.histories import SCHEMAS, native_rows
from tests.unit.pipeline.oracle import ENTITIES, Org
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.columns import Kind, merge_kinds, parse_kinds
from tidewire.pipeline.decode import Decoder
from tidewire.pipeline.fold import fold_records
from tidewire.pipeline.record_history import trace_records
from tidewire.pipeline.tables import BRONZE, READS

TEXTS = {schema.schema_id: schema.json for versions in SCHEMAS.values() for schema in versions}
KINDS = {schema_id: parse_kinds(text) for schema_id, text in TEXTS.items()}
Rows = dict[str, tuple[dict[str, Any], bool, bool]]


def decode_all(org: Org) -> dict[str, pa.Table]:
    """Every change, by entity, with the columns of READS."""
    headers = {t.position: t for t in org.oracle.told if t.kind != "version"}
    rows = [
        {
            "replay_id": e.replay_id,
            "schema_id": e.schema_id,
            "payload": e.payload,
            "entity": headers[e.replay_id].entity,
            "change_type": "UPDATE",
            "record_ids": list(headers[e.replay_id].ids),
        }
        for e in org.history.events
    ]
    decoder = Decoder(TEXTS)
    decoder.add(pa.RecordBatch.from_pylist(rows, schema=BRONZE))
    found = {entity: rows.render() for entity, rows in decoder.decoded.rows.items()}
    return {entity: pa.Table.from_pylist(t.to_pylist(), schema=READS) for entity, t in found.items()}


def add_reads(org: Org, entity: str, changes: pa.Table) -> pa.Table:
    """Some records read at some moments."""
    rows: list[dict[str, Any]] = []
    ids = sorted({*org.live[entity], *org.bin[entity]})
    for record_id in org.random.sample(ids, len(ids) // 3):
        i = org.random.randrange(len(org.past))
        fence, settled = org.past[i][0], org.past[min(i + org.random.randint(0, 2), len(org.past) - 1)][0]
        values = org.rows_at(entity, settled).get(record_id)
        org.read(entity, record_id, fence, settled, settled)
        rows.append(
            {
                "record_id": record_id,
                "replay_id": fence,
                "change_type": "READ" if values is not None else "MISSING",
                "values_json": json.dumps(values or {}),
                "fence": fence,
                "settled": settled,
            }
        )
    return pa.concat_tables([changes, pa.Table.from_pylist(rows, schema=READS)])


def kinds_at(entity: str, changes: pa.Table, position: int) -> dict[str, Kind]:
    """The columns by the schemas of events up to a position, in the order of their last use; reads come by
    the first schema at least.
    """
    used = {SCHEMAS[entity][0].schema_id: -1}
    for schema_id, replay_id, problem in zip(
        *(changes[name].to_pylist() for name in ("schema_id", "replay_id", "problem")), strict=True
    ):
        if schema_id and replay_id <= position and problem != "payload_invalid":
            used[schema_id] = max(replay_id, used.get(schema_id, -1))
    return merge_kinds((schema_id, KINDS[schema_id]) for schema_id in sorted(used, key=used.__getitem__))


def as_rows(rows: pa.Table) -> Rows:
    states = zip(native_rows(rows), rows["_stale"].to_pylist(), strict=True)
    return {record_id: (values, is_deleted, stale) for (record_id, is_deleted, values), stale in states}


def told(org: Org, entity: str, position: int) -> Rows:
    return {
        record_id: (state.values, state.is_deleted, state.is_stale)
        for (other, record_id), state in org.oracle.at(position).items()
        if other == entity
    }


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_fold_at_every_position_over_any_base_equals_the_oracle(seed: int) -> None:
    org = Org(seed)
    for _ in range(12):
        org.transact()
    for entity, events in decode_all(org).items():
        changes = add_reads(org, entity, events)
        for position, _ in org.past[:: org.random.randint(1, 3)]:
            expected = told(org, entity, position)
            kinds = kinds_at(entity, changes, position)
            assert as_rows(fold_records(None, changes, kinds, position).rows) == expected
            cut = org.random.choice(org.past)[0]
            across = pc.and_(pc.less(changes["replay_id"], cut), pc.greater(changes["settled"], cut))
            if cut <= position and not pc.any(across).as_py():
                base = fold_records(None, changes, kinds_at(entity, changes, cut), cut).rows
                later = changes.filter(
                    pc.or_(pc.greater(changes["replay_id"], cut), pc.is_valid(changes["fence"]))
                )
                later = later.filter(pc.greater_equal(later["replay_id"], cut))
                assert as_rows(fold_records(base, later, kinds, position).rows) == expected


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_states_of_history_join_without_a_gap_and_end_with_the_replica(seed: int) -> None:
    org = Org(seed)
    for _ in range(10):
        org.transact()
    end = org.history.position
    for entity, changes in decode_all(org).items():
        kinds = kinds_at(entity, changes, end)
        traced = trace_records(changes, kinds, end).sort_by("replay_id").to_pylist()
        assert len(traced) == changes.num_rows
        last: dict[str, dict[str, Any]] = {}
        has_wildcard = any(row["record_id"].endswith("*") for row in traced)
        for row in traced:
            before = last.get(row["record_id"])
            if row["record_id"].endswith("*") or row["record_id"] == EMPTY_ID or row["commit_ms"] is None:
                assert row["valid_to"] is None
                continue
            if before is not None:
                assert before["valid_to"] == row["valid_from"]
                assert has_wildcard or before["after_json"] == row["before_json"]
            last[row["record_id"]] = row
        for record_id, (values, is_deleted, _) in told(org, entity, end).items():
            row = last[record_id]
            assert row["valid_to"] is None
            if not has_wildcard:
                assert (row["after_json"] is None) == is_deleted
                assert is_deleted or json.loads(row["after_json"]) == values


def test_every_kind_of_change_occurs_in_what_is_generated() -> None:
    kinds = {t.kind for seed in range(30) for t in _told_by(seed)}
    assert kinds >= {"full", "update", "delete", "gap", "overflow", "wildcard", "version"}


def _told_by(seed: int) -> list[Any]:
    org = Org(seed)
    for _ in range(12):
        org.transact()
    assert set(org.live) == set(ENTITIES)
    return org.oracle.told
