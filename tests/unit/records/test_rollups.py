"""Roll-up summaries on a real store: counted from living children, level by level."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import Org, open_records
from tidewire.errors import DefinitionInvalid
from tidewire.events import ChangeType, Value
from tidewire.records.object_rules import NO_RULES
from tidewire.records.rollups import affected_parents, check_roll_ups, compute_roll_up
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import choices
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field, ObjectType, RollUp

Filters = tuple[tuple[str, str, str | int | float | bool | None], ...]


def summary(
    name: str,
    function: str,
    field: str = "",
    filters: Filters = (),
    *,
    child: str = "Line__c",
    child_field: str = "Order__c",
    type_: FieldType = FieldType.NUMBER,
) -> Field:
    digits = 18 if type_ is FieldType.NUMBER else 0
    return Field(
        name=name,
        label=name,
        type=type_,
        precision=digits,
        scale=2 if digits else 0,
        createable=False,
        updateable=False,
        roll_up=RollUp(child, child_field, function, field, filters),
    )


def master(name: str, target: str) -> Field:
    return Field(
        name=name,
        label=name,
        type=FieldType.REFERENCE,
        length=18,
        reference_to=(target,),
        is_master_detail=True,
        required=True,
    )


SHOP = custom_object(
    "Shop__c",
    "Shop",
    "Shops",
    "a00",
    1001,
    None,
    (summary("Turnover__c", "SUM", "Total__c", child="Order__c", child_field="Shop__c"),),
)
ORDER = custom_object(
    "Order__c",
    "Order",
    "Orders",
    "a01",
    1002,
    None,
    (
        master("Shop__c", "Shop__c"),
        summary("Lines__c", "COUNT"),
        summary("Total__c", "SUM", "amount__c"),
        summary("Largest__c", "MAX", "Amount__c"),
        summary("First__c", "MIN", "Day__c", type_=FieldType.DATE),
        summary("Open__c", "COUNT", filters=(("State__c", "=", "open"), ("Amount__c", ">", 1))),
        summary("Unmarked__c", "COUNT", filters=(("Marked__c", "!=", True), ("State__c", "!=", None))),
        summary("Others__c", "COUNT", filters=(("State__c", "!=", "Open"),)),
        Field(
            name="Gross__c",
            label="Gross",
            type=FieldType.NUMBER,
            precision=18,
            scale=2,
            formula="Total__c * 2",
            createable=False,
            updateable=False,
        ),
    ),
)
LINE = custom_object(
    "Line__c",
    "Line",
    "Lines",
    "a02",
    1003,
    None,
    (
        replace(master("Order__c", "Order__c"), updateable=True),
        Field(name="Amount__c", label="Amount", type=FieldType.CURRENCY, precision=18, scale=2),
        Field(name="Day__c", label="Day", type=FieldType.DATE),
        Field(
            name="State__c", label="State", type=FieldType.PICKLIST, length=40, picklist=choices("Open;Shut")
        ),
        Field(name="Marked__c", label="Marked", type=FieldType.CHECKBOX),
        Field(name="Note__c", label="Note", type=FieldType.TEXT, length=80),
    ),
)
CATALOG = Catalog(1, (SHOP, ORDER, LINE))


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        await opened.add(SHOP, ORDER, LINE)
        yield opened


async def new_order(org: Org) -> tuple[str, str]:
    shop = await org.make("Shop__c", Name="S")
    return shop, await org.make("Order__c", Name="O", Shop__c=shop)


def picked(row: dict[str, Value], *names: str) -> list[Value]:
    return [row[name] for name in names]


async def test_new_parent_counts_zero_and_has_no_extremes(org: Org) -> None:
    _, order = await new_order(org)
    row = await org.row("Order__c", order)
    assert picked(row, "Lines__c", "Total__c", "Largest__c", "First__c", "Gross__c") == [0, 0, None, None, 0]


async def test_roll_ups_over_more_children_than_one_page_are_right_on_every_level(
    org: Org,
) -> None:
    shop, first = await new_order(org)
    second = await org.make("Order__c", Name="P", Shop__c=shop)

    def work(unit: UnitOfWork) -> None:
        for _ in range(1_100):
            for order in (first, second):
                unit.create(org.obj("Line__c"), {"Order__c": order, "Amount__c": 1})

    await org.write(work)
    assert picked(await org.row("Order__c", second), "Lines__c", "Total__c") == [1_100, 1_100]
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 2_200
    await org.delete("Order__c", first)
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 1_100
    await org.undelete("Order__c", first)
    assert picked(await org.row("Order__c", first), "Lines__c", "Gross__c") == [1_100, 2_200]
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 2_200


async def test_children_are_counted_summed_and_filtered(org: Org) -> None:
    shop, order = await new_order(org)

    def work(unit: UnitOfWork) -> None:
        lines: tuple[dict[str, object], ...] = (
            {"Amount__c": 0.1, "State__c": "Open", "Day__c": "2024-02-01"},
            {"Amount__c": 0.2, "State__c": "OPEN", "Day__c": "2024-01-01"},
            {"Amount__c": 7.5, "State__c": "Open", "Marked__c": True},
            {"State__c": "Shut"},
            {},
        )
        for line in lines:
            unit.create(org.obj("Line__c"), {"Name": "L", "Order__c": order, **line})

    await org.write(work)
    row = await org.row("Order__c", order)
    assert picked(row, "Lines__c", "Total__c", "Largest__c", "Gross__c") == [5.0, 7.8, 7.5, 15.6]
    assert row["First__c"] == 19_723 * 86_400_000
    assert picked(row, "Open__c", "Unmarked__c", "Others__c") == [1.0, 3.0, 2.0]
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 7.8


async def test_every_touched_parent_is_told_once_as_an_update(org: Org) -> None:
    shop, order = await new_order(org)
    line = await org.make("Line__c", Name="L", Order__c=order, Amount__c=5)
    told = {change.record_id: change.type for change in org.changes}
    assert told == {line: ChangeType.CREATE, order: ChangeType.UPDATE, shop: ChangeType.UPDATE}
    (change,) = (c for c in org.changes if c.record_id == order)
    assert set(change.changed) >= {"Lines__c", "Total__c"}
    assert "LastModifiedDate" not in change.changed


async def test_change_of_a_field_that_no_roll_up_reads_leaves_the_parent_alone(org: Org) -> None:
    _, order = await new_order(org)
    line = await org.make("Line__c", Name="L", Order__c=order, Amount__c=5)
    await org.write(lambda unit: unit.update(org.obj("Line__c"), line, {"Note__c": "x"}))
    assert [change.record_id for change in org.changes] == [line]


async def test_child_that_changes_leaves_or_returns_is_counted_again(org: Org) -> None:
    shop, order = await new_order(org)
    other = await org.make("Order__c", Name="P", Shop__c=shop)
    line = await org.make("Line__c", Name="L", Order__c=order, Amount__c=5)
    await org.write(lambda unit: unit.update(org.obj("Line__c"), line, {"Amount__c": 6}))
    assert (await org.row("Order__c", order))["Total__c"] == 6.0
    await org.write(lambda unit: unit.update(org.obj("Line__c"), line, {"Order__c": other}))
    assert (await org.row("Order__c", order))["Total__c"] == 0.0
    assert (await org.row("Order__c", other))["Total__c"] == 6.0
    await org.delete("Line__c", line)
    assert (await org.row("Order__c", other))["Lines__c"] == 0.0
    await org.undelete("Line__c", line)
    assert (await org.row("Order__c", other))["Lines__c"] == 1.0
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 6.0


async def test_deleted_parent_is_taken_out_of_its_own_parent(org: Org) -> None:
    shop, order = await new_order(org)
    await org.make("Line__c", Name="L", Order__c=order, Amount__c=5)
    await org.delete("Order__c", order)
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 0.0
    await org.undelete("Order__c", order)
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 5.0


async def test_undeleted_parent_does_not_count_children_that_were_purged(org: Org) -> None:
    shop, order = await new_order(org)
    line = await org.make("Line__c", Name="L", Order__c=order, Amount__c=5)
    await org.delete("Order__c", order)
    await org.write(lambda unit: unit.purge(org.obj("Line__c"), line))
    await org.undelete("Order__c", order)
    assert picked(await org.row("Order__c", order), "Lines__c", "Total__c", "Gross__c") == [0.0, 0.0, 0.0]
    assert (await org.row("Shop__c", shop))["Turnover__c"] == 0.0


async def test_sum_with_more_digits_than_the_field_is_null(org: Org) -> None:
    _, order = await new_order(org)
    for _ in range(2):
        await org.make("Line__c", Name="L", Order__c=order, Amount__c=9e15)
    assert (await org.row("Order__c", order))["Total__c"] is None


async def test_compute_roll_up_reads_only_this_parent(org: Org) -> None:
    _, order = await new_order(org)
    _, other = await new_order(org)
    await org.make("Line__c", Name="L", Order__c=order, Amount__c=5)
    field = ORDER.by_name["total__c"]
    catalog, obj = org.types.catalog, org.obj("Order__c")
    read = [
        await org.store.read(lambda r, i=i: compute_roll_up(r, catalog, obj, field, i, NO_RULES))  # type: ignore[misc]
        for i in (order, other)
    ]
    assert read == [5.0, 0.0]


def test_affected_parents_are_the_old_and_the_new_master() -> None:
    before: dict[str, Value] = {"Order__c": "a", "Amount__c": 1.0}
    found = affected_parents(CATALOG, [("Line__c", before, before | {"Order__c": "b"})], NO_RULES)
    assert list(found) == [("Order__c", "a"), ("Order__c", "b")]
    amount_only = affected_parents(CATALOG, [("Line__c", before, before | {"Amount__c": 2.0})], NO_RULES)
    assert [f.name for f in amount_only["Order__c", "a"]] == ["Total__c", "Largest__c", "Open__c"]
    assert affected_parents(CATALOG, [("Line__c", before, before | {"Note__c": "x"})], NO_RULES) == {}
    assert affected_parents(CATALOG, [("Line__c", None, before | {"IsDeleted": True})], NO_RULES) == {}


@pytest.mark.parametrize(
    "field, reason",
    [
        (summary("X__c", "COUNT", child="Nope__c"), "there is no object Nope__c"),
        (summary("X__c", "COUNT", child_field="Note__c"), "is no master-detail field to Order__c"),
        (summary("X__c", "AVG", "Amount__c"), "one of COUNT, SUM, MIN, MAX"),
        (summary("X__c", "SUM"), "Line__c has no field to add up"),
        (summary("X__c", "SUM", "Note__c"), "SUM of Line__c.Note__c does not fit type Number"),
        (summary("X__c", "SUM", "Day__c", type_=FieldType.DATE), "SUM of Line__c.Day__c does not fit"),
        (summary("X__c", "MAX", "Day__c"), "MAX of Line__c.Day__c does not fit type Number"),
        (summary("X__c", "COUNT", type_=FieldType.DATE), "a COUNT does not fit type Date"),
        (summary("X__c", "COUNT", filters=(("Nope__c", "=", 1),)), "Line__c has no field Nope__c"),
        (summary("X__c", "COUNT", filters=(("Note__c", "LIKE", "x"),)), "the operator of a filter"),
        (summary("X__c", "COUNT", filters=(("Amount__c", "=", "x"),)), "filter on Amount__c"),
        (summary("X__c", "COUNT", filters=(("Amount__c", "<", None),)), "nothing is less or more"),
    ],
)
def test_roll_up_that_children_cannot_answer_is_refused(field: Field, reason: str) -> None:
    order = replace(ORDER, fields=(*ORDER.fields, field))
    with pytest.raises(DefinitionInvalid, match=reason) as caught:
        check_roll_ups(CATALOG, order)
    assert caught.value.details["path"] == "Order__c.X__c"


def test_right_roll_ups_pass() -> None:
    objects: tuple[ObjectType, ...] = CATALOG.objects
    for obj in objects:
        check_roll_ups(CATALOG, obj)
