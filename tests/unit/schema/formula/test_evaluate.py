"""What formulas are worth: operators, functions, blanks, and what is undefined."""

from __future__ import annotations

import pytest

from tests.unit.schema.formula.things import DAY, NOW_MS, ROW, TODAY_MS, checked, value_of
from tidewire.errors import DefinitionInvalid
from tidewire.events import Value
from tidewire.schema.field_types import FieldType
from tidewire.schema.formula.evaluate import evaluate

NUMBERS: list[tuple[str, float | None]] = [
    ("1", 1.0),
    ("0.1 + 0.2", 0.3),
    ("1 - 2 - 3", -4.0),
    ("2 * 3 + 4", 10.0),
    ("2 + 3 * 4", 14.0),
    ("(2 + 3) * 4", 20.0),
    ("7 / 2", 3.5),
    ("2 ^ 3 ^ 2", 64.0),
    ("2 * 3 ^ 2", 36.0),
    ("-2 ^ 2", 4.0),
    ("- - 2", 2.0),
    ("+2", 2.0),
    ("/* note */ 1 /* more * and / */ + 1", 2.0),
    ("Count__c * Price__c", 29.97),
    ("count__C", 3.0),
    ("Price__c * Share__c", 2.4975),
    ("ROUND(2.345, 2)", 2.35),
    ("ROUND(-2.5, 0)", -3.0),
    ("ROUND(1250, -2)", 1300.0),
    ("ROUND(1, 5)", 1.0),
    ("FLOOR(2.7)", 2.0),
    ("FLOOR(-2.7)", -2.0),
    ("CEILING(2.1)", 3.0),
    ("CEILING(-2.1)", -3.0),
    ("MFLOOR(-2.7)", -3.0),
    ("MCEILING(-2.7)", -2.0),
    ("ABS(-3)", 3.0),
    ("MOD(7, 3)", 1.0),
    ("MOD(-7, 3)", -1.0),
    ("MIN(3, 1, 2)", 1.0),
    ("MAX(3, 1, 2)", 3.0),
    ("SQRT(9)", 3.0),
    ("EXP(0)", 1.0),
    ("LN(1)", 0.0),
    ("LOG(1000)", 3.0),
    ("LEN(Note__c)", 10.0),
    ('FIND("b", Note__c)', 7.0),
    ('FIND("a", Note__c, 6)', 10.0),
    ('FIND("zz", Note__c)', 0.0),
    ('FIND("a", Note__c, 0)', 0.0),
    ('VALUE("12.50")', 12.5),
    ('VALUE("")', None),
    ('VALUE("twelve")', None),
    ("YEAR(Due__c)", 2022.0),
    ("MONTH(Due__c)", 1.0),
    ("DAY(Due__c)", 8.0),
    ("Due__c - DATE(2022, 1, 1)", 7.0),
    ("At__c - CreatedDate", 3661 / 86400),
    ("Hour__c - Hour__c", 0.0),
    ("IF(Done__c, 1, 2)", 1.0),
    ("IF(Done__c, NULL, 2)", None),
    ("IF(Done__c, NULL, 2) + 1", None),
    ("BLANKVALUE(IF(Done__c, NULL, 2), 7)", 7.0),
    ("NULLVALUE(IF(Done__c, NULL, 2), 7)", 7.0),
    ('CASE(Color__c, "Blue", 1, "Red", 2, 3)', 2.0),
    ('CASE(Color__c, "Green", 1, 3)', 3.0),
    ("CASE(Count__c, 1, 10, 3, 30, 0)", 30.0),
    ("1 / 0", None),
    ("0 / 0", None),
    ("10 ^ 1000", None),
    ("(-8) ^ 0.5", None),
    ("0 ^ -1", None),
    ("SQRT(-1)", None),
    ("LN(0)", None),
    ("MOD(1, 0)", None),
    ("ROUND(1, 10 ^ 20)", None),
    ("IF(Count__c = 3, 0, 1 / 0)", 0.0),
    ("NULL", None),
]
TEXTS: list[tuple[str, str | None]] = [
    ('"a" & "b"', "ab"),
    ("'one' + 'two'", "onetwo"),
    (r'"a\"b\\c\nd"', 'a"b\\c\nd'),
    ('Name & ": " & TEXT(Count__c)', "Lamp: 3"),
    ("TEXT(0.50)", "0.5"),
    ("TEXT(-0)", "0"),
    ("TEXT(100)", "100"),
    ("TEXT(Due__c)", "2022-01-08"),
    ("TEXT(At__c)", "2022-01-08 01:01:01Z"),
    ("TEXT(Hour__c)", "01:00:00.000"),
    ("TEXT(Color__c)", "Red"),
    ("LEFT(Note__c, 5)", "Alpha"),
    ("LEFT(Note__c, -1)", None),
    ("RIGHT(Note__c, 4)", "beta"),
    ("RIGHT(Note__c, 0)", None),
    ("MID(Note__c, 7, 2)", "be"),
    ("MID(Note__c, 0, 2)", "Al"),
    ("UPPER(Note__c)", "ALPHA BETA"),
    ("LOWER(Note__c)", "alpha beta"),
    ('TRIM("  x ")', "x"),
    ('SUBSTITUTE(Note__c, "a", "-")', "Alph- bet-"),
    ('SUBSTITUTE(Note__c, "", "-")', "Alpha beta"),
    ("IF(Done__c, 'yes', 'no')", "yes"),
    ('""', None),
    ("OwnerId", None),
    ("Id", "a00000000000001AAA"),
]
TRUTHS: list[tuple[str, bool]] = [
    ("Done__c", True),
    ("NOT(Done__c)", False),
    ("!Done__c", False),
    ("AND(TRUE, Done__c, 1 < 2)", True),
    ("OR(FALSE, FALSE)", False),
    ("TRUE && FALSE || TRUE", True),
    ("1 = 1.0", True),
    ("1 == 1", True),
    ("1 <> 1", False),
    ("1 != 2", True),
    ("2 >= 2", True),
    ("1 + 1 > 1 = TRUE", True),
    ('"a" = "A"', False),
    ("Due__c < DATE(2023, 1, 1)", True),
    ("Due__c = NULL", False),
    ("At__c > NOW()", False),
    ("Due__c < TODAY()", True),
    ('ISPICKVAL(Color__c, "Red")', True),
    ('ISPICKVAL(Color__c, "red")', False),
    ('INCLUDES(Tags__c, "C")', True),
    ('INCLUDES(Tags__c, "B")', False),
    ('CONTAINS(Note__c, "pha b")', True),
    ('BEGINS(Note__c, "Alp")', True),
    ('BEGINS(Note__c, "alp")', False),
    ("ISBLANK(Note__c)", False),
    ("ISBLANK(OwnerId)", True),
    ("ISNULL(OwnerId)", False),
    ("ISNULL(NULL)", True),
    ("OR(TRUE, 1 / 0 = 1)", True),
    ("1 / 0 = 1", False),
    ("IF(NULL, TRUE, FALSE)", False),
]
MOMENTS: list[tuple[str, FieldType, int | None]] = [
    ("Due__c + 1", FieldType.DATE, 19_001 * DAY),
    ("1.9 + Due__c", FieldType.DATE, 19_001 * DAY),
    ("Due__c - 1", FieldType.DATE, 18_999 * DAY),
    ("Due__c + NULL", FieldType.DATE, None),
    ("Due__c + 10000000", FieldType.DATE, None),
    ("DATE(2022, 1, 8)", FieldType.DATE, 19_000 * DAY),
    ("DATE(2022, 2, 30)", FieldType.DATE, None),
    ("DATE(1, 1, 1)", FieldType.DATE, None),
    ("DATEVALUE('2022-01-08')", FieldType.DATE, 19_000 * DAY),
    ("DATEVALUE('8 January')", FieldType.DATE, None),
    ("DATEVALUE(At__c)", FieldType.DATE, 19_000 * DAY),
    ("TODAY()", FieldType.DATE, TODAY_MS),
    ("NOW()", FieldType.DATETIME, NOW_MS - 789),
    ("At__c + 0.5", FieldType.DATETIME, 19_000 * DAY + 3_661_000 + DAY // 2),
    ("At__c - 1", FieldType.DATETIME, 18_999 * DAY + 3_661_000),
    ("DATETIMEVALUE('2022-01-08 01:01:01')", FieldType.DATETIME, 19_000 * DAY + 3_661_000),
    ("DATETIMEVALUE('2022-01-08')", FieldType.DATETIME, 19_000 * DAY),
    ("DATETIMEVALUE('2022-01-08 25:00:00')", FieldType.DATETIME, None),
    ("DATETIMEVALUE(Due__c)", FieldType.DATETIME, 19_000 * DAY),
    ("Hour__c - 7200000", FieldType.TIME, DAY - 3_600_000),
    ("BLANKVALUE(Due__c, TODAY())", FieldType.DATE, 19_000 * DAY),
]


@pytest.mark.parametrize("text, expected", NUMBERS)
def test_number_formula_has_its_value(text: str, expected: float | None) -> None:
    assert value_of(text, FieldType.NUMBER) == (
        None if expected is None else pytest.approx(expected, abs=1e-12)
    )


@pytest.mark.parametrize("text, expected", TEXTS)
def test_text_formula_has_its_value(text: str, expected: str | None) -> None:
    assert value_of(text, FieldType.TEXT) == expected


@pytest.mark.parametrize("text, expected", TRUTHS)
def test_checkbox_formula_has_its_value(text: str, expected: bool) -> None:
    assert value_of(text, FieldType.CHECKBOX) is expected


@pytest.mark.parametrize("text, result, expected", MOMENTS)
def test_date_and_time_formula_has_its_value(text: str, result: FieldType, expected: int | None) -> None:
    assert value_of(text, result) == expected


@pytest.mark.parametrize(
    "text, result, expected",
    [
        ("Count__c + 1", FieldType.NUMBER, 1.0),
        ("Count__c = 0", FieldType.CHECKBOX, True),
        ("ISBLANK(Count__c)", FieldType.CHECKBOX, False),
        ('Note__c & "x"', FieldType.TEXT, "x"),
        ('Note__c = ""', FieldType.CHECKBOX, True),
        ("ISBLANK(Note__c)", FieldType.CHECKBOX, True),
        ("ISBLANK(Due__c)", FieldType.CHECKBOX, True),
        ("ISNULL(Due__c)", FieldType.CHECKBOX, True),
        ("ISBLANK(Color__c)", FieldType.CHECKBOX, True),
        ('ISPICKVAL(Color__c, "")', FieldType.CHECKBOX, True),
        ('CASE(Color__c, "", "none", "some")', FieldType.TEXT, "none"),
        ("Due__c + 1", FieldType.DATE, None),
        ("YEAR(Due__c)", FieldType.NUMBER, None),
        ("Due__c < TODAY()", FieldType.CHECKBOX, False),
        ("Due__c > TODAY()", FieldType.CHECKBOX, False),
        ("Due__c = NULL", FieldType.CHECKBOX, True),
        ("TEXT(Due__c)", FieldType.TEXT, None),
        ("Done__c", FieldType.CHECKBOX, False),
    ],
)
def test_blank_fields_count_as_zero_or_empty(text: str, result: FieldType, expected: Value) -> None:
    assert value_of(text, result, {}) == expected


def test_percent_is_a_fraction_inside_and_a_percentage_outside() -> None:
    assert value_of("Share__c", FieldType.NUMBER) == 0.25
    assert value_of("Share__c + 0.5", FieldType.PERCENT) == 75.0


def test_volatile_formula_follows_the_time_it_is_asked() -> None:
    formula = checked("TODAY() - Due__c", FieldType.NUMBER)
    first, later = evaluate(formula, ROW, NOW_MS), evaluate(formula, ROW, NOW_MS + 2 * DAY)
    assert isinstance(first, float)
    assert later == first + 2


def test_long_chain_is_computed_without_depth() -> None:
    assert value_of("+".join("1" * 2_500), FieldType.NUMBER) == 2_500.0


def test_text_that_would_grow_without_bound_is_null() -> None:
    text = "Note__c"
    for _ in range(20):
        text = f'SUBSTITUTE({text}, "a", "aaaaaaaaaa")'
    assert value_of(text, FieldType.TEXT) is None


@pytest.mark.parametrize(
    "opening, closing",
    [("IF(Done__c, ", ", 0)"), ("1 + 1 * (", ")"), ("-ABS(", ")"), ("MAX(1, 1 + ", ")"), ("(", " * 1 + 1)")],
)
def test_deepest_formula_is_computed(opening: str, closing: str) -> None:
    deepest = 0
    for depth in range(1, 101):
        try:
            formula = checked(opening * depth + "1" + closing * depth, FieldType.NUMBER)
        except DefinitionInvalid:
            break
        deepest = depth
        assert evaluate(formula, ROW, NOW_MS) is not None
    assert deepest >= 30
