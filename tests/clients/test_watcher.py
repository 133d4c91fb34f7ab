"""What a foreign client printed counts even when it has ended since."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.watcher import Watcher

pytestmark = pytest.mark.clients

PROGRAM = """
input()
print('{"kind": "event"}')
"""


def test_lines_of_an_ended_program_that_are_still_unread_are_waited_for(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with (
        Watcher(str(program), [], tmp_path / "ca.pem", tmp_path / "stderr") as watcher,
        # Whoever holds this keeps the reader from taking lines; waiting lets go of it.
        watcher._changed,  # noqa: SLF001
    ):
        process = watcher._process  # noqa: SLF001
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        process.wait(timeout=120)
        watcher.wait_for(lambda lines: lines == [{"kind": "event"}], 120)
