"""The load client as a child of a bench: compiled once, started with a file of requests, read at its end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STAMP = "@0000000000000000@"
"""What the load client overwrites with the time a request is due, and looks for in answers."""

_SOURCE = Path(__file__).resolve().parent / "load_client.c"


class Client:
    """A load-making child that prints `ready`, and one JSON object when it is done."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(list(command), stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        """Wait for its first line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "ready\n", line

    def result(self) -> dict[str, Any]:
        """Wait for its end."""
        out, _ = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, f"the load client ended with {self._process.returncode}"
        result: dict[str, Any] = json.loads(out)
        assert not result.get("failures"), f"{result['failures']} requests failed"
        return result


class LoadMaker:
    """The compiled load client, and a folder for its request files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = folder / "load_client"
        subprocess.run(["gcc", "-O2", "-o", str(self._program), str(_SOURCE)], check=True, timeout=60)

    def start(
        self, port: int, name: str, requests: Sequence[bytes], seconds: float, rate: float, goal: int = 0
    ) -> Client:
        """Start it in the background; returns when its connections are open."""
        path = self._folder / f"{name}.requests"
        path.write_bytes(b"".join(len(r).to_bytes(4, "little") + r for r in requests))
        client = Client([str(self._program), str(port), str(path), str(seconds), str(rate), str(goal)])
        client.wait_ready()
        return client
