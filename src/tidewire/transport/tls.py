"""TLS settings of the listeners, and the files of certificates and keys.

Files in the directory: `ca.pem` (give it to clients), `ca-key.pem`, `server.pem` (server certificate, then
the CA's), `server-key.pem`. `certificates` creates them.
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
    """Paths of the certificates and keys."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path


def tls_files(directory: Path) -> TlsFiles:
    """Return the paths in a directory, whether or not the files exist."""
    return TlsFiles(
        directory / "ca.pem", directory / "ca-key.pem", directory / "server.pem", directory / "server-key.pem"
    )


def ensure_certificates_in_subprocess(directory: Path, hosts: Iterable[str], now_ms: int) -> TlsFiles:
    """Run `certificates.ensure_certificates` in another process. Blocks. Raises ConfigInvalid.

    The library that makes certificates takes ten megabytes, which the server would keep for as long as it
    runs.
    """
    # The same copy of the package, installed or not, and nothing from the working directory (`-P`).
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
        raise ConfigInvalid(
            lines[-1] if lines else "the certificates could not be created", setting="tls_host"
        )
    return tls_files(directory)


def server_ssl_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the TLS settings of a listener: version 1.2 and up, HTTP/1.1 only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.server, files.server_key)
    context.set_alpn_protocols(["http/1.1"])
    return context
