"""A private PostgreSQL for tests: its own directory, its own socket, gone when the run ends.

It sorts by the rules of English by default, so that a test fails wherever the package leans on the database's
own order of text. PostgreSQL refuses to run as root; then it runs as the user `postgres`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.scratch import scratch_root

_USER = "postgres" if os.getuid() == 0 else None


class PostgresServer:
    """One running server. `make_url` names a schema that nobody else uses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._programs = _find_programs()

    def make_url(self) -> str:
        """An address with a schema of its own, which does not exist yet."""
        return f"postgresql://postgres@/postgres?host={self._directory}&schema=t_{uuid.uuid4().hex}"

    def connect(self) -> psycopg.Connection:
        """Open a connection beside those of the package."""
        return psycopg.connect(f"postgresql://postgres@/postgres?host={self._directory}", autocommit=True)

    def make_database(self, template: str = "template1") -> str:
        """Create a database as a copy of another one that nobody is connected to; return its name."""
        name = f"d_{uuid.uuid4().hex}"
        with self.connect() as connection:
            # Copying files beats logging every page: the server's data stands in memory.
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy".encode())
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database together with the sessions that are still connected to it."""
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def database_url(self, name: str) -> str:
        """Return the address of the one schema that an org of a copied database has."""
        return f"postgresql://postgres@/{name}?host={self._directory}&schema=org"

    def terminate(self, backend_pid: int) -> None:
        """End one session from outside, as a broken network would, and wait until it is gone."""
        with self.connect() as connection:
            ((is_gone,),) = connection.execute(
                "SELECT pg_terminate_backend(%s, 120000)", (backend_pid,)
            ).fetchall()
        assert is_gone

    def wait_until_somebody_waits(self) -> None:
        """Wait until a session is queued for an advisory lock."""
        with self.connect() as connection:
            query = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not connection.execute(query).fetchall():
                continue

    def init(self) -> None:
        """Make the database cluster."""
        locale = ["--locale=C"]
        if int(self._programs.parent.name) >= 15:
            locale += ["--locale-provider=icu", "--icu-locale=en-US"]
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", *locale)
        settings = [
            "listen_addresses = ''",
            f"unix_socket_directories = '{self._directory}'",
            "max_connections = 100",
            "shared_buffers = '16MB'",
            "fsync = off",  # it is crashed, but never the machine that it runs on
            "dynamic_shared_memory_type = mmap",  # nothing of it stays in memory when a run is killed
            "max_wal_size = '64MB'",
        ]
        with (self._directory / "data/postgresql.conf").open("a") as config:
            config.writelines(line + "\n" for line in settings)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._run("pg_ctl", "start", "-w", "-l", str(self._directory / "server.log"))

    def crash(self) -> None:
        """Stop it without a goodbye, as a crash does. What was committed stays."""
        self._run("pg_ctl", "stop", "-m", "immediate", "-w")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._directory / "data"), *arguments]
        # A log file of its own: a pipe would be inherited by the server and never end.
        with (self._directory / "programs.log").open("ab") as output:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                check=False,
                user=_USER,
                group=_USER,
            )
        assert done.returncode == 0, (self._directory / "programs.log").read_text()


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server that lives as long as the block."""
    # Not below pytest's own directory: that is closed to the user `postgres`, and too long for a socket's name.
    directory = Path(tempfile.mkdtemp(prefix="tidewire-pg-", dir=scratch_root()))
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(directory, user.pw_uid, user.pw_gid)
    server = PostgresServer(directory)
    try:
        server.init()
        server.start()
        yield server
        server.crash()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _find_programs() -> Path:
    found = shutil.which("initdb")
    homes: Sequence[Path] = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
    )
    assert found or homes, "PostgreSQL is not installed; run scripts/prerequisites"
    return homes[-1] if homes else Path(str(found)).resolve().parent
