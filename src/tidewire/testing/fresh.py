"""The state that a test server begins with, and returns to: an org on disk that is made once and copied."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.server.core import open_core
from tidewire.transport.tls import ensure_certificates


@dataclass(frozen=True, slots=True)
class FreshOrg:
    """A development org that nobody has used, and the token of its administrator's session."""

    directory: Path
    token: str = field(repr=False)

    def copy_to(self, directory: Path) -> None:
        """Put the same org there, certificates included."""
        shutil.copytree(self.directory, directory)


async def make_fresh_org(directory: Path) -> FreshOrg:
    """Make an org to copy from."""
    clock = SystemClock()
    core = await open_core(Settings(data=str(directory), dev=True), clock)
    try:
        admin = await core.logins.login(DEV_USERNAME, DEV_PASSWORD, "127.0.0.1")
    finally:
        await core.close()
    ensure_certificates(directory / "tls", [], clock.now_ms())
    return FreshOrg(directory, admin.token)


class _Shared:
    """One fresh org for all servers of a process, removed when that ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: tempfile.TemporaryDirectory[str] | None = None
        self._org: FreshOrg | None = None

    def ensure(self) -> FreshOrg:
        """Make it, or return what was made before. Blocks; not for use on a loop."""
        with self._lock:
            if self._org is None:
                self._holder = tempfile.TemporaryDirectory(prefix="tidewire-fresh-")
                self._org = asyncio.run(make_fresh_org(Path(self._holder.name) / "org"))
            return self._org


ensure_fresh_org = _Shared().ensure
