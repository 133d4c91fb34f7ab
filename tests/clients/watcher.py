"""A foreign client in a process of its own: what it prints, as it comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.scratch import QUICK_JVM

HERE = Path(__file__).parent
JAVA = ("java", *QUICK_JVM)


def command_of(script: str) -> list[str]:
    """How a program of this folder is started."""
    path = HERE / script
    if path.suffix == ".java":
        return [*JAVA, "-cp", str(path.parent / "lib" / "*"), str(path)]
    return [sys.executable if path.suffix == ".py" else "node", str(path)]


def run_walk(script: str, arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Run a program of this folder to its end; returns what it got back, by step."""
    walk = subprocess.run(
        [*command_of(script), *arguments],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    lines = [json.loads(line) for line in walk.stdout.splitlines() if line.startswith('{"kind"')]
    found = {line["step"]: line["result"] for line in lines}
    assert walk.returncode == 0, f"after {list(found)[-3:]}: {walk.stderr[-3000:]}"
    return found


class Watcher:
    """One program of this folder, and the JSON lines that it has printed so far."""

    def __init__(self, script: str, arguments: Sequence[str], ca_path: Path, stderr_path: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._is_ended = False
        self._stderr_path = stderr_path
        with stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*command_of(script), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={
                    **os.environ,
                    "NODE_EXTRA_CA_CERTS": str(ca_path),
                    "PYTHONPATH": os.pathsep.join(sys.path),
                },
                cwd=HERE,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events among the lines, in the order of their coming."""
        with self._changed:
            return [line for line in self.lines if line["kind"] == "event"]

    def wait_for(self, claim: Callable[[list[dict[str, Any]]], bool], timeout_s: float) -> None:
        """Wait until `claim` holds for the lines.

        Fails with the last of them if the time is up or the program has ended and all it printed was read.
        """
        with self._changed:
            self._changed.wait_for(lambda: claim(self.lines) or self._is_ended, timeout_s)
            assert claim(self.lines), (
                f"waited {timeout_s} s; exit code {self._process.poll()}; last lines {self.lines[-5:]}; "
                f"stderr {self._stderr_path.read_text()[-2000:]}"
            )

    def wait_subscribed(self, count: int, timeout_s: float = 120.0) -> None:
        """Wait until `count` subscriptions have succeeded."""

        def is_subscribed(lines: list[dict[str, Any]]) -> bool:
            return len([x for x in lines if x["kind"] == "subscribed" and x["successful"]]) >= count

        self.wait_for(is_subscribed, timeout_s)

    def wait_more_events(self, timeout_s: float) -> None:
        """Wait until an event has come that was not there before the call."""
        known = len(self.events)
        self.wait_for(lambda lines: len([x for x in lines if x["kind"] == "event"]) > known, timeout_s)

    def stop(self) -> None:
        """Ask the program to end; kill it if it does not."""
        if self._process.poll() is None and self._process.stdin is not None:
            try:
                self._process.stdin.write("stop\n")
                self._process.stdin.flush()
                self._process.wait(timeout=5)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait(timeout=120)
        self._reader.join(timeout=120)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for text in self._process.stdout:
                with self._changed:
                    self.lines.append(json.loads(text))
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._is_ended = True
                self._changed.notify_all()
