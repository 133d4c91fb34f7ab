"""Fields that follow from others: formulas, stages and statuses, names, and their rounding."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import NOW_MS, Org, open_records
from tidewire.errors import DefinitionInvalid
from tidewire.events import Value
from tidewire.records.derived import (
    check_formulas,
    compute_derived,
    fit_number,
    refresh_volatile,
    volatile_inputs,
)
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard import STANDARD_OBJECTS

DAY = 86_400_000
STANDARD = Catalog(1, STANDARD_OBJECTS)


def number(name: str, formula: str = "", scale: int = 2) -> Field:
    return Field(name=name, label=name, type=FieldType.NUMBER, precision=18, scale=scale, formula=formula)


def made(*fields: Field) -> ObjectType:
    return custom_object("Thing__c", "Thing", "Things", "a00", 1001, None, fields)


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        yield opened


def test_formulas_are_computed_after_those_they_refer_to() -> None:
    thing = made(
        number("Total__c", "Net__c * 1.19"), number("Net__c", "Count__c * Price__c"), number("Count__c"),
        number("Price__c"),
    )  # fmt: skip
    assert compute_derived(thing, {"Count__c": 3.0, "Price__c": 0.5}, NOW_MS) == {
        "Net__c": 1.5,
        "Total__c": 1.79,
    }


def test_formula_sees_the_rounded_value_of_another() -> None:
    thing = made(number("Third__c", "1 / 3"), number("Triple__c", "Third__c * 3"))
    assert compute_derived(thing, {}, NOW_MS) == {"Third__c": 0.33, "Triple__c": 0.99}


def test_stale_formula_values_in_the_row_are_ignored() -> None:
    thing = made(number("A__c", "B__c + 1"), number("B__c", "1"))
    assert compute_derived(thing, {"A__c": 9.0, "B__c": 9.0}, NOW_MS) == {"B__c": 1.0, "A__c": 2.0}


def test_formulas_that_go_round_are_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="the formula refers to itself") as caught:
        check_formulas(made(number("A__c", "B__c"), number("B__c", "C__c + 1"), number("C__c", "A__c")))
    assert str(caught.value.details["path"]).startswith("Thing__c.")
    with pytest.raises(DefinitionInvalid, match="A__c -> A__c"):
        check_formulas(made(number("A__c", "A__c + 1")))


def test_wrong_formula_is_refused_with_its_field_and_place() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        check_formulas(made(number("A__c", "1 +\nNope__c")))
    assert caught.value.message == "Thing__c.A__c: formula, row 2, column 1: Thing__c has no field Nope__c"
    details = caught.value.details
    assert (details["path"], details["row"], details["column"]) == ("Thing__c.A__c", 2, 1)


def test_object_without_derived_fields_has_none() -> None:
    assert compute_derived(made(number("A__c")), {"A__c": 1.0}, NOW_MS) == {}
    check_formulas(made())


def test_text_result_is_cut_at_the_field() -> None:
    short = Field(name="T__c", label="T", type=FieldType.TEXT, length=3, formula="'abcdef'")
    assert compute_derived(made(short), {}, NOW_MS) == {"T__c": "abc"}


@pytest.mark.parametrize(
    "precision, scale, value, expected",
    [
        (18, 2, 1.005, 1.01),
        (18, 2, -1.005, -1.01),
        (18, 0, 2.5, 3.0),
        (3, 1, 99.94, 99.9),
        (3, 1, 99.96, None),
        (3, 1, 100, None),
        (18, 2, float("inf"), None),
        (18, 2, 1e300, None),
        (18, 2, -0.001, 0.0),
    ],
)
def test_number_is_rounded_half_up_or_null_where_it_does_not_fit(
    precision: int, scale: int, value: float, expected: float | None
) -> None:
    field = Field(name="N__c", label="N", type=FieldType.NUMBER, precision=precision, scale=scale)
    found = fit_number(field, value)
    assert found == expected
    assert str(found) != "-0.0"


def test_formula_over_a_volatile_one_is_volatile_too() -> None:
    thing = made(
        Field(name="Due__c", label="Due", type=FieldType.DATE),
        number("Late__c", "TODAY() - Due__c", scale=0),
        number("Fee__c", "Late__c * Rate__c"),
        number("Rate__c"),
        number("Fixed__c", "Rate__c * 2"),
    )
    row: dict[str, Value] = {"Due__c": NOW_MS - NOW_MS % DAY, "Rate__c": 0.5}
    row |= compute_derived(thing, row, NOW_MS)
    assert (row["Late__c"], row["Fee__c"], row["Fixed__c"]) == (0.0, 0.0, 1.0)
    assert refresh_volatile(thing, row, NOW_MS + 3 * DAY) == {"Late__c": 3.0, "Fee__c": 1.5}
    assert volatile_inputs(thing) == {"Due__c", "Rate__c"}
    assert refresh_volatile(made(number("A__c", "1")), {}, NOW_MS) == {}


def test_person_has_a_joined_name() -> None:
    contact = STANDARD.object("Contact")
    assert compute_derived(contact, {"FirstName": "Ada", "LastName": "L"}, NOW_MS)["Name"] == "Ada L"


async def test_stored_records_have_their_derived_fields(org: Org) -> None:
    thing = made(number("Net__c", "Count__c * 2"), number("Count__c"))
    await org.add(thing)
    record_id = await org.make("Thing__c", Name="A", Count__c=4)
    assert (await org.row("Thing__c", record_id))["Net__c"] == 8.0
    await org.write(lambda unit: unit.update(org.obj("Thing__c"), record_id, {"Count__c": 5}))
    assert (await org.row("Thing__c", record_id))["Net__c"] == 10.0
