"""The checks of `tidewire doctor`: directories, ports, certificates, Java, packages and PostgreSQL."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cryptography import x509

from tidewire.cli.doctor.port_owners import find_lock_holder, find_owner, why_not_bound
from tidewire.cli.output import printable
from tidewire.config import Settings, parse_address
from tidewire.errors import ConfigInvalid

_LOCK_FILE = "org.lock"  # held by the server that uses the directory
LISTENERS = ("http", "https", "grpc", "grpc_tls")
_TLS_LISTENERS = ("https", "grpc_tls")
_SPARK_PACKAGES = ("pyspark", "pyarrow", "deltalake", "pandas")
_LEAST_FREE_BYTES = 1 << 30
_SOON = timedelta(days=14)
_TLS_S = 5.0
_RESTART = "restart the server to create a new one"
_POSTGRES_S = 5
_OLDEST_POSTGRES = 13
_INSPECT_SQL = """
    SELECT current_setting('server_version_num')::int / 10000,
           current_user,
           EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %(schema)s),
           COALESCE((SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
                     FROM pg_namespace WHERE nspname = %(schema)s),
                    has_database_privilege(current_database(), 'CREATE'))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A note is not a fault; `fix` is empty if there is nothing to do."""

    check: str
    state: Literal["ok", "note", "problem"]
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """Return a passed check."""
    return Finding(check, "ok", message)


def note(check: str, message: str, fix: str) -> Finding:
    """Return a finding that needs no fix."""
    return Finding(check, "note", message, fix)


def problem(check: str, message: str, fix: str) -> Finding:
    """Return a fault that stops server or pipeline from working."""
    return Finding(check, "problem", message, fix)


def check_directory(check: str, path: Path, flag: str) -> list[Finding]:
    """Check that a directory exists or can be created, is writable, and has free space."""
    existing = path
    while not os.path.exists(existing) and existing != existing.parent:
        existing = existing.parent
    other = f"or choose another directory with {flag}"
    if not os.path.isdir(existing):
        return [problem(check, f"{path}: {existing} is a file, not a directory", f"move that file, {other}")]
    if why := _why_not_writable(existing):
        message = f"{path} is not writable: {why}"
        if existing != path:
            message = f"cannot create {path}: {existing} is not writable: {why}"
        fix = f"make it writable for the user of the server (chown or chmod u+w {existing}), {other}"
        return [problem(check, message, fix)]
    found = [
        ok(check, f"{path} is writable" if existing == path else f"{path} will be created on first start")
    ]
    for file in sorted(path.glob("org.db*")):
        if not os.access(file, os.R_OK | os.W_OK) or not file.stat().st_mode & 0o200:
            fix = f"chmod u+rw {file}, and chown it to the user of the server"
            found = [problem(check, f"{file} is not writable", fix)]
    free = shutil.disk_usage(existing).free
    if free < _LEAST_FREE_BYTES:
        message = f"only {free >> 20} MiB free on the disk of {existing}"
        found.append(problem("disk space", message, f"free some space, {other} on another disk"))
    else:
        found.append(ok("disk space", f"{free >> 30} GiB free on the disk of {existing}"))
    return found


def _why_not_writable(directory: Path) -> str:
    # Root can write anywhere, but the server usually runs as the directory's owner.
    if not directory.stat().st_mode & 0o200:
        return f"its mode {directory.stat().st_mode & 0o7777:04o} denies write access to its owner"
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def check_ports(settings: Settings) -> list[Finding]:
    """Check that each listener's port is free, or is used by the server of the data directory."""
    # A server on PostgreSQL holds its lock in the database, where this cannot see it.
    has_server = settings.store != "sqlite" or find_lock_holder(Path(settings.data) / _LOCK_FILE) is not None
    found = []
    for name in LISTENERS:
        address = getattr(settings, name)
        try:
            host, port = parse_address(address, name)
        except ConfigInvalid as error:
            found.append(problem(f"port {name}", error.message, f"pass --{name.replace('_', '-')} HOST:PORT"))
            continue
        found.append(_check_port(name, host, port, has_server=has_server))
    return found


def _check_port(name: str, host: str, port: int, *, has_server: bool) -> Finding:
    check = f"port {name}"
    flag = "--" + name.replace("_", "-")
    failure = why_not_bound(host, port) if port else 0
    if not failure:
        return ok(check, f"{host}:{port} is free" if port else "a free port is chosen on start")
    if failure == errno.EADDRINUSE:
        owner = find_owner(port)
        if owner is not None and owner.is_tidewire and has_server:
            return ok(check, f"{host}:{port} is used by the running server (process {owner.pid})")
        who = f"process {owner.pid} ({printable(owner.command)})" if owner else "another process"
        fix = f"stop it, or choose another port with {flag} {host}:PORT"
        if owner is None:
            fix = f"run `ss -ltnp 'sport = :{port}'` as root to see which; {fix}"
        return problem(check, f"{host}:{port} is in use by {who}", fix)
    if failure == errno.EACCES:
        return problem(
            check,
            f"{host}:{port} is not permitted: ports below 1024 need root",
            f"choose a port above 1023 with {flag}",
        )
    if failure == errno.EADDRNOTAVAIL:
        return problem(
            check,
            f"{host} is not an address of this machine",
            f"choose one with {flag}; 0.0.0.0 means all addresses",
        )
    return problem(check, f"{host}:{port}: {os.strerror(failure)}", f"choose another address with {flag}")


def check_certificates(settings: Settings, now_ms: int) -> list[Finding]:
    """Check the certificates in the data directory and those that a running server presents."""
    tls = Path(settings.data) / "tls"
    found = []
    authority = tls / "ca.pem"
    server = tls / "server.pem"
    if not server.exists() and not authority.exists():
        found.append(ok("certificate", f"will be created in {tls} on first start"))
    else:
        found.append(_check_file("certificate", server, now_ms, _RESTART))
        fix = "restart the server to create a new authority, then give the new ca.pem to the clients"
        found.append(_check_file("certificate authority", authority, now_ms, fix))
    for name in _TLS_LISTENERS:
        host, port = parse_address(getattr(settings, name), name)
        shown = _try_shown_certificate(host, port) if port else None
        if shown is not None:
            check = f"certificate shown on {name}"
            found.append(_check_dates(check, f"{host}:{port}", shown, now_ms, _RESTART))
    return found


def _check_file(check: str, path: Path, now_ms: int, fix: str) -> Finding:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return problem(check, f"cannot read {path}: {error}", f"delete {path.parent} and {fix}")
    return _check_dates(check, str(path), certificate, now_ms, fix)


def _check_dates(check: str, what: str, certificate: x509.Certificate, now_ms: int, fix: str) -> Finding:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    end = certificate.not_valid_after_utc
    if end <= now:
        return problem(check, f"the certificate {what} expired on {end:%Y-%m-%d}", fix)
    if certificate.not_valid_before_utc > now:
        begin = certificate.not_valid_before_utc
        message = f"the certificate {what} is not valid before {begin:%Y-%m-%d %H:%M} UTC"
        return problem(check, message, "check this machine's clock")
    if end < now + _SOON:
        return note(check, f"the certificate {what} expires on {end:%Y-%m-%d}", fix)
    return ok(check, f"{what} is valid until {end:%Y-%m-%d}")


def _try_shown_certificate(host: str, port: int) -> x509.Certificate | None:
    """Return the certificate that a listener presents, trusted or not; None if it does not speak TLS."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), _TLS_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(shown) if shown else None
    except (OSError, ValueError):
        return None


def check_pipeline_software() -> list[Finding]:
    """Check what only the Spark pipeline needs: Java and some Python packages."""
    from tidewire.pipeline.spark import OLDEST_JAVA, check_java

    found = []
    install = f"install Java {OLDEST_JAVA} or newer (on Debian: openjdk-17-jre-headless)"
    try:
        check_java()
        found.append(ok("java", f"Java {OLDEST_JAVA} or newer found"))
    except ConfigInvalid as error:
        found.append(
            problem("java", error.message, f"{install} or set JAVA_HOME; only the pipeline needs it")
        )
    missing = [name for name in _SPARK_PACKAGES if find_spec(name) is None]
    if missing:
        message = f"not installed: {', '.join(missing)}; only the pipeline needs them"
        found.append(problem("spark packages", message, "pip install 'tidewire[spark]'"))
    else:
        found.append(ok("spark packages", "installed"))
    return found


def check_postgres(store: str) -> Finding:
    """Check that the database is reachable and new enough, and that its user may use the org's schema."""
    try:
        import psycopg

        from tidewire.storage.postgres import parse_store_url
    except ImportError:
        return problem("store", "psycopg is not installed", "pip install 'tidewire[postgres]'")
    try:
        conninfo, schema = parse_store_url(store)
    except ConfigInvalid as error:
        return problem("store", error.message, "pass --store postgresql://USER@HOST/DATABASE")
    try:
        with psycopg.connect(conninfo, connect_timeout=_POSTGRES_S, autocommit=True) as connection:
            shown = printable(f"PostgreSQL at {connection.info.host}")
            row = connection.execute(_INSPECT_SQL, {"schema": schema}).fetchone()
    except psycopg.Error as error:
        lines = str(error).strip().splitlines() or ["no response"]
        return problem(
            "store", f"PostgreSQL: {printable(lines[0])}", "start the database, or correct --store"
        )
    version, user, has_schema, can_use = row or (0, "", False, False)
    if version < _OLDEST_POSTGRES:
        return problem("store", f"{shown} is version {version}", f"use version {_OLDEST_POSTGRES} or newer")
    if not can_use:
        needed, grant = (
            (f"use the schema {schema}", f"GRANT USAGE, CREATE ON SCHEMA {schema}")
            if has_schema
            else (f"create the schema {schema}", "GRANT CREATE ON DATABASE")
        )
        role = printable(str(user))
        return problem("store", f"{shown}: {role} cannot {needed}", f"{grant} ... TO {role}")
    state = "exists" if has_schema else "will be created on first start"
    return ok("store", f"{shown} is reachable; the schema {schema} {state}")
