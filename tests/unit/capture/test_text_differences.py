"""Text differences: when one is sent, what it looks like, and that it gives back the new text."""

from __future__ import annotations

import hashlib
import random
import re

import pytest

from tidewire.capture.text_differences import try_difference

LINES = [
    f"This is line number {n} of a text that is long enough to be told by its differences." for n in range(20)
]
_HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")


def rebuild(old: str, difference: str) -> str:
    """The new text, as a reader makes it: hunks name old lines, from 1 on."""
    line_break = "\r\n" if "\r\n" in old else "\n"
    before, after = old.split(line_break), []
    lines = difference.split("\n")
    assert lines[0] == "--- "
    place, i = 0, 2
    while i < len(lines):
        match = _HUNK.fullmatch(lines[i])
        assert match is not None
        start, taken, _, given = map(int, match.groups())
        assert taken > 0
        after += before[place : start - 1]
        assert [line[1:] for line in lines[i + 1 : i + 1 + taken]] == before[start - 1 : start - 1 + taken]
        after += [line[1:] for line in lines[i + 1 + taken : i + 1 + taken + given]]
        place = start - 1 + taken
        i += 1 + taken + given
    new = line_break.join(after + before[place:])
    assert lines[1] == "+++ " + hashlib.sha256(new.encode()).hexdigest()
    return new


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_changed_line_is_sent_without_context_and_with_its_count(line_break: str) -> None:
    old = line_break.join(LINES)
    new = old.replace("number 4 ", "number four ")
    difference = try_difference(old, new)
    assert difference is not None
    assert difference.split("\n")[2:] == [
        "@@ -5,1 +5,1 @@",
        "-" + LINES[4],
        "+" + LINES[4].replace("number 4 ", "number four "),
    ]
    assert rebuild(old, difference) == new


@pytest.mark.parametrize("place", [0, 1, 7, 20])
def test_line_that_comes_in_takes_its_neighbour_along(place: int) -> None:
    old, new = "\n".join(LINES), "\n".join([*LINES[:place], "new", *LINES[place:]])
    difference = try_difference(old, new)
    assert difference is not None
    assert rebuild(old, difference) == new


def test_random_edits_are_rebuilt_to_the_letter() -> None:
    random.seed(7)
    told = 0
    for _ in range(300):
        lines = list(LINES)
        for _ in range(random.randint(1, 4)):
            place = random.randrange(len(lines))
            match random.randrange(3):
                case 0:
                    lines[place] += "!"
                case 1:
                    lines.insert(place, "")
                case _:
                    del lines[place]
        old, new = "\n".join(LINES), "\n".join(lines)
        difference = try_difference(old, new)
        if difference is not None:
            told += 1
            assert rebuild(old, difference) == new
    assert told > 200


def test_text_below_a_thousand_characters_is_sent_whole() -> None:
    text = "\n".join("x" * 99 for _ in range(10))
    assert len(text) == 999
    assert try_difference(text, "y" + text[1:]) is None
    assert try_difference(text + "x", "y" + text[1:] + "x") is not None


def test_text_that_grew_by_more_than_half_is_sent_whole() -> None:
    old = "\n".join(LINES)
    assert try_difference(old, old + "\n" + "z" * (len(old) // 2)) is None
    assert try_difference(old, old + "\n" + "z" * (len(old) // 2 - 100)) is not None


def test_more_than_a_quarter_of_both_texts_lines_changed_is_sent_whole() -> None:
    def text(changed: int) -> str:
        return "\n".join(["t" * 20 if n < changed else "s" * 20 for n in range(14)] + LINES[8:])

    lines = text(0).count("\n") + 1
    assert try_difference(text(0), text(lines // 2)) is not None
    assert try_difference(text(0), text(lines // 2 + 1)) is None


def test_difference_longer_than_the_new_text_is_not_sent() -> None:
    lines = ["x" * 600, *"abcdefg"]
    old = "\n".join(["y" * 600, *lines])
    assert len(old) > 1000
    assert try_difference(old, "\n".join(["z" * 600, *lines])) is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + "\n",
        lambda text: text.replace("\n", "\r\n", 1),
    ],
)
def test_text_that_its_lines_do_not_give_back_is_sent_whole(edit: object) -> None:
    assert callable(edit)
    old = "\n".join(LINES)
    assert try_difference(old, edit(old)) is None
    assert try_difference(edit(old), "y" + old[1:]) is None


def test_very_many_equal_lines_are_compared_in_bounded_time() -> None:
    old = "\n".join(["a"] * 60_000)
    new = "\n".join(["a", "b"] * 30_000)
    assert try_difference(old, new) is None
