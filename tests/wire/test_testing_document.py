"""Every code block of docs/testing.md runs as it stands: tests under pytest, the others as programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, Block, blocks_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # each block starts a server of its own

DOCUMENT = ROOT / "docs" / "testing.md"
BLOCKS = blocks_of(DOCUMENT)
# Something that only comes out of a block that did what the document says, in their order.
SIGNS = ("2 passed", "1 passed", "UPDATE", "A-1 after two failures", "", "503\n200\n")


def command_of(block: Block, folder: Path) -> list[str]:
    if block.language == "sh":
        return ["bash", "-euc", block.text]
    path = folder / "test_block.py"
    path.write_text(block.text)
    if "def test_" in block.text:
        plain = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "tidewire.testing.plugin"]
        return [sys.executable, "-m", "pytest", *plain, "--rootdir", str(folder), str(path)]
    return [sys.executable, str(path)]


def test_document_has_a_sign_for_each_block() -> None:
    assert [block.language for block in BLOCKS] == ["python"] * 5 + ["sh"]
    assert len(SIGNS) == len(BLOCKS)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_code_block_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    told = tmp_path / "output"
    with told.open("w") as output:
        done = subprocess.run(
            command_of(BLOCKS[number], tmp_path),
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
                "PYTHONPATH": os.pathsep.join(
                    [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
                ),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, told.read_text()[-3000:]
    assert SIGNS[number] in told.read_text()
