"""A PostgreSQL of a benchmark's own: a new cluster in a directory, reached by a socket in it.

Nothing is tuned but the sizes of memory; every commit is synced. PostgreSQL refuses to run as root; then it runs
as the user `postgres`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_USER = "postgres" if os.getuid() == 0 else None
_SETTINGS = (
    "listen_addresses = ''",
    "max_connections = 300",
    "shared_buffers = '256MB'",
    "max_wal_size = '4GB'",
    "jit = off",
)


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """One running server by its address and the id of its first process."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        """The time of all its processes, ended ones included: they are nobody's children but its own."""
        total = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                # The command name may hold blanks and brackets; the fields follow its last closing bracket.
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            user, system, ended_user, ended_system = map(int, fields[11:15])
            if path.parent.name == str(self.pid):
                total += user + system + ended_user + ended_system
            elif int(fields[1]) == self.pid:
                total += user + system
        return total / _TICKS_PER_S


def try_find_programs() -> Path | None:
    """The directory of the server programs of the newest version installed, or None."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("initdb")
    if homes:
        return homes[-1]
    return Path(found).resolve().parent if found else None


@contextmanager
def running_postgres(programs: Path) -> Iterator[PostgresServer]:
    """A server that lives as long as the block."""
    # A directory of its own: the name of a socket is short, and the user `postgres` must reach it.
    directory = Path(tempfile.mkdtemp(prefix="tidewire-pg-"))
    if _USER is not None:
        user = pwd.getpwnam(_USER)
        os.chown(directory, user.pw_uid, user.pw_gid)

    def run(program: str, *arguments: str) -> None:
        # A log file: a pipe would be inherited by the server and never end.
        with (directory / "programs.log").open("ab") as output:
            subprocess.run(
                [str(programs / program), "-D", str(directory / "data"), *arguments],
                stdout=output,
                stderr=output,
                cwd=directory,
                check=True,
                user=_USER,
                group=_USER,
            )

    try:
        run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with (directory / "data/postgresql.conf").open("a") as config:
            config.writelines(
                line + "\n" for line in (*_SETTINGS, f"unix_socket_directories = '{directory}'")
            )
        run("pg_ctl", "start", "-w", "-l", str(directory / "server.log"))
        try:
            pid = int((directory / "data/postmaster.pid").read_text().split("\n", 1)[0])
            yield PostgresServer(f"postgresql://postgres@/postgres?host={directory}", pid)
        finally:
            run("pg_ctl", "stop", "-m", "immediate", "-w")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
