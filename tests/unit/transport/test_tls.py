from __future__ import annotations

import asyncio
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

import tidewire
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid
from tidewire.transport.certificates import ensure_certificates
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.http_server import serve_http
from tidewire.transport.routes import Route, Router
from tidewire.transport.tls import ensure_certificates_in_subprocess, server_ssl_context

DAY_MS = 86_400_000
NOW_MS = 1_794_700_000_000


def expiry_ms(path: Path) -> float:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp() * 1000


def test_first_call_makes_keys_that_only_the_owner_reads(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "tls", [], NOW_MS)
    for key in (files.ca_key, files.server_key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert files.ca.name == "ca.pem"
    assert expiry_ms(files.server) > NOW_MS + 300 * DAY_MS


def test_valid_certificates_are_reused(tmp_path: Path) -> None:
    before = ensure_certificates(tmp_path, ["wire.example"], NOW_MS)
    contents = [before.ca.read_bytes(), before.server.read_bytes()]
    after = ensure_certificates(tmp_path, ["wire.example"], NOW_MS + 100 * DAY_MS)
    assert [after.ca.read_bytes(), after.server.read_bytes()] == contents


def test_server_certificate_near_its_end_is_renewed_by_the_same_authority(tmp_path: Path) -> None:
    before = ensure_certificates(tmp_path, [], NOW_MS)
    authority = before.ca.read_bytes()
    later_ms = NOW_MS + 380 * DAY_MS
    after = ensure_certificates(tmp_path, [], later_ms)
    assert after.ca.read_bytes() == authority
    assert expiry_ms(after.server) > later_ms + 300 * DAY_MS


def test_new_host_name_makes_a_new_server_certificate(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, [], NOW_MS)
    files = ensure_certificates(tmp_path, ["wire.example", "10.0.0.7"], NOW_MS)
    certificate = x509.load_pem_x509_certificate(files.server.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "*.localhost", "wire.example"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "::1", "10.0.0.7"} <= {str(a) for a in names.get_values_for_type(x509.IPAddress)}


def test_spoilt_file_is_replaced(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, [], NOW_MS)
    files.server_key.write_text("nonsense")
    ensure_certificates(tmp_path, [], NOW_MS)
    assert server_ssl_context(files).minimum_version == ssl.TLSVersion.TLSv1_2


def test_server_key_of_another_authority_is_replaced(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path / "one", [], NOW_MS)
    other = ensure_certificates(tmp_path / "two", [], NOW_MS)
    files.server.write_bytes(other.server.read_bytes())
    files.server_key.write_bytes(other.server_key.read_bytes())
    renewed = ensure_certificates(tmp_path / "one", [], NOW_MS)
    assert renewed.server.read_bytes() != other.server.read_bytes()


def test_invalid_host_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid):
        ensure_certificates(tmp_path, ["bücher" + "ü" * 80], NOW_MS)


def test_certificates_made_by_a_process_of_their_own_are_found_good_here(tmp_path: Path) -> None:
    made = ensure_certificates_in_subprocess(tmp_path, ["wire.example"], NOW_MS)
    before = made.server.read_bytes()
    assert ensure_certificates(tmp_path, ["wire.example"], NOW_MS) == made
    assert made.server.read_bytes() == before


def test_certificates_are_made_whatever_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tidewire").mkdir()
    (tmp_path / "tidewire" / "__init__.py").write_text("raise SystemExit('another tidewire')")
    monkeypatch.chdir(tmp_path)
    assert ensure_certificates_in_subprocess(tmp_path / "tls", [], NOW_MS).server.exists()


def test_certificates_are_made_by_the_very_package_that_asks_for_them(tmp_path: Path) -> None:
    package = Path(tidewire.__file__).parent
    for name in ("__init__.py", "errors.py", "transport/__init__.py", "transport/tls.py"):
        copy = tmp_path / "other" / "tidewire" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, copy)
    (tmp_path / "other" / "tidewire" / "transport" / "certificates.py").write_text(
        "raise SystemExit('other')"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'other')!r})\n"
        "from pathlib import Path; from tidewire.transport.tls import ensure_certificates_in_subprocess\n"
        f"ensure_certificates_in_subprocess(Path({str(tmp_path / 'tls')!r}), [], {NOW_MS})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("ConfigInvalid: other\n")


def test_invalid_host_name_is_rejected_by_the_subprocess_with_the_same_text(tmp_path: Path) -> None:
    host = "bücher" + "ü" * 80
    with pytest.raises(ConfigInvalid, match="not a valid host name"):
        ensure_certificates_in_subprocess(tmp_path, [host], NOW_MS)


def test_server_does_not_load_what_makes_certificates() -> None:
    code = "import sys, tidewire.server.run; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_client_that_trusts_the_authority_is_served_over_tls(tmp_path: Path) -> None:
    async def show_scheme(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, request.scheme.encode())

    async def scenario() -> bytes:
        clock = SystemClock()
        files = ensure_certificates(tmp_path, [], clock.now_ms())
        router = Router([Route("/", handle=show_scheme)])
        listener = await serve_http(router, "127.0.0.1", 0, clock=clock, ssl=server_ssl_context(files))
        trusting = ssl.create_default_context(cafile=str(files.ca))
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=trusting, server_hostname="localhost"
        )
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await listener.close(1)
        return answer

    assert asyncio.run(scenario()).endswith(b"\r\n\r\nhttps")
