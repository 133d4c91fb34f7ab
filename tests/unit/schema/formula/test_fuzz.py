"""Any text is read or refused, and what is accepted has a value for every row."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schema.formula.things import DAY, THING
from tidewire.errors import DefinitionInvalid
from tidewire.events import Value
from tidewire.schema.field_types import FieldType
from tidewire.schema.formula.check import check_formula
from tidewire.schema.formula.evaluate import evaluate
from tidewire.schema.formula.parser import parse_formula

WORDS = r"""
    IF CASE AND OR NOT ISBLANK ISNULL BLANKVALUE ISPICKVAL TEXT VALUE LEN MID ROUND TODAY() NOW() DATE YEAR
    TRUE FALSE NULL Name Count__c Due__c At__c Color__c Tags__c Done__c Nope__c Owner.Name $User
    ( ) , + - * / ^ & && || = == <> != < <= > >= ! 1 2.5 0 "a" 'b' "" " ' /* */ \
"""
UNARY = ["ABS", "FLOOR", "CEILING", "SQRT", "EXP", "LN", "LOG", "MIN", "-"]
ROWS: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {},
    optional={
        "Name": st.none() | st.text(max_size=20),
        "Count__c": st.none() | st.floats() | st.integers(),
        "Price__c": st.none() | st.floats(),
        "Share__c": st.none() | st.floats(-1e5, 1e5),
        "Done__c": st.none() | st.booleans(),
        "Due__c": st.none() | st.integers(-(10**7), 10**7).map(lambda day: day * DAY),
        "At__c": st.none() | st.integers(-(10**18), 10**18),
        "Hour__c": st.none() | st.integers(0, DAY - 1),
        "Note__c": st.none() | st.text(max_size=20),
        "Color__c": st.none() | st.sampled_from(["Red", "Blue"]),
        "Tags__c": st.none() | st.sampled_from(["A", "A;C", ";"]),
    },
)


def _numbers(parts: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    number, text, truth, day = parts["number"], parts["text"], parts["truth"], parts["day"]
    return st.one_of(
        st.builds("({} {} {})".format, number, st.sampled_from("+-*/^"), number),
        st.builds("{}({})".format, st.sampled_from(UNARY), number),
        st.builds("{}({}, {})".format, st.sampled_from(["ROUND", "MOD", "MAX", "NULLVALUE"]), number, number),
        st.builds("{}({})".format, st.sampled_from(["LEN", "VALUE"]), text),
        st.builds("FIND({}, {}, {})".format, text, text, number),
        st.builds("IF({}, {}, {})".format, truth, number, number),
        st.builds("CASE({}, {}, {}, {})".format, text, text, number, number),
        st.builds("({} - {})".format, day, day),
        st.builds("{}({})".format, st.sampled_from(["YEAR", "MONTH", "DAY"]), day),
    )


def _texts(parts: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    number, text, day = parts["number"], parts["text"], parts["day"]
    return st.one_of(
        st.builds("({} & {})".format, text, text),
        st.builds("{}({})".format, st.sampled_from(["UPPER", "LOWER", "TRIM"]), text),
        st.builds("TEXT({})".format, st.one_of(number, day)),
        st.builds("{}({}, {})".format, st.sampled_from(["LEFT", "RIGHT"]), text, number),
        st.builds("MID({}, {}, {})".format, text, number, number),
        st.builds("SUBSTITUTE({}, {}, {})".format, text, text, text),
        st.builds("BLANKVALUE({}, {})".format, text, text),
    )


def _truths(parts: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    number, text, truth, day = parts["number"], parts["text"], parts["truth"], parts["day"]
    comparing = st.sampled_from(["=", "<>", "<", ">="])
    return st.one_of(
        st.builds("({} {} {})".format, number, comparing, number),
        st.builds("({} {} {})".format, day, comparing, day),
        st.builds("({} {} {})".format, text, st.sampled_from(["=", "!="]), text),
        st.builds("({} {} {})".format, truth, st.sampled_from(["&&", "||"]), truth),
        st.builds("NOT({})".format, truth),
        st.builds("{}({})".format, st.sampled_from(["ISBLANK", "ISNULL"]), st.one_of(number, text, day)),
        st.builds("{}({}, {})".format, st.sampled_from(["CONTAINS", "BEGINS"]), text, text),
    )


def _days(parts: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    number, text, truth, day = parts["number"], parts["text"], parts["truth"], parts["day"]
    return st.one_of(
        st.builds("({} {} {})".format, day, st.sampled_from("+-"), number),
        st.builds("DATE({}, {}, {})".format, number, number, number),
        st.builds("DATEVALUE({})".format, text),
        st.builds("IF({}, {}, {})".format, truth, day, day),
        st.builds("DATEVALUE(DATETIMEVALUE({}))".format, st.one_of(text, day)),
        st.builds("DATEVALUE(At__c + {})".format, number),
    )


def _formulas() -> dict[str, st.SearchStrategy[str]]:
    parts: dict[str, st.SearchStrategy[str]] = {
        "number": st.sampled_from(["Count__c", "Price__c", "Share__c", "0", "1", "0.5", "100000", "NULL"]),
        "text": st.sampled_from(["Name", "Note__c", '""', '"a"', '"2024-02-30"', '"12"', "TEXT(Color__c)"]),
        "truth": st.sampled_from(["Done__c", "TRUE", "NULL", 'INCLUDES(Tags__c, "A")']),
        "day": st.sampled_from(["Due__c", "TODAY()", "DATE(2024, 2, 29)"]),
    }
    for _ in range(3):
        deeper = {
            "number": _numbers(parts),
            "text": _texts(parts),
            "truth": _truths(parts),
            "day": _days(parts),
        }
        parts = {kind: st.one_of(parts[kind], deeper[kind]) for kind in parts}
    return parts


FORMULAS = _formulas()
TYPES = {
    "number": (FieldType.NUMBER, FieldType.CURRENCY, FieldType.PERCENT),
    "text": (FieldType.TEXT,),
    "truth": (FieldType.CHECKBOX,),
    "day": (FieldType.DATE,),
}


def run(text: str, row: dict[str, Value]) -> None:
    """Take a formula all the way, for every result type; what is wrong with it must be told at definition."""
    for result in (each for each in FieldType if each.row.is_formula_result):
        try:
            formula = check_formula(parse_formula(text), THING, result)
        except DefinitionInvalid as error:
            refusal = error
        else:
            evaluate(formula, row, 0)
            continue
        assert {"row", "column"} <= refusal.details.keys()


@settings(deadline=None)
@given(st.text(), ROWS)
def test_any_text_is_read_or_refused(text: str, row: dict[str, Value]) -> None:
    run(text, row)


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=20), ROWS)
def test_any_words_are_read_or_refused(words: list[str], row: dict[str, Value]) -> None:
    run(" ".join(words), row)


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(TYPES)), ROWS, st.integers(0, 2**45))
def test_well_typed_formula_has_a_value_for_every_row(
    data: st.DataObject, kind: str, row: dict[str, Value], now_ms: int
) -> None:
    text = data.draw(FORMULAS[kind])
    if len(text) > 5_000:
        return
    for result in TYPES[kind]:
        value = evaluate(check_formula(parse_formula(text), THING, result), row, now_ms)
        if kind == "number":
            assert value is None or (isinstance(value, float) and math.isfinite(value))
        elif kind == "text":
            assert value is None or (isinstance(value, str) and value != "")
        elif kind == "truth":
            assert isinstance(value, bool)
        else:
            assert value is None or (isinstance(value, int) and value % DAY == 0)
