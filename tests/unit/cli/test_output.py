"""Bars on a terminal, and nothing where there is none. A pseudo-terminal stands for the terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest

from tidewire.cli.output import iter_lines, progress, working


class Terminal:
    """Standard error as a terminal, and what it has been shown."""

    def __init__(self, descriptor: int, stream: io.TextIOWrapper) -> None:
        self._descriptor = descriptor
        self.stream = stream

    def shown(self) -> str:
        """Everything so far."""
        self.stream.flush()
        os.write(self.stream.fileno(), b"\x00")
        told = b""
        while b"\x00" not in told:
            told += os.read(self._descriptor, 1 << 16)
        return told.replace(b"\x00", b"").decode()


@contextmanager
def seen() -> Iterator[Terminal]:
    """Not a fixture: pytest puts its own standard error in place before the test itself begins."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w", encoding="utf-8") as stream, redirect_stderr(stream):
        yield Terminal(ours, stream)


def test_work_that_is_done_fills_its_bar() -> None:
    with seen() as terminal:
        with working("copying", 1000, lambda: 500):
            pass
        shown = terminal.shown()
    assert "copying" in shown
    assert "100%" in shown


def test_work_that_fails_leaves_its_bar_where_it_was() -> None:
    asked = threading.Event()

    def measure() -> int:
        asked.set()
        return 500

    def fail() -> None:
        with working("copying", 1000, measure):
            assert asked.wait(60)
            raise OSError("full")

    with seen() as terminal:
        with pytest.raises(OSError, match="full"):
            fail()
        assert "100%" not in terminal.shown()


def test_work_of_unknown_length_counts_seconds() -> None:
    with seen() as terminal:
        told = ""
        with working("looking"):
            while "looking" not in told:
                told += terminal.shown()
    assert re.search(r"looking  \d+ s", told)


def test_lines_of_a_file_come_with_a_bar_and_of_a_pipe_without(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("é\nzwei\n", "utf-8")
    with seen() as terminal:
        with path.open(encoding="utf-8") as file:
            assert list(iter_lines(file, "publishing")) == ["é\n", "zwei\n"]
        assert "100%" in terminal.shown()
        assert list(iter_lines(io.StringIO("a\nb\n"), "publishing")) == ["a\n", "b\n"]
        assert terminal.shown() == ""


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(10, "reading") as step, working("copying", 10, lambda: 5), working("looking"):
        step(10)
    assert capsys.readouterr() == ("", "")
