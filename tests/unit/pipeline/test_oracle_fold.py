"""Decode and fold against the oracle on Arrow tables alone, at every position and with every base."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.histories import SCHEMAS, native_rows
from tests.unit.pipeline.oracle import ENTITIES, Org
from tidewire.pipeline.apply.decode import Decoder
from tidewire.pipeline.lake.columns import Kind, merge_kinds, parse_kinds
from tidewire.pipeline.lake.tables import BRONZE, READS
from tidewire.pipeline.replicas.fold import READS as READ_TYPES
from tidewire.pipeline.replicas.fold import fold_records, is_wildcard_id
from tidewire.pipeline.replicas.record_history import trace_records

TEXTS = {schema.schema_id: schema.json for versions in SCHEMAS.values() for schema in versions}
KINDS = {schema_id: parse_kinds(text) for schema_id, text in TEXTS.items()}
Rows = dict[str, tuple[dict[str, Any], bool, bool]]


def decode_all(org: Org) -> dict[str, pa.Table]:
    """Every change, by entity, with the columns of READS."""
    rows = [
        {
            "replay_id": e.replay_id,
            "schema_id": e.schema_id,
            "payload": e.payload,
            "entity": e.header["entityName"],
            "change_type": e.header["changeType"],
            "record_ids": e.header["recordIds"],
        }
        for e in org.history.events
    ]
    decoder = Decoder(TEXTS)
    decoder.add(pa.RecordBatch.from_pylist(rows, schema=BRONZE))
    found = {entity: rows.render() for entity, rows in decoder.decoded.rows.items()}
    return {entity: pa.Table.from_pylist(t.to_pylist(), schema=READS) for entity, t in found.items()}


def add_reads(org: Org, entity: str, changes: pa.Table, most_unsettled: int = 2) -> pa.Table:
    """Some records read at some moments."""
    rows: list[dict[str, Any]] = []
    ids = sorted({*org.live[entity], *org.bin[entity]})
    for record_id in org.random.sample(ids, len(ids) // 3):
        i = org.random.randrange(len(org.past))
        last = min(i + org.random.randint(0, most_unsettled), len(org.past) - 1)
        fence, settled = org.past[i][0], org.past[last][0]
        values = org.rows_at(entity, settled).get(record_id)
        org.read(entity, record_id, fence, settled, settled)
        rows.append(
            {
                "record_id": record_id,
                "replay_id": fence,
                "change_type": "READ" if values is not None else "MISSING",
                "commit_ms": 1_700_000_000_000,
                "schema_id": org.schema_at(entity, settled).schema_id,
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
    events = changes.filter(pc.is_null(changes["fence"]))
    for schema_id, replay_id, problem in zip(
        *(events[name].to_pylist() for name in ("schema_id", "replay_id", "problem")), strict=True
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
def test_states_of_history_join_and_tell_what_each_record_was_at_any_position(seed: int) -> None:
    org = Org(seed, conceals=True)
    for _ in range(10):
        org.transact()
    end = org.history.position
    for entity, events in decode_all(org).items():
        changes = add_reads(org, entity, events, most_unsettled=0)
        kinds = kinds_at(entity, changes, end)
        traced = trace_records(changes, kinds, end).to_pylist()
        assert len(traced) >= events.num_rows
        by_record: dict[str, list[dict[str, Any]]] = {}
        for row in sorted(traced, key=lambda row: (row["replay_id"], row["change_type"] in READ_TYPES)):
            if is_wildcard_id(row["record_id"]):
                assert row["before_json"] is row["after_json"] is row["valid_to"] is None
            elif row["valid_from"] is not None:  # of one that did not decode nobody knows the time
                by_record.setdefault(row["record_id"], []).append(row)
        for rows in by_record.values():
            assert rows[0]["before_json"] is None
            assert rows[-1]["valid_to"] is None
            for earlier, later in pairwise(rows):
                assert earlier["after_json"] == later["before_json"]
                assert earlier["valid_to"] == later["valid_from"] >= earlier["valid_from"]
                assert later["change_type"] not in READ_TYPES or later["after_json"] != later["before_json"]
        # What types were before is told in the columns of the end, so that object is looked at only there.
        for position in [end] if entity == "Bill__c" else [position for position, _ in org.past]:
            found = {
                record_id: [row for row in rows if row["replay_id"] <= position][-1]["after_json"]
                for record_id, rows in by_record.items()
                if rows[0]["replay_id"] <= position
            }
            expected = {
                record_id: None if is_deleted else values
                for record_id, (values, is_deleted, _) in told(org, entity, position).items()
            }
            states = {record_id: text and json.loads(text) for record_id, text in found.items()}
            assert {i: state for i, state in states.items() if i in expected or state} == expected


def test_every_kind_of_change_occurs_in_what_is_generated() -> None:
    kinds = {t.kind for seed in range(30) for t in _told_by(seed)}
    assert kinds >= {"full", "update", "delete", "gap", "overflow", "wildcard", "version"}


def test_every_form_of_event_occurs_in_what_is_generated() -> None:
    orgs = [_run(seed) for seed in range(30)]
    headers = [event.header for org in orgs for event in org.history.events]
    assert {header["changeType"] for header in headers} == {
        *("CREATE", "UPDATE", "DELETE", "UNDELETE"),
        *("GAP_CREATE", "GAP_UPDATE", "GAP_DELETE", "GAP_UNDELETE", "GAP_OVERFLOW"),
    }
    assert any(len(h["recordIds"]) > 1 and h["changeType"] == "UPDATE" for h in headers)
    assert any(len(h["recordIds"]) > 1 and h["changeType"] == "GAP_UPDATE" for h in headers)
    assert any(h["diffFields"] for h in headers)
    assert any(h["nulledFields"] for h in headers)
    assert any("-" in entry for h in headers for entry in h["changedFields"])
    assert {org.version["Bill__c"] for org in orgs} >= {0, 1, len(SCHEMAS["Bill__c"]) - 1}
    positions = [[event.replay_id for event in org.history.events] for org in orgs]
    assert any(len(set(each)) < len(each) for each in positions)
    assert {org.tells_ends for org in orgs} == {True, False}
    assert any(org.corrupt for org in orgs)


def _told_by(seed: int) -> list[Any]:
    org = _run(seed)
    assert set(org.live) == set(ENTITIES)
    return org.oracle.told


def _run(seed: int) -> Org:
    org = Org(seed)
    for _ in range(25):
        org.transact()
    return org
