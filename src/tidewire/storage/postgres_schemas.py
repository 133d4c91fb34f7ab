"""The schemas of orgs in PostgreSQL: finding and dropping them, dumping one with pg_dump, restoring it with psql.

Several orgs may share a database: each has a schema, named after the first one's.

A dump sees the same commit as the manifest: it runs on a snapshot that our own transaction exports. Writes
continue meanwhile, but everything that drops or alters a table (retention, a definition) waits for the dump.
Loading is one transaction, which ends with the statements that a restored org needs, so the org is restored
whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidewire.errors import ConfigInvalid
from tidewire.storage.postgres import PostgresConnection, PostgresStore, parse_store_url
from tidewire.storage.store import Reader

_ERROR_LINE = re.compile(r"^(?:.*: )?(?:error|fatal):.*$", re.IGNORECASE | re.MULTILINE)


@contextmanager
def open_snapshot(url: str) -> Iterator[tuple[Reader, str]]:
    """Yield a snapshot of an org, and the name under which other sessions can see it."""
    with _connect(url) as connection:
        try:
            connection.begin_read()
            ((name,),) = connection.execute("SELECT pg_export_snapshot()")
            yield connection, str(name)
        except pg.UndefinedTable as error:
            raise ConfigInvalid(
                f"schema {schema_of(url)} of the store holds no org", setting="store"
            ) from error


def read_layout(reader: Reader) -> int:
    """Return the layout version of an org's schema."""
    ((version,),) = reader.execute("SELECT version FROM layout")
    return int(version)


def schema_of(url: str) -> str:
    """Return the schema that an address names."""
    return parse_store_url(url)[1]


def with_schema(url: str, schema: str) -> str:
    """Return the address of the same database with another schema. Raises ConfigInvalid for an invalid name."""
    parts = urlsplit(url)
    query = [
        (name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "schema"
    ]
    made = urlunsplit(parts._replace(query=urlencode([*query, ("schema", schema)])))
    parse_store_url(made)
    return made


def list_schemas(url: str, prefix: str) -> list[str]:
    """Return the schemas whose names begin with `prefix`, sorted."""
    with _connect(url) as connection:
        rows = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE starts_with(nspname::text, ?) ORDER BY nspname",
            (prefix,),
        )
    return [str(name) for (name,) in rows]


def drop_schema(url: str) -> None:
    """Remove an org for good. Raises StoreLocked while a server uses it."""
    _, schema = parse_store_url(url)
    store = PostgresStore(url, 1, lock_wait_s=1.0)
    try:
        # On the connection that holds the org's lock: no server can begin to use what is being removed.
        store.connect_writer().execute(f"DROP SCHEMA {schema} CASCADE")  # its form was checked
    finally:
        store.close()


def dump_schema(url: str, snapshot: str, target: Path) -> None:
    """Write the org's schema, as of an exported snapshot, as SQL."""
    _run(
        "pg_dump",
        url,
        f"--schema={schema_of(url)}",
        f"--snapshot={snapshot}",
        "--format=plain",
        "--encoding=UTF8",
        "--no-owner",
        "--no-privileges",
        f"--file={target}",
    )


def require_no_schema(url: str) -> None:
    """Raise ConfigInvalid if the schema exists already, whatever it contains."""
    schema = schema_of(url)
    with _connect(url) as connection:
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (schema,))
    if found:
        raise ConfigInvalid(
            f"schema {schema} of the store exists; a restore overwrites nothing", setting="store"
        )


def load_schema(url: str, source: Path, statements: Iterable[str]) -> None:
    """Run a dump and then `statements`, in one transaction. The dump names the schema and makes it."""
    with source.open("a", encoding="utf-8") as file:
        file.write(f"\nSET search_path = {schema_of(url)};\n")
        file.writelines(f"{statement};\n" for statement in statements)
    _run(
        "psql",
        url,
        "--no-psqlrc",
        "--quiet",
        "--single-transaction",
        "--set=ON_ERROR_STOP=1",
        "--output=/dev/null",
        f"--file={source}",
    )


def require_programs(*names: str) -> None:
    """Raise ConfigInvalid with the name of the PostgreSQL program that is not installed."""
    for name in names:
        if shutil.which(name) is None:
            raise ConfigInvalid(
                f"store: {name} is needed for this and was not found; install PostgreSQL's client programs",
                setting="store",
            )


def _run(program: str, url: str, *arguments: str) -> None:
    require_programs(program)
    known = conninfo_to_dict(parse_store_url(url)[0])
    password = known.pop("password", None)
    environment = {**os.environ, **({} if password is None else {"PGPASSWORD": str(password)})}
    done = subprocess.run(
        [program, "--no-password", f"--dbname={make_conninfo('', **known)}", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        found = _ERROR_LINE.search(done.stderr)
        reason = found[0] if found else f"status {done.returncode}"
        raise ConfigInvalid(f"store: {program} failed: {reason}", setting="store")


@contextmanager
def _connect(url: str) -> Iterator[PostgresConnection]:
    conninfo, schema = parse_store_url(url)
    try:
        with closing(PostgresConnection(conninfo, schema)) as connection:
            yield connection
    except psycopg.Error as error:
        # The driver's message never repeats the password.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigInvalid(f"store: PostgreSQL cannot be used: {reason}", setting="store") from error
