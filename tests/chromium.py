"""The machine's Chromium, driven by tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_START_MS = 120_000  # the usual 30 s are soon over on a busy machine


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """A browser; while it lives, nothing else in the process can run a loop."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "no Chromium on this machine; scripts/prerequisites installs it"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, headless=True, args=_FLAGS, timeout=_START_MS
        )
        yield chromium
        chromium.close()
