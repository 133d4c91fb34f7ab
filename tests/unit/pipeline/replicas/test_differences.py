# ruff: noqa: RUF001 - the quotation marks of the original count for its hash
"""Text differences: the guide's own example, line breaks, and what must not be taken for the new text."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.capture.text_differences import try_difference
from tidewire.pipeline.replicas.differences import try_patch

GUIDE_OLD = "\r\n".join(
    [
        "Everyone is talking about “the cloud.” But what does it mean?",
        "Business applications are moving to the cloud. It’s not just a fad—the shift from traditional software "
        "models to the Internet has steadily gained momentum over the last 10 years.",
        "Cloud computing: a better way",
        "With cloud computing, you eliminate headaches because you’re not managing hardware and software—that’s "
        "the responsibility of an experienced vendor like Salesforce. The shared infrastructure means it works "
        "like a utility: you only pay for what you need, upgrades are automatic, and scaling up or down is easy.",
        "Cloud-based apps can be up and running in days or weeks, and they cost less. With a cloud app, you just "
        "open a browser, log in, customize the app, and start using it.",
        "Businesses are running all kinds of apps in the cloud, like customer relationship management (CRM), HR, "
        "accounting, and much more. Some of the world’s largest companies moved their applications to the cloud "
        "with Salesforce after rigorously testing the security and reliability of our infrastructure.",
        "As cloud computing grows in popularity, thousands of companies are simply rebranding their non-cloud "
        "products and services as “cloud computing.” Always dig deeper when evaluating cloud offerings.",
    ]
)
GUIDE_HASH = "682b8747ccdb93b546e7bbe479b27d26ec7c38ccabb76cdd8308c6595492bffc"
GUIDE_DIFF = "\n".join(
    [
        "--- ",
        f"+++ {GUIDE_HASH}",
        "@@ -2,1 +2,1 @@",
        "-Business applications are moving to the cloud. It’s not just a fad—the shift from traditional software "
        "models to the Internet has steadily gained momentum over the last 10 years.",
        "+Business apps are moving to the cloud. It’s not just a fad—the shift from traditional software "
        "models to the Internet has steadily gained momentum over the last 10 years.",
        "@@ -7,1 +7,1 @@",
        "-As cloud computing grows in popularity, thousands of companies are simply rebranding their non-cloud "
        "products and services as “cloud computing.” Always dig deeper when evaluating cloud offerings.",
        "+As cloud computing grows in popularity, thousands of companies are simply rebranding their non-cloud "
        "products and services as “cloud computing.” Always dig deeper when evaluating cloud offerings. And keep "
        "in mind that if you have to buy and manage hardware and software, what you’re looking at isn’t really "
        "cloud computing but a false cloud.",
    ]
)


def difference(new: str, *hunks: str) -> str:
    return "\n".join(["--- ", "+++ " + hashlib.sha256(new.encode()).hexdigest(), *hunks])


def test_guides_example_leads_to_the_text_of_the_guides_hash() -> None:
    new = try_patch(GUIDE_OLD, GUIDE_DIFF)
    assert new is not None
    assert hashlib.sha256(new.encode()).hexdigest() == GUIDE_HASH
    assert new.split("\r\n")[1].startswith("Business apps are moving")
    assert new.endswith("but a false cloud.")


def test_difference_on_the_text_it_leads_to_changes_nothing() -> None:
    new = try_patch(GUIDE_OLD, GUIDE_DIFF)
    assert try_patch(new, GUIDE_DIFF) == new


@pytest.mark.parametrize(
    "old",
    [None, "", "other", GUIDE_OLD.replace("\r\n", "\n"), GUIDE_OLD + "\r\n", " " + GUIDE_OLD],
)
def test_difference_on_another_text_is_rejected(old: str | None) -> None:
    assert try_patch(old, GUIDE_DIFF) is None


@pytest.mark.parametrize(
    "hunks",
    [
        ["@@ -2,1 +2,1 @@", "-x", "+y"],
        ["@@ -9,1 +9,1 @@", "-b", "+y"],
        ["@@ -2,2 +2,1 @@", "-b", "+y"],
        ["@@ -2,1 +2,2 @@", "-b", "+y"],
        ["@@ -2,1 +2,1 @@", "-b", "?y"],
        ["@@ -0,1 +0,1 @@", "-a", "+y"],
        ["nonsense"],
    ],
)
def test_hunk_that_does_not_fit_is_rejected(hunks: list[str]) -> None:
    assert try_patch("a\nb\nc", difference("a\ny\nc", *hunks)) is None


@pytest.mark.parametrize(
    "new,hunks",
    [
        ("a\ny\nc", ["@@ -2,1 +2,1 @@", "-b", "+y"]),
        ("a\ny\nc", ["@@ -2 +2 @@", "-b", "+y"]),
        ("a\nb\nnew\nc", ["@@ -2,0 +3,1 @@", "+new"]),
        ("a\nb\nnew\nc", ["@@ -2,1 +2,2 @@", " b", "+new"]),
        ("a\nc", ["@@ -2,1 +1,0 @@", "-b"]),
        ("a\ny\nz", ["@@ -2,2 +2,2 @@", "-b", "+y", "-c", "+z", ""]),
    ],
)
def test_forms_of_hunks_that_tools_write_are_understood(new: str, hunks: list[str]) -> None:
    assert try_patch("a\nb\nc", difference(new, *hunks)) == new


@pytest.mark.parametrize("text", ["", "--- ", "--- \n+++ ", "--- \n+++ 12", "x\n+++ " + "0" * 64])
def test_text_that_is_no_difference_is_rejected(text: str) -> None:
    assert try_patch("a", text) is None


@given(
    old=st.lists(st.sampled_from(["x" * 60, "y" * 60, "z"]), min_size=20, max_size=30),
    place=st.integers(0, 19),
    line_break=st.sampled_from(["\n", "\r\n"]),
)
def test_what_the_server_sends_is_rebuilt(old: list[str], place: int, line_break: str) -> None:
    new = [*old[:place], "changed", *old[place + 1 :]]
    before, after = line_break.join(["first" * 100, *old]), line_break.join(["first" * 100, *new])
    sent = try_difference(before, after)
    if sent is not None:
        assert try_patch(before, sent) == after
