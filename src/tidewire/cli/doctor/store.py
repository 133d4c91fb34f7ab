"""What `tidewire doctor` looks at in a PostgreSQL store: whether a server could use it. Nothing is changed there."""

from __future__ import annotations

from tidewire.cli.doctor.findings import Finding, ok, problem
from tidewire.cli.output import printable
from tidewire.errors import ConfigInvalid

_CHECK = "store"
_REACH_S = 5
_OLDEST = 13
_LOOK = """
    SELECT current_setting('server_version_num')::int / 10000,
           current_user,
           EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %(schema)s),
           COALESCE((SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
                     FROM pg_namespace WHERE nspname = %(schema)s),
                    has_database_privilege(current_database(), 'CREATE'))
"""


def check_postgres(store: str) -> Finding:
    """Whether the database answers, is new enough, and lets its user have the org's schema."""
    try:
        import psycopg

        from tidewire.storage.postgres import parse_store_url
    except ImportError:
        return problem(_CHECK, "psycopg is not installed", "pip install 'tidewire[postgres]'")
    try:
        conninfo, schema = parse_store_url(store)
    except ConfigInvalid as error:
        return problem(_CHECK, error.message, "give --store postgresql://USER@HOST/DATABASE")
    try:
        with psycopg.connect(conninfo, connect_timeout=_REACH_S, autocommit=True) as connection:
            shown = printable(f"PostgreSQL at {connection.info.host}")
            row = connection.execute(_LOOK, {"schema": schema}).fetchone()
    except psycopg.Error as error:
        told = str(error).strip().splitlines() or ["no answer"]
        return problem(_CHECK, f"PostgreSQL: {printable(told[0])}", "start the database, or mend --store")
    version, user, has_schema, may_use = row or (0, "", False, False)
    if version < _OLDEST:
        return problem(_CHECK, f"{shown} is version {version}", f"use version {_OLDEST} or newer")
    if not may_use:
        needed, grant = (
            (f"use the schema {schema}", f"GRANT USAGE, CREATE ON SCHEMA {schema}")
            if has_schema
            else (f"make the schema {schema}", "GRANT CREATE ON DATABASE")
        )
        told_user = printable(str(user))
        return problem(_CHECK, f"{shown}: {told_user} may not {needed}", f"{grant} ... TO {told_user}")
    state = "is there" if has_schema else "will be made at the first start"
    return ok(_CHECK, f"{shown} answers; the schema {schema} {state}")
