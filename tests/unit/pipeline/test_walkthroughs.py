"""The guide's own walk-throughs of gap and overflow events, step by step, with the race that its steps have; its lead
conversion, and its rules for buffering transactions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import PREFIXES, SCHEMAS, History, read_replicas, schema_of, write_bronze
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import Resync, open_dirty, open_resyncs
from tidewire.pipeline.lake.tables import READS, Lake, append_rows, open_table
from tidewire.pipeline.replicas.record_history import read_history
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.upkeep import resync
from tidewire.schema.standard.sales import LEAD, OPPORTUNITY

CONVERTED = {"Account", "Contact", "Opportunity", "Lead"}


@pytest.fixture
def sales() -> Iterator[None]:
    """Leads and opportunities, for this test alone."""
    SCHEMAS["Lead"], SCHEMAS["Opportunity"] = [schema_of(LEAD)], [schema_of(OPPORTUNITY)]
    PREFIXES["Lead"], PREFIXES["Opportunity"] = "00Q", "006"
    yield
    for name in ("Lead", "Opportunity"):
        del SCHEMAS[name], PREFIXES[name]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def archive(lake: Lake, history: History) -> None:
    write_bronze(lake, history.events, history.position)
    apply_all(lake, 1)


def read(lake: Lake, entity: str, fence: int, **found: dict[str, Any] | None) -> None:
    """Commit what the records API answered at a position; None for a record that is not there."""
    rows = [
        {
            "record_id": record_id,
            "replay_id": fence,
            "change_type": "MISSING" if values is None else "READ",
            "values_json": json.dumps(values or {}),
            "fence": fence,
            "settled": fence,
        }
        for record_id, values in found.items()
    ]
    table = open_table(lake, f"reads/{entity}", READS)
    append_rows(table, pa.Table.from_pylist(rows, schema=READS), None, 1, "reads")
    manifest.append(lake, 1, 0, cause="reads", versions={table.name: table.delta.version()})


def state(lake: Lake, entity: str, *names: str) -> dict[str, tuple[Any, ...]]:
    rows = read_replica(lake, entity).to_pylist()
    return {row["Id"]: tuple(row[name] for name in (*names, "_stale")) for row in rows}


def test_gap_event_of_record_c_beside_changes_of_a_and_b(lake: Lake) -> None:
    history = History()
    a, b, c = (history.create("Account", {"Name": name, "Phone": "0"}) for name in "abc")
    history.commit()
    # Records A and B change in one transaction; the change of C comes as a gap event.
    history.update("Account", [a], {"Phone": "1"})
    history.update("Account", [b], {"Phone": "2"})
    history.commit()
    history.add("Account", "GAP_UPDATE", [c], {})
    history.commit()
    gap = history.position
    archive(lake, history)
    assert state(lake, "Account", "Phone") == {a: ("1", False), b: ("2", False), c: ("0", True)}
    assert {i: (each.replay_id, each.reason) for i, each in open_dirty(lake)["Account"].items()} == {
        c: (gap, "gap")
    }
    # While C is being read, it changes again: the read saw neither the one change nor missed the other.
    history.update("Account", [c], {"Name": "c2"})
    history.commit()
    fence = gap
    read(lake, "Account", fence, **{c: {"Name": "c", "Phone": "3"}})
    archive(lake, history)
    assert state(lake, "Account", "Name", "Phone")[c] == ("c2", "3", False)
    # What the history says of C after the gap stands on what was read.
    last = [
        row for row in read_history(lake, "Account", ids=[c]).to_pylist() if row["change_type"] == "UPDATE"
    ]
    assert json.loads(last[-1]["before_json"]) == {"Name": "c", "Phone": "3"}
    assert json.loads(last[-1]["after_json"]) == {"Name": "c2", "Phone": "3"}


def test_merged_gap_event_marks_every_record_it_names(lake: Lake) -> None:
    history = History()
    ids = [history.create("Contact", {"Name.LastName": "Lee"}) for _ in range(3)]
    history.commit()
    history.add("Contact", "GAP_UPDATE", ids[:2], {})
    history.add("Contact", "GAP_DELETE", ids[2:], {})
    history.commit()
    archive(lake, history)
    assert set(open_dirty(lake)["Contact"]) == set(ids[:2])
    assert state(lake, "Contact") == {ids[0]: (True,), ids[1]: (True,)}


def test_overflow_of_one_entity_while_another_flows(lake: Lake) -> None:
    history = History()
    kept, gone, changed = (history.create("Account", {"Name": name}) for name in ("kept", "gone", "changed"))
    contact = history.create("Contact", {"Name.LastName": "Lee"})
    history.commit()
    # A cascade delete past the threshold: the first deletes are told, the rest is an overflow event.
    first = history.create("Account", {"Name": "first"})
    history.commit()
    history.delete("Account", [first])
    history.add("Account", "GAP_OVERFLOW", [EMPTY_ID], {})
    history.commit()
    overflow = history.position
    history.update("Contact", [contact], {"Email": "a@b.example"})
    history.commit()
    archive(lake, history)
    assert {e: (r.cause, r.since) for e, r in open_resyncs(lake).items()} == {
        "Account": ("overflow", overflow)
    }
    assert state(lake, "Account", "Name") == {
        kept: ("kept", True),
        gone: ("gone", True),
        changed: ("changed", True),
    }
    assert state(lake, "Contact", "Email") == {contact: ("a@b.example", False)}
    row = manifest.newest(lake)
    assert row is not None
    assert {entity: each.state for entity, each in row.entities.items()} == {
        "Account": "resync",
        "Contact": "ready",
    }
    # Everything is read after the overflow event; an event that comes later is applied on top.
    fence = history.position
    history.update("Account", [changed], {"Phone": "9"})
    history.commit()
    read(lake, "Account", fence, **{kept: {"Name": "kept"}, gone: None, changed: {"Name": "told by none"}})
    archive(lake, history)
    assert state(lake, "Account", "Name", "Phone") == {
        kept: ("kept", None, False),
        changed: ("told by none", "9", False),
    }


def convert_lead(history: History, lead: str) -> None:
    """The four changes that the guide shows, in their order."""
    account = history.create("Account", {"Name": "Acme"})
    contact = history.create("Contact", {"Name.FirstName": "Ada", "Name.LastName": "Lee"})
    opportunity = history.create("Opportunity", {"Name": "Acme-"})
    history.update(
        "Lead",
        [lead],
        {
            "Status": "Closed - Converted",
            "IsConverted": True,
            "ConvertedDate": 1_620_000_000_000 // 86_400_000 * 86_400_000,
            "ConvertedAccountId": account,
            "ConvertedContactId": contact,
            "ConvertedOpportunityId": opportunity,
        },
    )


@pytest.mark.usefixtures("sales")
@pytest.mark.parametrize("has_last", [True, False])
def test_lead_conversion_archived_event_by_event_is_seen_as_a_whole_or_not_at_all(
    lake: Lake, has_last: bool
) -> None:
    history = History()
    lead = history.create("Lead", {"Name.LastName": "Lee", "Company": "Acme", "IsConverted": False})
    history.commit(has_last=has_last)
    convert_lead(history, lead)
    # Its key and number are its own, so it neither belongs to the conversion nor ends it.
    history.add("Contact", "GAP_UPDATE", [history.new_id("Contact")], {}, key="of the database".ljust(36))
    history.commit(has_last=has_last)
    history.create("Contact", {"Name.LastName": "Next"})
    history.commit(has_last=has_last)
    before, after = history.truths[0][1], history.truths[1][1]
    seen = []
    for event in history.events:
        write_bronze(lake, [event], event.replay_id)
        apply_all(lake, 1)
        found = read_replicas(lake)
        seen.append({entity for entity, _ in found.live})
        assert found in (before, after, history.truth) or not found.live
    assert CONVERTED in seen
    assert {"Lead"} in seen
    row = read_replica(lake, "Lead").to_pylist()[0]
    assert (row["IsConverted"], row["Company"], str(row["ConvertedDate"])) == (True, "Acme", "2021-05-03")
    told = read_history(lake, "Lead").to_pylist()[-1]
    assert (told["sequence"], told["user_id"], told["origin"]) == (
        4,
        "005TW0000000001AAA",
        "com/example/test",
    )
    assert json.loads(told["before_json"])["IsConverted"] is False
    keys = {
        row["transaction_key"]
        for entity in CONVERTED
        for row in read_history(lake, entity).to_pylist()
        if row["commit_ms"] == told["commit_ms"] and row["change_type"] != "GAP_UPDATE"
    }
    assert keys == {told["transaction_key"]}


@pytest.mark.parametrize("change_type", ["GAP_CREATE", "GAP_UNDELETE"])
def test_gap_of_a_record_that_comes_shows_nothing_until_it_is_read(lake: Lake, change_type: str) -> None:
    history = History()
    record_id = history.new_id("Account")
    if change_type == "GAP_UNDELETE":
        history.add("Account", "CREATE", [record_id], {"Name": "a"})
        history.commit()
        history.add("Account", "DELETE", [record_id], {})
        history.commit()
    history.add("Account", change_type, [record_id], {})
    history.commit()
    gap = history.position
    history.add("Account", "UPDATE", [record_id], {"Phone": "2"}, changed=["Phone"])
    history.commit()
    archive(lake, history)
    assert state(lake, "Account") == {}
    assert open_dirty(lake)["Account"][record_id].replay_id == history.position
    read(lake, "Account", gap, **{record_id: {"Name": "b", "Phone": "1"}})
    assert state(lake, "Account", "Name", "Phone") == {record_id: ("b", "2", False)}
    told = read_history(lake, "Account").to_pylist()
    assert [row["change_type"] for row in told[-3:]] == [change_type, "READ", "UPDATE"]
    assert told[-2]["after_json"] == told[-1]["before_json"] == '{"Name":"b","Phone":"1"}'


def test_second_overflow_before_the_first_is_read_asks_for_reads_after_both(lake: Lake) -> None:
    history = History()
    account = history.create("Account", {"Name": "a"})
    history.commit()
    for _ in range(2):
        history.add("Account", "GAP_OVERFLOW", [EMPTY_ID], {})
        history.commit()
        archive(lake, history)
        assert open_resyncs(lake)["Account"].since == history.position
    read(lake, "Account", history.position - 1, **{account: {"Name": "between the two"}})
    assert state(lake, "Account", "Name") == {account: ("between the two", True)}
    read(lake, "Account", history.position, **{account: {"Name": "after both"}})
    assert state(lake, "Account", "Name") == {account: ("after both", False)}


def test_enriched_fields_stay_separate_and_events_sharing_a_replay_id_all_count(lake: Lake) -> None:
    history = History()
    ids = [history.create("Account", {"Name": "a", "Site": "true"}) for _ in range(3)]
    history.commit()
    for i, record_id in enumerate(ids):
        values = {"Fax": "9", "Site": "later"}
        history.add("Account", "UPDATE", [record_id], values, changed=["Fax"], is_ungrouped=i > 0)
    history.commit()
    history.add("Account", "DELETE", ids[:1], {"Site": "later"})
    history.commit()
    archive(lake, history)
    assert state(lake, "Account", "Fax", "Site") == dict.fromkeys(ids[1:], ("9", "true", False))
    told = [row for row in read_history(lake, "Account").to_pylist() if row["change_type"] != "CREATE"]
    assert [json.loads(row["enriched_json"]) for row in told] == [{"Site": "later"}] * 4
    assert [row["changed"] for row in told] == [["Fax"]] * 3 + [[]]


def test_object_first_met_after_the_snapshot_is_read_as_a_whole(lake: Lake) -> None:
    resync.request_resyncs(lake, 1, 0, [Resync("Account", "snapshot", 1000)])
    history = History()
    history.update("Contact", [history.create("Contact", {"Name.LastName": "Lee"})], {"Email": None})
    history.create("Account", {"Name": "a"})
    history.commit()
    archive(lake, history)
    assert {e: r.cause for e, r in open_resyncs(lake).items()} == {"Account": "snapshot", "Contact": "new"}


def test_update_of_an_unknown_record_is_marked_in_history_until_it_is_read(lake: Lake) -> None:
    history = History()
    record_id = history.new_id("Account")
    for phone in ("1", "2"):
        history.add("Account", "UPDATE", [record_id], {"Phone": phone}, changed=["Phone"])
        history.commit()
    archive(lake, history)
    assert open_dirty(lake)["Account"][record_id].reason == "unknown"
    told = read_history(lake, "Account").to_pylist()
    assert [(row["problem"], row["before_json"], row["after_json"]) for row in told] == [
        ("unknown", None, None),
        ("unknown", None, None),
    ]
    read(lake, "Account", history.position - 1, **{record_id: {"Name": "a", "Phone": "1"}})
    told = read_history(lake, "Account").to_pylist()
    assert [(row["change_type"], row["problem"]) for row in told] == [
        ("UPDATE", "unknown"),
        ("READ", None),
        ("UPDATE", None),
    ]
    assert json.loads(told[-1]["after_json"]) == {"Name": "a", "Phone": "2"}
