"""TLS of the listeners: where certificates and keys lie, and how they are used.

Files in the directory: `ca.pem` (give it to clients), `ca-key.pem`, `server.pem` (server certificate, then
the CA's), `server-key.pem`. `certificates` makes them.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidewire.errors import ConfigInvalid

_PACKAGES = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificates and keys lie."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path


def tls_files(directory: Path) -> TlsFiles:
    """The files of a directory, whether or not they are there."""
    return TlsFiles(
        directory / "ca.pem", directory / "ca-key.pem", directory / "server.pem", directory / "server-key.pem"
    )


def ensure_certificates_apart(directory: Path, hosts: Iterable[str], now_ms: int) -> TlsFiles:
    """Do what `certificates.ensure_certificates` does, in a process of its own: what makes certificates takes
    ten megabytes that a server would keep for as long as it runs. Blocks. Raises ConfigInvalid.
    """
    # This very package, installed or not, and nothing that happens to lie in the working directory.
    path = os.pathsep.join([_PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])])
    program = [sys.executable, "-P", "-m", "tidewire.transport.certificates"]
    made = subprocess.run(
        [*program, str(directory), str(now_ms), *hosts],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if made.returncode:
        lines = made.stderr.strip().splitlines()
        raise ConfigInvalid(lines[-1] if lines else "certificates could not be made", setting="tls_host")
    return tls_files(directory)


def server_ssl_context(files: TlsFiles) -> ssl.SSLContext:
    """The listener's TLS settings: 1.2 and up, HTTP/1.1 only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.server, files.server_key)
    context.set_alpn_protocols(["http/1.1"])
    return context
