"""The state that a test server begins with, and returns to: an org on disk that is made once and copied.

Making it takes longer than starting a server on it, so it is kept for a day in the user's cache, by what it was made
from: another release, a changed source file or another day makes another one.
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

_ORG, _TOKEN, _KEPT = "org", "token", "fresh-"
_DAY_MS = 86_400_000
_FORGOTTEN_DAYS = 2  # whoever is copying an old one must be done by then


@dataclass(frozen=True, slots=True)
class FreshOrg:
    """A development org that nobody has used, and the token of its administrator's session."""

    directory: Path
    token: str = field(repr=False)

    def copy_to(self, directory: Path) -> None:
        """Put the same org there, certificates included; its session begins now. Blocks; not for use on a loop."""
        shutil.copytree(self.directory, directory)
        now_ms = SystemClock().now_ms()
        # Before any server opens it: one that starts removes sessions that have idled as long as a kept org may.
        with closing(sqlite3.connect(directory / "org.db")) as database, database:
            database.execute("UPDATE login_sessions SET started_ms = ?, used_ms = ?", (now_ms, now_ms))


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


def ensure_kept_org(cache: Path, now_ms: int) -> FreshOrg:
    """The org that a cache keeps, made if there is none of today. Blocks; not for use on a loop. Raises OSError.

    It appears in one step, so that any number of processes may ask at once, and one that is killed leaves no half.
    """
    place = cache / (_KEPT + _fingerprint(now_ms))
    with suppress(FileNotFoundError):
        return _load(place)
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Readable by its owner only: it holds a session and keys.
    making = Path(tempfile.mkdtemp(dir=cache, prefix="making-"))
    try:
        made = asyncio.run(make_fresh_org(making / _ORG))
        (making / _TOKEN).write_text(made.token, "ascii")
        making.rename(place)
    except OSError:
        if not (place / _TOKEN).exists():  # otherwise somebody else was faster
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    _forget_old(cache, now_ms)
    return _load(place)


def _load(place: Path) -> FreshOrg:
    return FreshOrg(place / _ORG, (place / _TOKEN).read_text("ascii"))


def _fingerprint(now_ms: int) -> str:
    """What the org depends on: this package, the Python that runs it, and the day."""
    package = Path(__file__).resolve().parents[1]
    parts = [__version__, sys.version, str(now_ms // _DAY_MS)]
    for path in sorted(package.rglob("*.py")):
        found = path.stat()
        parts.append(f"{path} {found.st_mtime_ns} {found.st_size}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _forget_old(cache: Path, now_ms: int) -> None:
    for path in cache.iterdir():
        with suppress(OSError):
            if now_ms - path.stat().st_mtime * 1000 > _FORGOTTEN_DAYS * _DAY_MS:
                shutil.rmtree(path, ignore_errors=True)


def _cache() -> Path:
    """Where a user's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "tidewire" / "testing"


class _Shared:
    """One fresh org for all servers of a process. Where no cache can be written, it is removed when that ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: tempfile.TemporaryDirectory[str] | None = None
        self._org: FreshOrg | None = None

    def ensure(self) -> FreshOrg:
        """Make it, or return what was made before. Blocks; not for use on a loop."""
        with self._lock:
            if self._org is None or not self._org.directory.exists():
                try:
                    self._org = ensure_kept_org(_cache(), SystemClock().now_ms())
                except (OSError, RuntimeError):
                    self._holder = tempfile.TemporaryDirectory(prefix="tidewire-fresh-")
                    self._org = asyncio.run(make_fresh_org(Path(self._holder.name) / _ORG))
            return self._org


ensure_fresh_org = _Shared().ensure
