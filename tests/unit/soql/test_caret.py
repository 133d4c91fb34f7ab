from __future__ import annotations

import pytest

from tidewire.errors import SoqlSyntaxError
from tidewire.soql.caret import locate, pointing_error, render_caret_block


@pytest.mark.parametrize(
    "text, position, place",
    [
        ("abc", 0, (1, 1)),
        ("abc", 3, (1, 4)),
        ("ab\ncd", 2, (1, 3)),
        ("ab\ncd", 3, (2, 1)),
        ("ab\r\ncd\n\nx", 8, (4, 1)),
    ],
)
def test_locate_counts_rows_and_columns_from_one(text: str, position: int, place: tuple[int, int]) -> None:
    assert locate(text, position) == place


def test_caret_block_of_a_short_query_shows_all_of_it() -> None:
    text = "Select Id, Status, Location, Body from ApexLog"
    block = render_caret_block(text, text.index("Body"), "why")
    assert block == f"\n{text}\n{' ' * 29}^\nERROR at Row:1:Column:30\nwhy"


def test_caret_block_before_the_fault_reaches_back_to_the_start_of_a_word() -> None:
    text = "select Id, ProductCode from Product2 where ProductCode = 3999"
    block = render_caret_block(text, text.rindex("ProductCode"), "why")
    assert block == (
        "\nProductCode from Product2 where ProductCode = 3999\n                                ^\n"
        "ERROR at Row:1:Column:44\nwhy"
    )


def test_caret_block_of_a_list_without_blanks_breaks_at_commas() -> None:
    text = "select Other__c,CreatedById,OCE__ActualCap__c,TPI_Product__c,Name,OCE__JobId__c,Last__c from X"
    block = render_caret_block(text, text.index("TPI"), "why")
    assert block.split("\n")[1:3] == [
        "CreatedById,OCE__ActualCap__c,TPI_Product__c,Name,OCE__JobId__c",
        " " * 30 + "^",
    ]


def test_caret_block_never_leaves_the_row() -> None:
    block = render_caret_block("SELECT Id\r\nFROM Nope\r\nLIMIT 1", 16, "why")
    assert block == "\nFROM Nope\n     ^\nERROR at Row:2:Column:6\nwhy"


def test_caret_block_does_not_repeat_a_huge_literal() -> None:
    text = "SELECT Id FROM A WHERE B = '" + "x" * 50_000 + "'"
    assert len(render_caret_block(text, text.index("'"), "why")) < 600
    assert len(render_caret_block(text, len(text), "why")) < 600


def test_pointing_error_carries_place_query_and_bare_reason() -> None:
    error = pointing_error(SoqlSyntaxError, "a\nbc", 3, "why", field="F")
    assert error.message.endswith("ERROR at Row:2:Column:2\nwhy")
    assert error.details == {"row": 2, "column": 2, "query": "a\nbc", "reason": "why", "field": "F"}


def test_pointing_error_without_block_is_the_reason_alone() -> None:
    assert pointing_error(SoqlSyntaxError, "abc", 1, "why", shows_place=False).message == "why"
