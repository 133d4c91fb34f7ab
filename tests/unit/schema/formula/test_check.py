"""What is refused, and with what message; what a checked formula knows of itself."""

from __future__ import annotations

import pytest

from tests.unit.schema.formula.things import checked
from tidewire.errors import DefinitionInvalid
from tidewire.schema.field_types import FieldType
from tidewire.schema.formula.parser import MAX_DEPTH, parse_formula
from tidewire.schema.formula.tokens import MAX_FORMULA_CHARS

REFUSED = [
    ("", 1, 1, "the formula ends too early"),
    ("1 +", 1, 4, "the formula ends too early"),
    ("(1", 1, 3, "the formula ends too early; ')' is missing"),
    ("1 2", 1, 3, "unexpected '2'"),
    ("1 # 2", 1, 3, "unexpected character '#'"),
    ('"abc', 1, 1, "the text has no closing quote on its line"),
    (r'"a\q"', 1, 1, r"the text has an unknown escape '\q'"),
    ("1 +\n  Nope__c", 2, 3, "Thing__c has no field Nope__c"),
    ("Owner.Name", 1, 1, "only fields of Thing__c itself can be used, not Owner.Name"),
    ("$User.Id", 1, 1, "only fields of Thing__c itself can be used, not $User.Id"),
    ("NOSUCH(1)", 1, 1, "there is no function NOSUCH"),
    ("ABS(1, 2)", 1, 1, "ABS takes 1 arguments, not 2"),
    ('FIND("a")', 1, 1, "FIND takes 2 to 3 arguments, not 1"),
    ("MIN()", 1, 1, "MIN takes at least 1 arguments, not 0"),
    ("CASE(1, 2, 3, 4, 5)", 1, 1, "CASE takes an expression, pairs of value and result, and a last result"),
    (
        "1 + TRUE",
        1,
        5,
        "what '+' joins must be number or text or date or datetime or time, not true or false",
    ),
    ('1 + "a"', 1, 1, "what '+' joins must be text, not number"),
    ("Due__c + Due__c", 1, 8, "'+' cannot join date and date"),
    ("Due__c - At__c", 1, 8, "'-' cannot join date and datetime"),
    ("Name & 1", 1, 8, "what '&' joins must be text, not number"),
    ('1 = "a"', 1, 5, "what '=' compares must be number, not text"),
    ("TRUE < FALSE", 1, 8, "what '<' compares must be number or date or datetime or time, not true or false"),
    ("IF(1, 2, 3)", 1, 4, "the condition of IF must be true or false, not number"),
    ("IF(TRUE, 1, TODAY())", 1, 13, "what IF chooses between must be number, not date"),
    ("Color__c = 'Red'", 1, 1, "; compare a picklist with ISPICKVAL or CASE, or make it text with TEXT"),
    ("Tags__c = 'A'", 1, 1, "; ask a multi-select picklist with INCLUDES or ISBLANK"),
    ("ISPICKVAL(Name, 'x')", 1, 11, "the first argument of ISPICKVAL must be a picklist field"),
    ("ISPICKVAL(Color__c, Name)", 1, 21, "the second argument of ISPICKVAL must be a text in quotes"),
    (
        "INCLUDES(Color__c, 'x')",
        1,
        10,
        "the first argument of INCLUDES must be a multi-select picklist field",
    ),
    ("LEN(Long__c)", 1, 5, "Long__c is of type LongTextArea, which formulas cannot read"),
    ("YEAR(At__c)", 1, 6, "argument 1 of YEAR must be date, not datetime"),
    ("Name", 1, 1, "the result must be number, not text"),
    ("-Name", 1, 2, "what '-' stands before must be number, not text"),
    ("1" + "0" * 31, 1, 1, "the number is too large"),
    ("Name = '\ud800'", 1, 9, "a character that no text can hold"),
    ("(" * 101 + "1" + ")" * 101, 1, 101, f"the formula nests more than {MAX_DEPTH} deep"),
    ("-" * 101 + "1", 1, 2, f"the formula nests more than {MAX_DEPTH} deep"),
]


@pytest.mark.parametrize("text, row, column, reason", REFUSED)
def test_wrong_formula_is_refused_with_its_place(text: str, row: int, column: int, reason: str) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        checked(text, FieldType.NUMBER)
    details = caught.value.details
    assert reason in str(details["reason"])
    assert (details["row"], details["column"]) == (row, column)
    assert f"row {row}, column {column}" in caught.value.message


def test_formula_that_is_too_long_is_refused() -> None:
    parse_formula("1".rjust(MAX_FORMULA_CHARS))
    with pytest.raises(DefinitionInvalid, match="5000 characters"):
        parse_formula("1".rjust(MAX_FORMULA_CHARS + 1))


def test_result_type_that_no_formula_has_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="cannot yield the type Picklist"):
        checked("1", FieldType.PICKLIST)


def test_null_fits_every_result_type() -> None:
    for result in (FieldType.TEXT, FieldType.NUMBER, FieldType.DATE, FieldType.CHECKBOX, FieldType.TIME):
        assert checked("NULL", result).result is result


def test_checked_formula_knows_its_fields_and_whether_it_asks_the_time() -> None:
    plain = checked("count__c + Price__c * COUNT__C", FieldType.NUMBER)
    assert plain.references == {"Count__c", "Price__c"}
    assert not plain.is_volatile
    assert checked("TODAY() - Due__c", FieldType.NUMBER).is_volatile
    assert checked("IF(FALSE, NOW(), At__c)", FieldType.DATETIME).is_volatile
