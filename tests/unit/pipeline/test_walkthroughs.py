"""The guide's own walk-throughs of gap and overflow events, step by step, with the race that its steps have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline.applying import apply_all
from tests.pipeline.histories import History, write_bronze
from tidewire.ids import EMPTY_ID
from tidewire.pipeline import manifest
from tidewire.pipeline.control import open_dirty, open_resyncs
from tidewire.pipeline.record_history import read_history
from tidewire.pipeline.replicas import read_replica
from tidewire.pipeline.tables import READS, Lake, append_rows, open_table


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
