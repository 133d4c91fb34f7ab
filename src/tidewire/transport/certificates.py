"""A private certificate authority and a server certificate, created on first start and renewed in time.

    python -m tidewire.transport.certificates DIRECTORY NOW_MS [HOST ...]

Keys are readable by the owner only. A valid certificate is reused, so that clients need to trust the
authority once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidewire.errors import ConfigInvalid
from tidewire.transport.tls import TlsFiles, tls_files

_ALWAYS_NAMED = ("localhost", "*.localhost", "127.0.0.1", "::1")
_CA_LIFE = timedelta(days=3650)
_SERVER_LIFE = timedelta(days=397)  # the longest that common clients accept from any authority
_RENEW_BEFORE = timedelta(days=30)
_BACKDATE = timedelta(hours=1)  # for clients whose clock is a little behind


def ensure_certificates(directory: Path, hosts: Iterable[str], now_ms: int) -> TlsFiles:
    """Create the files that are missing, renew those that expire soon or do not name all `hosts`.

    Raises ConfigInvalid for an invalid host name.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = tls_files(directory)
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    names = [_parse_name(host) for host in dict.fromkeys((*_ALWAYS_NAMED, *hosts))]
    authority = _try_load_authority(files, now)
    if authority is None:
        authority = _make_authority(now)
        _write_file(files.ca_key, _render_key(authority[1]), 0o600)
        _write_file(files.ca, _render_certificate(authority[0]), 0o644)
    if not _is_server_good(files, authority[0], names, now):
        certificate, key = _make_server(authority, names, now)
        _write_file(files.server_key, _render_key(key), 0o600)
        _write_file(files.server, _render_certificate(certificate) + _render_certificate(authority[0]), 0o644)
    return files


def _parse_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode("ascii") if not host.isascii() else host.lower())
    except ValueError as error:
        raise ConfigInvalid(f"not a valid host name: {host!r}", setting="hosts") from error


def _try_load_authority(
    files: TlsFiles, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    try:
        certificate = x509.load_pem_x509_certificate(files.ca.read_bytes())
        key = serialization.load_pem_private_key(files.ca_key.read_bytes(), password=None)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    # It must not expire before a server certificate that it signs today.
    if certificate.not_valid_after_utc < now + _SERVER_LIFE:
        return None
    return certificate, key


def _is_server_good(
    files: TlsFiles, authority: x509.Certificate, names: list[x509.GeneralName], now: datetime
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(files.server.read_bytes())
        key = serialization.load_pem_private_key(files.server_key.read_bytes(), password=None)
        certificate.verify_directly_issued_by(authority)
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature):
        return False
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        key.public_key() == certificate.public_key()
        and certificate.not_valid_before_utc <= now
        and certificate.not_valid_after_utc > now + _RENEW_BEFORE
        and set(names) <= set(named)
    )


def _make_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tidewire"),
            # Two authorities with the same name confuse trust stores, which look up by name.
            x509.NameAttribute(NameOID.COMMON_NAME, f"Tidewire private CA {os.urandom(4).hex()}"),
        ]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()), key


def _make_server(
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    names: list[x509.GeneralName],
    now: datetime,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    issuer, issuer_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _SERVER_LIFE - _BACKDATE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False
        )
    )
    return builder.sign(issuer_key, hashes.SHA256()), key


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _render_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _render_certificate(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_file(path: Path, content: bytes, mode: int) -> None:
    # Renamed into place, so that a crash leaves either the old file or the new one.
    scratch = path.with_suffix(".new")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def main() -> None:
    """Run the command line. Exits with status 1 and the reason on failure."""
    directory, now_ms, *hosts = sys.argv[1:]
    try:
        ensure_certificates(Path(directory), hosts, int(now_ms))
    except ConfigInvalid as error:
        sys.exit(error.message)
    except OSError as error:
        sys.exit(f"cannot write certificates to {directory}: {error.strerror}")


if __name__ == "__main__":
    main()
