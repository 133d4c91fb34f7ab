"""Runs the code blocks of a document, in their order, as one reader would.

A block's language says how: `sh` belongs to one shell session, whose variables and folder later blocks find; `python`,
`js` and `java` are programs of their own. The addresses of `tidewire serve --dev` and the place of its certificate are
replaced by those of a test's server; nothing else is touched. Blocks that show what is seen (`json`, `console`, `yaml`
and those without a language) are not run. A comment before a block, `<!-- long -->`, leaves it to slower tests, and
`<!-- runs in FILE -->` to the test that does nothing else.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidewire.testing import ServerProcess

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = ROOT / "tests" / "clients"
SHOWN = frozenset({"", "console", "json", "yaml", "text"})
RUN = frozenset({"sh", "python", "js", "java"})
_BLOCK = re.compile(r"^(?:<!-- ([^>]*?) -->\n)?```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CLASS = re.compile(r"^public class (\w+)", re.MULTILINE)
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `note` is the comment before it."""

    language: str
    text: str
    note: str

    @property
    def is_long(self) -> bool:
        """Whether it is left to slower tests."""
        return self.note == "long"

    @property
    def runner(self) -> str:
        """The test that runs it instead, if one does."""
        return self.note.removeprefix("runs in ") if self.note.startswith("runs in ") else ""


def blocks_of(document: Path) -> list[Block]:
    """Every block of a document."""
    return [
        Block(language, text, note or "") for note, language, text in _BLOCK.findall(document.read_text())
    ]


def run_blocks(blocks: list[Block], server: ServerProcess, folder: Path, limit_s: float = _LIMIT_S) -> str:
    """Run blocks one after the other; what they printed. Fails with the output of the first that fails."""
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in (("tidewire", "-m tidewire.cli "), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        program.chmod(0o755)
    for name in ("examples", "proto"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "node_modules").symlink_to(CLIENTS / "node_modules")
    script = ["set -euo pipefail"]
    for number, block in enumerate(blocks):
        text = _addressed(block.text, server)
        match block.language:
            case "sh":
                script.append(text)
            case "python":
                (folder / f"block{number}.py").write_text(text)
                script.append(f'"{sys.executable}" block{number}.py')
            case "js":
                (folder / f"block{number}.mjs").write_text(text)
                script.append(f"node block{number}.mjs")
            case "java":
                found = _CLASS.search(text)
                assert found is not None, "a Java block is one public class"
                (folder / f"{found[1]}.java").write_text(text)
                script.append(f"java -cp '{CLIENTS / 'java' / 'lib'}/*' {found[1]}.java")
            case _:
                raise ValueError(f"nobody knows how to run {block.language!r}")
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TIDEWIRE_CONFIG_DIR": str(folder / "config"),
    }
    # Output goes to a file: what a block leaves in the background must not keep a pipe open.
    told = folder / "output"
    with told.open("w") as output:
        running = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # whatever a block has left behind
            running.wait()
    assert status == 0, told.read_text()[-3000:]
    return told.read_text()


def _addressed(text: str, server: ServerProcess) -> str:
    for usual, actual in (
        ("http://localhost:8080", server.http),
        ("https://localhost:8443", server.https),
        ("localhost:7011", server.grpc),
        ("localhost:7443", server.grpc_tls),
        ("data/server/tls/ca.pem", str(server.ca_path)),
    ):
        text = text.replace(usual, actual)
    return text
