"""Deletes and undeletes of more records than memory holds: they do what smaller ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.unit.records.small_org import Org
from tests.unit.records.test_cascade import org  # noqa: F401  # the fixture
from tidewire.errors import DeleteRestricted, DuplicateValue
from tidewire.events import Change, ChangeType, CommitContext, Value
from tidewire.records.work import UnitOfWork

LINES = 1_200
NOTES = 300


@dataclass(frozen=True, slots=True)
class Family:
    """An order with its lines, their parts, and notes that name the order."""

    order: str
    lines: list[str]
    parts: list[str]
    notes: list[str]

    @property
    def gone(self) -> list[str]:
        """What its delete takes along, in order."""
        return [self.order, *self.lines, *self.parts]


async def make_family(org: Org, lines: int = LINES, notes: int = NOTES) -> Family:  # noqa: F811
    def work(unit: UnitOfWork) -> Family:
        order = unit.create(org.obj("Order__c"), {"Name": "O", "Code__c": "1"})
        line_ids = [
            unit.create(org.obj("Line__c"), {"Name": f"L{n}", "Order__c": order}) for n in range(lines)
        ]
        parts = [unit.create(org.obj("Part__c"), {"Name": f"P of {i}", "Line__c": i}) for i in line_ids]
        note_ids = [unit.create(org.obj("Note__c"), {"Name": "N", "Order__c": order}) for _ in range(notes)]
        return Family(order, line_ids, parts, note_ids)

    return await org.write(work)


class Told:
    """The changes of transactions, with the rows of some of their records."""

    def __init__(self, org: Org, *record_ids: str) -> None:  # noqa: F811
        self.changes: list[tuple[str, ChangeType, int]] = []
        self.before: dict[str, dict[str, Value]] = {}
        self.after: dict[str, dict[str, Value]] = {}
        self._record_ids = frozenset(record_ids)
        org.records.add_hook(self._hear)

    def _hear(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        self.changes = [(c.record_id, c.type, c.sequence) for c in changes]
        for change in changes:
            if change.record_id in self._record_ids:
                self.before[change.record_id] = dict(change.before or {})
                self.after[change.record_id] = dict(change.after or {})
        assert len(changes) == len(self.changes)
        assert changes[-1] == list(changes)[-1]


def counted(ids: list[str], kind: ChangeType, start: int = 1) -> list[tuple[str, ChangeType, int]]:
    return [(record_id, kind, number) for number, record_id in enumerate(ids, start)]


async def test_large_delete_and_its_undelete_tell_of_every_record_once_and_in_order(org: Org) -> None:  # noqa: F811
    family = await make_family(org)
    watched = (family.order, family.lines[700], family.parts[-1], family.notes[7])
    entities = ("Order__c", "Line__c", "Part__c", "Note__c")
    rows = {i: await org.row(entity, i) for i, entity in zip(watched, entities, strict=True)}
    told = Told(org, *watched)
    org.clock.advance(5)
    await org.delete("Order__c", family.order)
    assert told.changes == [
        *counted(family.gone, ChangeType.DELETE),
        *counted(family.notes, ChangeType.UPDATE, len(family.gone) + 1),
    ]
    assert told.before == rows
    assert (await org.row("Part__c", family.parts[600]))["IsDeleted"]
    assert (await org.row("Note__c", family.notes[-1]))["Order__c"] is None
    assert told.after[family.notes[7]]["Order__c"] is None
    await org.undelete("Order__c", family.order)
    assert told.changes == [
        *counted(family.gone, ChangeType.UNDELETE),
        *counted(family.notes, ChangeType.UPDATE, len(family.gone) + 1),
    ]
    stamps = {"LastModifiedDate", "SystemModstamp"}
    for record_id, row in rows.items():
        assert {n: v for n, v in told.after[record_id].items() if row[n] != v}.keys() <= stamps
    assert not (await org.row("Part__c", family.parts[600]))["IsDeleted"]
    assert (await org.row("Note__c", family.notes[-1]))["Order__c"] == family.order


async def test_large_delete_is_refused_by_a_restricting_lookup_and_changes_nothing(org: Org) -> None:  # noqa: F811
    family = await make_family(org, notes=0)
    invoice = await org.make("Invoice__c", Order__c=family.order)
    with pytest.raises(DeleteRestricted, match=invoice) as caught:
        await org.delete("Order__c", family.order)
    assert caught.value.details == {"record_id": family.order, "entity": "Invoice__c", "child_id": invoice}
    assert org.changes == []
    assert not (await org.row("Part__c", family.parts[0]))["IsDeleted"]
    await org.delete("Invoice__c", invoice)
    await org.delete("Order__c", family.order)
    assert len(org.changes) == len(family.gone)


async def test_refused_large_delete_leaves_the_rest_of_its_transaction_alone(org: Org) -> None:  # noqa: F811
    family = await make_family(org, notes=0)
    await org.make("Invoice__c", Order__c=family.order)

    def work(unit: UnitOfWork) -> str:
        with pytest.raises(DeleteRestricted):
            unit.delete(org.obj("Order__c"), family.order)
        return unit.create(org.obj("Order__c"), {"Name": "next"})

    made = await org.write(work)
    assert [(c.record_id, c.type) for c in org.changes] == [(made, ChangeType.CREATE)]


async def test_what_a_transaction_deletes_and_undeletes_is_one_update_each(org: Org) -> None:  # noqa: F811
    family = await make_family(org)
    told = Told(org, family.parts[3])
    org.clock.advance(5)

    def work(unit: UnitOfWork) -> None:
        unit.update(org.obj("Part__c"), family.parts[3], {"Name": "renamed"})
        unit.delete(org.obj("Order__c"), family.order)
        unit.undelete(org.obj("Order__c"), family.order)

    await org.write(work)
    first = [family.parts[3], *(i for i in family.gone if i != family.parts[3])]
    assert told.changes == counted([*first, *family.notes], ChangeType.UPDATE)
    names = (told.before[family.parts[3]]["Name"], told.after[family.parts[3]]["Name"])
    assert names == (f"P of {family.lines[3]}", "renamed")


async def test_what_a_transaction_deletes_and_purges_is_told_as_it_was(org: Org) -> None:  # noqa: F811
    family = await make_family(org, notes=0)
    row = await org.row("Part__c", family.parts[3])
    told = Told(org, family.parts[3])
    org.clock.advance(5)

    def work(unit: UnitOfWork) -> None:
        unit.delete(org.obj("Order__c"), family.order)
        unit.purge(org.obj("Order__c"), family.order)

    await org.write(work)
    assert told.changes == counted(family.gone, ChangeType.DELETE)
    assert told.before == {family.parts[3]: row}


async def test_what_a_transaction_makes_and_deletes_is_not_told(org: Org) -> None:  # noqa: F811
    def work(unit: UnitOfWork) -> list[str]:
        order = unit.create(org.obj("Order__c"), {"Name": "gone"})
        for _ in range(2 * LINES):
            unit.create(org.obj("Line__c"), {"Order__c": order})
        kept = unit.create(org.obj("Order__c"), {"Name": "kept", "Code__c": "k"})
        unit.delete(org.obj("Order__c"), order)
        with pytest.raises(DuplicateValue):
            unit.create(org.obj("Order__c"), {"Code__c": "K"})
        return [kept, unit.create(org.obj("Line__c"), {"Order__c": kept})]

    made = await org.write(work)
    assert [(c.record_id, c.type, c.sequence) for c in org.changes] == counted(made, ChangeType.CREATE)


def crowd_out(org: Org, unit: UnitOfWork) -> None:  # noqa: F811
    """Touch so many other records that what was touched before is set aside."""
    for number in range(2_100):
        unit.create(org.obj("Order__c"), {"Name": f"other {number}"})


async def test_record_set_aside_and_deleted_later_is_told_as_it_was(org: Org) -> None:  # noqa: F811
    note = await org.make("Note__c", Name="N", Order__c=await org.make("Order__c"))
    row = await org.row("Note__c", note)
    org.clock.advance(5)

    def work(unit: UnitOfWork) -> None:
        unit.update(org.obj("Note__c"), note, {"Order__c": None})
        crowd_out(org, unit)
        unit.delete(org.obj("Note__c"), note)

    await org.write(work)
    told = [(c.type, c.before, c.after) for c in org.changes if c.record_id == note]
    assert told == [(ChangeType.DELETE, row, None)]


async def test_record_set_aside_and_changed_again_is_told_with_both_changes(org: Org) -> None:  # noqa: F811
    note = await org.make("Note__c", Name="N", Order__c=await org.make("Order__c"))
    row = await org.row("Note__c", note)

    def work(unit: UnitOfWork) -> None:
        unit.update(org.obj("Note__c"), note, {"Order__c": None})
        crowd_out(org, unit)
        unit.update(org.obj("Note__c"), note, {"Name": "renamed"})

    await org.write(work)
    told = [(c.type, c.before, set(c.changed)) for c in org.changes if c.record_id == note]
    assert told == [(ChangeType.UPDATE, row, {"Name", "Order__c"})]


async def test_record_set_aside_and_linked_again_by_an_undelete_is_told_as_it_was(org: Org) -> None:  # noqa: F811
    order = await org.make("Order__c")
    note = await org.make("Note__c", Name="N", Order__c=order)
    await org.delete("Order__c", order)
    row = await org.row("Note__c", note)

    def work(unit: UnitOfWork) -> None:
        unit.update(org.obj("Note__c"), note, {"Name": "renamed"})
        crowd_out(org, unit)
        unit.undelete(org.obj("Order__c"), order)

    await org.write(work)
    told = [(c.type, c.before, set(c.changed)) for c in org.changes if c.record_id == note]
    assert told == [(ChangeType.UPDATE, row, {"Name", "Order__c"})]


async def test_record_set_aside_that_takes_over_a_value_is_told_as_it_was(org: Org) -> None:  # noqa: F811
    order = await org.make("Order__c")
    note = await org.make("Note__c", Name="N")
    row = await org.row("Note__c", note)

    def work(unit: UnitOfWork) -> None:
        unit.update(org.obj("Note__c"), note, {"Name": "renamed"})
        crowd_out(org, unit)
        unit.store_copies(org.obj("Note__c"), {"Id": note}, {"Order__c": order})

    await org.write(work)
    told = [(c.before, (c.after or {})["Order__c"]) for c in org.changes if c.record_id == note]
    assert told == [(row, order)]
