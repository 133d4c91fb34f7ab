"""Building and driving the power-cut library: see powercut.c for what it does and does not model."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("powercut.c")


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls that the library has seen: it is worth nothing if the program's calls pass it by."""

    writes: int
    syncs: int
    pages_copied: int


class PowerCut:
    """A directory whose unsynced bytes can be lost.

    Give `env()` to the process that writes in it, kill that, then `cut()`.
    """

    def __init__(self, directory: Path, scratch: Path) -> None:
        self._directory = directory
        self._mirror = scratch / "mirror"
        self._counts = scratch / "counts"
        self._library = scratch / "powercut.so"
        directory.mkdir(parents=True, exist_ok=True)
        self._mirror.mkdir(parents=True)
        subprocess.run(
            [
                "gcc",
                "-O2",
                "-Wall",
                "-Werror",
                "-shared",
                "-fPIC",
                "-o",
                self._library,
                SOURCE,
                "-ldl",
                "-lpthread",
            ],
            check=True,
            timeout=60,
        )

    def env(self, keep_percent: int, seed: int) -> dict[str, str]:
        """The environment of the process to be watched.

        `keep_percent` of its unsynced pages survive all the same.
        """
        return {
            "LD_PRELOAD": str(self._library),
            "POWERCUT_DIR": str(self._directory),
            "POWERCUT_MIRROR": str(self._mirror),
            "POWERCUT_COUNTS": str(self._counts),
            "POWERCUT_KEEP": str(keep_percent),
            "POWERCUT_SEED": str(seed),
        }

    def cut(self) -> None:
        """Leave in the directory what a disk would hold. The process must be dead."""
        shutil.rmtree(self._directory)
        shutil.copytree(self._mirror, self._directory)

    def counts(self) -> Counts:
        """What the library has seen in the last process."""
        writes, syncs, pages = self._counts.read_text().split()
        return Counts(int(writes), int(syncs), int(pages))
