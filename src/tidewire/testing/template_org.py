"""The template org: the initial state of a test server, created once and copied.

Creating it takes longer than starting a server, so it is cached for a day in the user's cache. The key covers
the release, the source files and the date.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tidewire import __version__
from tidewire.clock import SystemClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME, Settings
from tidewire.server.core import open_core
from tidewire.transport.certificates import ensure_certificates

_ORG, _TOKEN, _PREFIX = "org", "token", "template-"
_DAY_MS = 86_400_000
_EXPIRY_DAYS = 2  # leaves time for processes that still copy an old one


@dataclass(frozen=True, slots=True)
class TemplateOrg:
    """A new development org on disk, and the token of an administrator's session."""

    directory: Path
    token: str = field(repr=False)

    def copy_to(self, directory: Path) -> None:
        """Copy the org with its certificates and renew its session. Blocks; not for use on an event loop."""
        shutil.copytree(self.directory, directory)
        now_ms = SystemClock().now_ms()
        # A starting server removes idle sessions, and a cached org may be hours old.
        with closing(sqlite3.connect(directory / "org.db")) as database, database:
            database.execute("UPDATE login_sessions SET started_ms = ?, used_ms = ?", (now_ms, now_ms))


async def create_template_org(directory: Path) -> TemplateOrg:
    """Create a template org."""
    clock = SystemClock()
    core = await open_core(Settings(data=str(directory), dev=True), clock)
    try:
        admin = await core.logins.login(DEV_USERNAME, DEV_PASSWORD, "127.0.0.1")
    finally:
        await core.close()
    ensure_certificates(directory / "tls", [], clock.now_ms())
    return TemplateOrg(directory, admin.token)


def ensure_cached_org(cache: Path, now_ms: int) -> TemplateOrg:
    """Return today's cached org, creating it if needed. Blocks; not for use on an event loop. Raises OSError.

    The org is renamed into place, so that processes may race and a killed one leaves no partial org.
    """
    path = cache / (_PREFIX + _fingerprint(now_ms))
    with suppress(FileNotFoundError):
        return _load(path)
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Readable by its owner only: it holds a session and keys.
    making = Path(tempfile.mkdtemp(dir=cache, prefix="making-"))
    try:
        created = asyncio.run(create_template_org(making / _ORG))
        (making / _TOKEN).write_text(created.token, "ascii")
        making.rename(path)
    except OSError:
        if not (path / _TOKEN).exists():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    _remove_expired(cache, now_ms)
    return _load(path)


def _load(path: Path) -> TemplateOrg:
    return TemplateOrg(path / _ORG, (path / _TOKEN).read_text("ascii"))


def _fingerprint(now_ms: int) -> str:
    """Hash what the org depends on: this package, the Python version and the date."""
    package = Path(__file__).resolve().parents[1]
    parts = [__version__, sys.version, str(now_ms // _DAY_MS)]
    for path in sorted(package.rglob("*.py")):
        found = path.stat()
        parts.append(f"{path} {found.st_mtime_ns} {found.st_size}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _remove_expired(cache: Path, now_ms: int) -> None:
    for path in cache.iterdir():
        with suppress(OSError):
            if now_ms - path.stat().st_mtime * 1000 > _EXPIRY_DAYS * _DAY_MS:
                shutil.rmtree(path, ignore_errors=True)


def _cache() -> Path:
    """Return the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "tidewire" / "testing"


class _Shared:
    """One template org for all servers of a process; in a temporary directory if the cache is not writable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: tempfile.TemporaryDirectory[str] | None = None
        self._org: TemplateOrg | None = None

    def ensure(self) -> TemplateOrg:
        """Return the org, creating it on first use. Blocks; not for use on an event loop."""
        with self._lock:
            if self._org is None or not self._org.directory.exists():
                try:
                    self._org = ensure_cached_org(_cache(), SystemClock().now_ms())
                except (OSError, RuntimeError):
                    self._holder = tempfile.TemporaryDirectory(prefix="tidewire-template-")
                    self._org = asyncio.run(create_template_org(Path(self._holder.name) / _ORG))
            return self._org


ensure_template_org = _Shared().ensure
