"""Run a pipeline in a separate process and read its status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidewire.pipeline.lake.tables import Lake
from tidewire.testing import LocalServer

ROOT = Path(__file__).parents[2]
_PAUSE_S = 0.2
_TRIES = 9_000


class Driver:
    """A pipeline in a process group of its own."""

    def __init__(self, server: LocalServer, lake: Lake, master: str, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tidewire.cli", "pipeline", "run", "--lake", lake.path]
        command += ["--endpoint", server.grpc, "--url", server.http, "--master", master, "--max-rows", "1000"]
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=stream, stderr=stream, start_new_session=True
            )

    def kill(self) -> None:
        """As `kill -9` would; its JVM notices by itself."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """As it is stopped in earnest."""
        self.process.terminate()
        assert self.process.wait(600) == 0, self.tail()

    def check(self) -> None:
        """Fails if it has ended by itself."""
        assert self.process.poll() is None, self.tail()

    def tail(self) -> str:
        """What it said last."""
        return self._log.read_text(errors="replace")[-3000:]

    def bury(self) -> None:
        """Leave nothing behind."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()


def told(lake: Lake) -> dict[str, Any]:
    """What the pipeline last said of itself."""
    try:
        status: dict[str, Any] = json.loads((Path(lake.path) / "status.json").read_text())
    except (FileNotFoundError, ValueError):  # the latter if it is being written over, for want of room
        return {}
    return status


def is_well(lake: Lake) -> bool:
    """Whether the pipeline lacks nothing that it has asked for, such as the copy that it begins with."""
    return bool(told(lake).get("health") == "ok")


def wait_for(driver: Driver, what: str, is_so: Callable[[], bool]) -> None:
    """Wait until something is so, while the pipeline runs."""
    pause = threading.Event()
    for _ in range(_TRIES):
        if is_so():
            return
        driver.check()
        pause.wait(_PAUSE_S)
    raise AssertionError(f"never came: {what}; {driver.tail()}")
