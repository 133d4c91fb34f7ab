"""What `tidewire doctor` looks at on this machine: directory, ports, certificates, Java and packages."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from cryptography import x509

from tidewire.cli.doctor.findings import Finding, note, ok, problem
from tidewire.cli.doctor.listening import find_lock_holder, find_owner, why_not_bound
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


def check_directory(check: str, path: Path, flag: str) -> list[Finding]:
    """Whether a directory is there or can be made, can be written to, and has room."""
    here = path
    while not os.path.exists(here) and here != here.parent:
        here = here.parent
    other = f"or name another with {flag}"
    if not os.path.isdir(here):
        return [problem(check, f"{path}: {here} is a file, not a directory", f"move that file away, {other}")]
    if why := _why_not_writable(here):
        told = f"{path} cannot be written to: {why}"
        if here != path:
            told = f"{path} cannot be made: {here} cannot be written to: {why}"
        mend = f"give whoever runs the server the right to write there (chown or chmod u+w {here}), {other}"
        return [problem(check, told, mend)]
    found = [
        ok(check, f"{path} can be written to" if here == path else f"{path} will be made at the first start")
    ]
    for file in sorted(path.glob("org.db*")):
        if not os.access(file, os.R_OK | os.W_OK) or not file.stat().st_mode & 0o200:
            mend = f"chmod u+rw {file}, and let it belong to whoever runs the server"
            found = [problem(check, f"{file} cannot be written to", mend)]
    free = shutil.disk_usage(here).free
    if free < _LEAST_FREE_BYTES:
        told = f"only {free >> 20} MiB are free on the disk of {here}"
        found.append(problem("disk space", told, f"make room, {other} on another disk"))
    else:
        found.append(ok("disk space", f"{free >> 30} GiB are free on the disk of {here}"))
    return found


def _why_not_writable(directory: Path) -> str:
    # For root every directory can be written to; the server will rather run as the directory's owner.
    if not directory.stat().st_mode & 0o200:
        return f"its mode {directory.stat().st_mode & 0o7777:04o} forbids it to its owner"
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def check_ports(settings: Settings) -> list[Finding]:
    """Whether each listener could open, or is one of the server that runs on the data directory."""
    # A server on PostgreSQL holds its lock there, where it cannot be seen from outside.
    has_server = settings.store != "sqlite" or find_lock_holder(Path(settings.data) / _LOCK_FILE) is not None
    found = []
    for name in LISTENERS:
        address = getattr(settings, name)
        try:
            host, port = parse_address(address, name)
        except ConfigInvalid as error:
            found.append(problem(f"port {name}", error.message, f"give --{name.replace('_', '-')} HOST:PORT"))
            continue
        found.append(_check_port(name, host, port, has_server=has_server))
    return found


def _check_port(name: str, host: str, port: int, *, has_server: bool) -> Finding:
    check = f"port {name}"
    flag = "--" + name.replace("_", "-")
    failure = why_not_bound(host, port) if port else 0
    if not failure:
        return ok(check, f"{host}:{port} is free" if port else "a free one is picked at the start")
    if failure == errno.EADDRINUSE:
        owner = find_owner(port)
        if owner is not None and owner.is_tidewire and has_server:
            return ok(check, f"{host}:{port} is open: the server is running (process {owner.pid})")
        who = f"process {owner.pid} ({printable(owner.command)})" if owner else "another process"
        mend = f"stop it, or choose another port with {flag} {host}:PORT"
        if owner is None:
            mend = f"`ss -ltnp 'sport = :{port}'` as root shows which; {mend}"
        return problem(check, f"{host}:{port} is taken by {who}", mend)
    if failure == errno.EACCES:
        return problem(
            check,
            f"{host}:{port} is not allowed: ports below 1024 belong to root",
            f"choose one above with {flag}",
        )
    if failure == errno.EADDRNOTAVAIL:
        return problem(
            check,
            f"{host} is not an address of this machine",
            f"name one with {flag}; 0.0.0.0 is all of them",
        )
    return problem(check, f"{host}:{port}: {os.strerror(failure)}", f"choose another address with {flag}")


def check_certificates(settings: Settings, now_ms: int) -> list[Finding]:
    """The certificates in the data directory, and those that a running server shows."""
    tls = Path(settings.data) / "tls"
    found = []
    authority = tls / "ca.pem"
    server = tls / "server.pem"
    if not server.exists() and not authority.exists():
        found.append(ok("certificate", f"will be made in {tls} at the first start"))
    else:
        mend = "start the server again: it makes a new one"
        found.append(_check_file("certificate", server, now_ms, mend))
        new = "start the server again: it makes another authority; then give the new ca.pem to the clients"
        found.append(_check_file("certificate authority", authority, now_ms, new))
    for name in _TLS_LISTENERS:
        host, port = parse_address(getattr(settings, name), name)
        shown = _try_shown_certificate(host, port) if port else None
        if shown is not None:
            check = f"certificate shown on {name}"
            found.append(
                _check_dates(
                    check, f"{host}:{port}", shown, now_ms, "start the server again: it makes a new one"
                )
            )
    return found


def _check_file(check: str, path: Path, now_ms: int, mend: str) -> Finding:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return problem(check, f"{path} cannot be read: {error}", f"remove {path.parent} and {mend}")
    return _check_dates(check, str(path), certificate, now_ms, mend)


def _check_dates(check: str, what: str, certificate: x509.Certificate, now_ms: int, mend: str) -> Finding:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    end = certificate.not_valid_after_utc
    if end <= now:
        return problem(check, f"the certificate {what} expired on {end:%Y-%m-%d}", mend)
    if certificate.not_valid_before_utc > now:
        begin = certificate.not_valid_before_utc
        told = f"the certificate {what} is valid from {begin:%Y-%m-%d %H:%M} UTC only"
        return problem(check, told, "is this machine's clock right?")
    if end < now + _SOON:
        return note(check, f"the certificate {what} expires on {end:%Y-%m-%d}", mend)
    return ok(check, f"{what} is valid until {end:%Y-%m-%d}")


def _try_shown_certificate(host: str, port: int) -> x509.Certificate | None:
    """What a listener shows, trusted or not; None if there is none, or it is no TLS."""
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
    """What the Spark pipeline needs beside the server: Java, and packages that are an extra."""
    from tidewire.pipeline.spark import OLDEST_JAVA, check_java

    found = []
    install = f"install Java {OLDEST_JAVA} or newer (on Debian: openjdk-17-jre-headless)"
    try:
        check_java()
        found.append(ok("java", f"there is a Java {OLDEST_JAVA} or newer"))
    except ConfigInvalid as error:
        found.append(
            problem(
                "java", error.message, f"{install} or point JAVA_HOME at one; the server itself runs without"
            )
        )
    missing = [name for name in _SPARK_PACKAGES if find_spec(name) is None]
    if missing:
        told = f"not installed: {', '.join(missing)}; only the pipeline needs them"
        found.append(problem("spark packages", told, "pip install 'tidewire[spark]'"))
    else:
        found.append(ok("spark packages", "installed"))
    return found
