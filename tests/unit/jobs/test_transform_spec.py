"""Transformation specs: columns of foreign files mapped to fields."""

from __future__ import annotations

import pytest

from tidewire.errors import JobInvalid
from tidewire.jobs.transform_spec import Transform, parse_spec
from tidewire.schema.standard import STANDARD_OBJECTS

HEADER = ["Salesforce Field", "Csv Header", "Value", "Hint"]
CONTACT = next(obj for obj in STANDARD_OBJECTS if obj.name == "Contact")


def transform(*lines: list[str], given: list[str]) -> Transform:
    return Transform(parse_spec([HEADER, *lines]), CONTACT, given)


def test_spec_of_the_guide_makes_the_rows_of_the_guide() -> None:
    made = transform(
        ["Name", "Full Name", "", ""],
        ["Title", "Job Title", "", ""],
        ["LeadSource", "Lead Source", "Import", ""],
        ["Description", "", "Imported from XYZ.csv", ""],
        ["Birthdate", "Date of Birth", "", "dd MM yy"],
        given=["Full Name", "Job Title", "Lead Source", "Date of Birth", "Comment"],
    )
    assert made.header == ["LastName", "FirstName", "Title", "LeadSource", "Description", "Birthdate"]
    assert made.row(["Cat, Tom", "DSH", "Interview", "10 Feb 40", "likes Jerry"]) == [
        *("Cat", "Tom", "DSH", "Interview", "Imported from XYZ.csv", "1940-02-10"),
    ]
    assert made.row(["Jerry Mouse", "House Mouse", "", "10 Feb 40", "likes Tom"]) == [
        *("Mouse", "Jerry", "House Mouse", "Import", "Imported from XYZ.csv", "1940-02-10"),
    ]


@pytest.mark.parametrize(
    "name, hint, text, wanted",
    [
        ("Birthdate", "MM-dd-yyyy", "12-31-1999", "1999-12-31"),
        ("Birthdate", "yyyyMMdd", "19991231", "1999-12-31"),
        ("Birthdate", "d.M.yy", "1.2.05", "2005-02-01"),
        ("Birthdate", "dd MMM yyyy", "01 nope 2005", "01 nope 2005"),
        ("Birthdate", "dd/MM/yyyy", "2005-02-01", "2005-02-01"),
        ("EmailBouncedDate", "MM/dd/yyyy hh:mm a", "02/03/2004 12:05 am", "2004-02-03T00:05:00.000Z"),
        (
            "EmailBouncedDate",
            "yyyy-MM-dd'T'HH:mm:ssZ",
            "2004-02-03T13:05:06+0100",
            "2004-02-03T13:05:06.000+0100",
        ),
        ("DoNotCall", "^(yes|y|ja)$", "JA", "true"),
        ("DoNotCall", "yes", "no", "false"),
        ("DoNotCall", "yes", "", ""),
        ("Title", "anything (goes", "x", "x"),
    ],
)
def test_hint_says_how_a_cell_is_read(name: str, hint: str, text: str, wanted: str) -> None:
    assert transform([name, "Column", "", hint], given=["column "]).row([text]) == [wanted]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [HEADER],
        [["Field", "Header", "Value", "Hint"], ["Title", "T", "", ""]],
        [HEADER, ["Title", "T"]],
        [HEADER, ["", "T", "", ""]],
        [HEADER, ["Title", "T", "", "x" * 201]],
    ],
)
def test_spec_without_its_form_is_refused(rows: list[list[str]]) -> None:
    with pytest.raises(JobInvalid):
        parse_spec(rows)


@pytest.mark.parametrize(
    "line",
    [
        ["Title", "Missing", "", ""],
        ["DoNotCall", "A", "", "(a+)+$"],
        ["DoNotCall", "A", "", "a{9,}"],
        ["Birthdate", "A", "", "dd dd"],
        ["Birthdate", "A", "", "dd QQ"],
    ],
)
def test_line_that_cannot_be_followed_is_refused(line: list[str]) -> None:
    with pytest.raises(JobInvalid):
        transform(line, given=["A"])
