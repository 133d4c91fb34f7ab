"""Find the process that uses a port or locks a data directory, by reading `/proc` on Linux."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LISTENING = "0A"
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, by id and command line."""

    pid: int
    command: str

    @property
    def is_tidewire(self) -> bool:
        """Whether the process is a Tidewire server or one of its edges."""
        return "tidewire" in self.command


def why_not_bound(host: str, port: int) -> int:
    """Try to listen on a port; return 0, or the errno of the failure."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def find_owner(port: int) -> Owner | None:
    """Find the process that listens on a port; None if it is not visible to us."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not wanted:
        return None
    for process in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            for handle in (process / "fd").iterdir():
                with suppress(FileNotFoundError):  # closed since it was listed
                    if os.readlink(handle) in wanted:
                        return _owner(int(process.name))
    return None


def find_lock_holder(path: Path) -> Owner | None:
    """Find the process that locks a file; None if there is none, or it is not visible to us."""
    with suppress(OSError, ValueError):
        found = path.stat()
        inode = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for line in (_PROC / "locks").read_text().splitlines():
            words = line.split()
            if inode in words and "->" not in words:
                return _owner(int(words[4]))
    return None


def _listening_inodes(port: int) -> list[str]:
    inodes = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    inodes.append(words[9])
    return inodes


def _owner(pid: int) -> Owner:
    command = ""
    with suppress(OSError):
        command = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return Owner(pid, command.strip()[:200])
