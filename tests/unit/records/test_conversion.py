"""Which conversions there are, and what becomes of one value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import NumberOutOfRange
from tidewire.events import Value
from tidewire.records.conversion import ConversionEffect, convert_value, try_effect
from tidewire.schema.field_types import COMPOUND_TYPES, FieldType
from tidewire.schema.model import Field, PicklistValue

F = FieldType


def field(kind: FieldType, **attributes: object) -> Field:
    """A custom field of a type."""
    values = {"length": 40, "precision": 18, "scale": 2} | attributes
    return Field(name="X__c", label="X", type=kind, custom=True, **values)  # type: ignore[arg-type]  # of this test


@pytest.mark.parametrize("kind", list(FieldType))
def test_dates_checkboxes_and_multiselects_lose_their_data(kind: FieldType) -> None:
    for lossy in (F.DATE, F.DATETIME, F.CHECKBOX, F.MULTI_PICKLIST):
        if kind is lossy:
            assert try_effect(lossy, kind) is ConversionEffect.NONE
        elif kind in COMPOUND_TYPES or kind in (F.ID, F.REFERENCE, F.INTEGER):
            assert try_effect(lossy, kind) is None
        else:
            assert try_effect(lossy, kind) is ConversionEffect.WILDCARD


@pytest.mark.parametrize(
    "kind", [F.TEXT_AREA, F.EMAIL, F.URL, F.PHONE, F.AUTO_NUMBER, F.NUMBER, F.PERCENT, F.CURRENCY]
)
def test_what_the_guide_calls_compatible_with_text_makes_no_event(kind: FieldType) -> None:
    assert try_effect(kind, F.TEXT) is ConversionEffect.NONE


# The guide's table, row by row: every pair that it names, and what each one means to subscribers.
_CONVERTIBLE = tuple(
    t for t in FieldType if t not in COMPOUND_TYPES and t not in (F.ID, F.REFERENCE, F.INTEGER)
)
_TEXTS = (F.TEXT, F.TEXT_AREA, F.EMAIL, F.URL, F.PHONE)
_GUIDE: dict[str, tuple[ConversionEffect, list[tuple[FieldType, FieldType]]]] = {
    "a Date or DateTime to any other type": (
        ConversionEffect.WILDCARD,
        [(a, b) for a in (F.DATE, F.DATETIME) for b in _CONVERTIBLE if a is not b],
    ),
    "any other type to a Date or DateTime": (
        ConversionEffect.WILDCARD,
        [(a, b) for a in _CONVERTIBLE for b in (F.DATE, F.DATETIME) if a is not b],
    ),
    "a Checkbox to any other type": (
        ConversionEffect.WILDCARD,
        [(F.CHECKBOX, b) for b in _CONVERTIBLE if b is not F.CHECKBOX],
    ),
    "a MultiselectPicklist to any other type": (
        ConversionEffect.WILDCARD,
        [(F.MULTI_PICKLIST, b) for b in _CONVERTIBLE if b is not F.MULTI_PICKLIST],
    ),
    "a Picklist to a Checkbox": (ConversionEffect.GAP, [(F.PICKLIST, F.CHECKBOX)]),
    "a Picklist to a MultiselectPicklist": (ConversionEffect.GAP, [(F.PICKLIST, F.MULTI_PICKLIST)]),
    "what holds text or digits to a Text": (
        ConversionEffect.NONE,
        [
            (a, F.TEXT)
            for a in (F.TEXT_AREA, F.EMAIL, F.URL, F.PHONE, F.AUTO_NUMBER, F.NUMBER, F.PERCENT, F.CURRENCY)
        ],
    ),
    "a Text to another kind of text": (
        ConversionEffect.NONE,
        [(F.TEXT, b) for b in (F.TEXT_AREA, F.LONG_TEXT, F.EMAIL, F.URL, F.PHONE, F.AUTO_NUMBER)],
    ),
    "a Picklist to a Text": (ConversionEffect.NONE, [(F.PICKLIST, F.TEXT)]),
    "a Text to a Picklist": (ConversionEffect.NONE, [(F.TEXT, F.PICKLIST)]),
    "a LongTextArea to shorter text": (ConversionEffect.NONE, [(F.LONG_TEXT, b) for b in _TEXTS]),
}


@pytest.mark.parametrize("row", _GUIDE)
def test_row_of_the_guide_has_its_effect(row: str) -> None:
    effect, pairs = _GUIDE[row]
    assert {pair: try_effect(*pair) for pair in pairs} == dict.fromkeys(pairs, effect)


_SAMPLES: dict[FieldType, Value] = {
    F.NUMBER: 5.0,
    F.CURRENCY: 5.0,
    F.PERCENT: 5.0,
    F.CHECKBOX: True,
    F.DATE: 86_400_000,
    F.DATETIME: 86_400_000,
    F.TIME: 1000,
}


@pytest.mark.parametrize("old", _CONVERTIBLE)
@pytest.mark.parametrize("new", _CONVERTIBLE)
def test_value_goes_the_way_that_the_effect_says(old: FieldType, new: FieldType) -> None:
    converted = convert_value(field(old), field(new), _SAMPLES.get(old, "5"))
    if try_effect(old, new) is ConversionEffect.WILDCARD:
        assert converted is (False if new is F.CHECKBOX else None)
    else:
        assert converted is not None


@pytest.mark.parametrize(
    "kind", [*sorted(COMPOUND_TYPES, key=lambda each: each.value), F.ID, F.REFERENCE, F.INTEGER]
)
def test_what_is_no_column_of_its_own_does_not_convert(kind: FieldType) -> None:
    assert {try_effect(kind, other) for other in F} == {None}
    assert {try_effect(other, kind) for other in F} == {None}


def test_only_picklists_make_gap_events() -> None:
    gaps = {(a, b) for a in F for b in F if try_effect(a, b) is ConversionEffect.GAP}
    assert gaps == {(F.PICKLIST, F.CHECKBOX), (F.PICKLIST, F.MULTI_PICKLIST)}


@pytest.mark.parametrize(
    "old, new, value, expected",
    [
        (F.TEXT, F.PHONE, "x" * 50, "x" * 40),
        (F.NUMBER, F.TEXT, 1e16, "10000000000000000"),
        (F.NUMBER, F.TEXT, 0.00001, "0.00001"),
        (F.NUMBER, F.TEXT, -2.5, "-2.5"),
        (F.PICKLIST, F.CHECKBOX, "YES", True),
        (F.PICKLIST, F.CHECKBOX, "maybe", False),
        (F.TEXT, F.CHECKBOX, "true", False),
        (F.TIME, F.TEXT, 5, None),
        (F.TEXT, F.AUTO_NUMBER, "A-1", "A-1"),
    ],
)
def test_value_is_kept_cut_or_lost(old: FieldType, new: FieldType, value: Value, expected: Value) -> None:
    assert convert_value(field(old), field(new), value) == expected


def test_number_with_too_many_digits_is_refused() -> None:
    with pytest.raises(NumberOutOfRange):
        convert_value(field(F.NUMBER), field(F.PERCENT, precision=3, scale=0), 1000.0)


@given(
    st.sampled_from([t for t in FieldType if t not in COMPOUND_TYPES]),
    st.sampled_from([F.TEXT, F.PHONE, F.LONG_TEXT, F.PICKLIST]),
    st.text(min_size=1),
)
def test_any_text_converts_to_a_value_of_the_new_type(new: FieldType, old: FieldType, text: str) -> None:
    target = field(new, picklist=(PicklistValue("a", "a"),))
    converted = convert_value(field(old), target, text)
    if new is F.CHECKBOX:
        assert isinstance(converted, bool)
    elif converted is not None:
        assert isinstance(converted, str)
        assert len(converted) <= 40
