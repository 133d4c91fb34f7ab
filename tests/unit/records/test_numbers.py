"""Auto numbers as their format shows them."""

from __future__ import annotations

import pytest

from tidewire.records.numbers import render_auto_number

LAST_MS_OF_2023 = 1_704_067_199_999


@pytest.mark.parametrize(
    "display_format, shown",
    [
        ("{0}", "42"),
        ("INV-{0000}", "INV-0042"),
        ("{0}/{YYYY}-{MM}-{DD}", "42/2023-12-31"),
        ("{YY}{0000}", "230042"),
    ],
)
def test_auto_number_shows_its_counter_and_the_day_it_was_made(display_format: str, shown: str) -> None:
    assert render_auto_number(display_format, 42, LAST_MS_OF_2023) == shown


def test_counter_with_more_digits_than_zeros_is_shown_whole() -> None:
    assert render_auto_number("A{00}", 12345, 0) == "A12345"
