"""Several orgs in one PostgreSQL database: each has a schema, named after the first one's."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg

from tidewire.errors import ConfigInvalid
from tidewire.storage.postgres import PostgresConnection, PostgresStore, parse_store_url


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
    conninfo, schema = parse_store_url(url)
    try:
        with closing(PostgresConnection(conninfo, schema)) as connection:
            rows = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname::text, ?) ORDER BY nspname",
                (prefix,),
            )
    except psycopg.Error as error:
        raise ConfigInvalid(f"store: the database cannot be reached: {error}", setting="store") from error
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
