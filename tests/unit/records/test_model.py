"""Random DML against a model of plain dicts: what is stored, and what each transaction says it did."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stores import sqlite_place
from tests.unit.records.small_org import Org, open_records
from tidewire.errors import RequestError
from tidewire.events import ChangeType, Value
from tidewire.records.table import read_all_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import detail, lookup
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field, RollUp
from tidewire.storage.store import Reader

MASTER, DETAIL, LOOSE = "Master__c", "Detail__c", "Loose__c"
Row = dict[str, Value]
Step = tuple[str, int, int]
"""A verb, and two numbers that choose the records it is about."""

STEPS = st.tuples(
    st.sampled_from(["master", "detail", "loose", "rename", "relink", "delete", "undelete", "purge"]),
    st.integers(0, 9),
    st.integers(0, 9),
)
HISTORIES = st.lists(st.lists(STEPS, min_size=1, max_size=6), min_size=1, max_size=6)


class Model:
    """Records by id: their object, name, parent, whether they live, and which delete took them.

    `cleared` remembers, per delete, which records lost their link to it.
    """

    def __init__(self) -> None:
        self.entity: dict[str, str] = {}
        self.name: dict[str, str] = {}
        self.parent: dict[str, str | None] = {}
        self.root: dict[str, str] = {}
        self.cleared: dict[str, list[str]] = {}

    def is_alive(self, record_id: str | None) -> bool:
        return record_id in self.entity and record_id not in self.root

    def make(self, record_id: str, entity: str, parent: str | None) -> None:
        self.entity[record_id], self.name[record_id], self.parent[record_id] = entity, record_id[:15], parent

    def delete(self, record_id: str) -> None:
        self.root[record_id] = record_id
        self.cleared[record_id] = []
        for child, parent in self.parent.items():
            if parent == record_id and self.is_alive(child):
                if self.entity[child] == DETAIL:
                    self.root[child] = record_id
                else:
                    self.parent[child] = None
                    self.cleared[record_id].append(child)

    def can_undelete(self, record_id: str) -> bool:
        if record_id not in self.root:
            return False
        return self.entity[record_id] != DETAIL or self.is_alive(self.parent[record_id])

    def undelete(self, record_id: str) -> None:
        returned = [i for i, root in self.root.items() if record_id in (i, root)]
        for child in self.cleared.pop(record_id, []):
            if self.is_alive(child) and self.parent[child] is None:
                self.parent[child] = record_id
        for found in returned:
            del self.root[found]
        for found in returned:
            if not self.is_alive(self.parent[found]):
                self.parent[found] = None

    def purge(self, record_id: str) -> None:
        for found in [i for i, root in self.root.items() if record_id in (i, root)]:
            del self.root[found], self.entity[found], self.name[found], self.parent[found]
        self.cleared.pop(record_id, None)
        for children in self.cleared.values():
            children[:] = [child for child in children if child in self.entity]

    def stored(self) -> dict[str, tuple[str | None, str | None, bool]]:
        return {i: (self.name[i], self.parent[i], not self.is_alive(i)) for i in self.entity}


def run(unit: UnitOfWork, model: Model, step: Step) -> None:
    """Do one step to both, if it is about a record there is; both must refuse the same."""
    verb, first, second = step
    masters = [i for i, e in model.entity.items() if e == MASTER and model.is_alive(i)]
    if verb in ("master", "detail", "loose"):
        entity = {"master": MASTER, "detail": DETAIL, "loose": LOOSE}[verb]
        parent = masters[first % len(masters)] if masters and verb != "master" else None
        if verb == "detail" and parent is None:
            return
        values = {} if parent is None else {"Master__c": parent}
        model.make(unit.create(unit.catalog.object(entity), values), entity, parent)
        return
    known = list(model.entity)
    if not known:
        return
    record_id = known[first % len(known)]
    obj = unit.catalog.object(model.entity[record_id])
    is_alive = model.is_alive(record_id)
    try:
        if verb == "rename":
            unit.update(obj, record_id, {"Name": f"n{second}"})
            assert is_alive
            model.name[record_id] = f"n{second}"
        elif verb == "relink" and obj.name == LOOSE and masters:
            unit.update(obj, record_id, {"Master__c": masters[second % len(masters)]})
            assert is_alive
            model.parent[record_id] = masters[second % len(masters)]
        elif verb == "delete":
            unit.delete(obj, record_id)
            assert is_alive
            model.delete(record_id)
        elif verb == "undelete":
            unit.undelete(obj, record_id)
            assert model.can_undelete(record_id)
            model.undelete(record_id)
        elif verb == "purge":
            unit.purge(obj, record_id)
            assert not is_alive
            model.purge(record_id)
    except RequestError:
        if verb == "undelete":
            assert not model.can_undelete(record_id)
        else:
            assert is_alive is (verb == "purge")


def run_all(unit: UnitOfWork, model: Model, steps: list[Step]) -> None:
    for step in steps:
        run(unit, model, step)


async def play(path: Path, history: list[list[Step]]) -> None:
    async with open_records(sqlite_place(path)) as org:
        to_master = detail("Master__c", "Master", MASTER, "Master__r", "Details__r")
        count = Field(
            name="Count__c",
            label="Count",
            type=FieldType.NUMBER,
            precision=18,
            createable=False,
            updateable=False,
            roll_up=RollUp(DETAIL, "Master__c", "COUNT"),
        )
        loose = lookup("Master__c", "Master", MASTER, "Master__r")
        await org.add(
            custom_object(MASTER, "M", "Ms", "a01", 1001, None, (count,)),
            custom_object(DETAIL, "D", "Ds", "a02", 1002, None, (to_master,)),
            custom_object(LOOSE, "L", "Ls", "a03", 1003, None, (loose,)),
        )
        model = Model()
        before: dict[str, Row] = {}
        for steps in history:
            org.clock.advance(1)
            await org.write(partial(run_all, model=model, steps=steps))
            after = await org.store.read(lambda reader: read_rows_of(reader, org))
            stored = {i: (r["Name"], r.get("Master__c"), r["IsDeleted"]) for i, r in after.items()}
            assert stored == model.stored()
            check_counts(after)
            check_changes(org, before, after)
            before = after


def read_rows_of(reader: Reader, org: Org) -> dict[str, Row]:
    rows = [row for name in (MASTER, DETAIL, LOOSE) for row in read_all_rows(reader, org.obj(name))]
    return {str(row["Id"]): row for row in rows}


def check_counts(rows: dict[str, Row]) -> None:
    """Every living master counts its living details."""
    for record_id, row in rows.items():
        if "Count__c" in row and not row["IsDeleted"]:
            details = [r for r in rows.values() if r["Id"][:3] == "a02" and r["Master__c"] == record_id]  # type: ignore[index]
            assert row["Count__c"] == sum(not r["IsDeleted"] for r in details)


def check_changes(org: Org, before: dict[str, Row], after: dict[str, Row]) -> None:
    """One change per record that somebody outside saw come, go or differ, with what they saw."""
    told = {change.record_id: change for change in org.changes}
    assert len(told) == len(org.changes)
    assert [c.sequence for c in org.changes] == list(range(1, len(told) + 1))
    for record_id in before.keys() | after.keys():
        old, new = before.get(record_id), after.get(record_id)
        was_there = old is not None and not old["IsDeleted"]
        is_there = new is not None and not new["IsDeleted"]
        change = told.pop(record_id, None)
        if change is None:
            assert not (was_there or is_there) or old == new
            continue
        assert change.before == old
        assert change.after == (new if is_there else None)
        if was_there:
            assert change.type is (ChangeType.UPDATE if is_there else ChangeType.DELETE)
        else:
            assert is_there
            assert change.type is (ChangeType.CREATE if old is None else ChangeType.UNDELETE)
        if old is not None and new is not None and is_there:
            assert set(change.changed) == {name for name in new if old[name] != new[name]}
    assert told == {}


@settings(max_examples=40, deadline=None)
@given(HISTORIES)
def test_random_dml_leaves_the_rows_and_tells_the_changes_of_the_model(history: list[list[Step]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(Path(directory) / "org.db", history))
