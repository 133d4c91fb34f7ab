"""What `tidewire doctor` finds on a machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tidewire.cli.doctor.machine import (
    check_certificates,
    check_directory,
    check_pipeline_software,
    check_ports,
)
from tidewire.cli.doctor.port_owners import find_owner
from tidewire.config import Settings, load_settings
from tidewire.transport.certificates import ensure_certificates

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
ANY = "127.0.0.1:0"


def settings(data: Path, **others: str) -> Settings:
    flags = {"data": str(data), "http": ANY, "https": ANY, "grpc": ANY, "grpc_tls": ANY}
    return load_settings(flags | others, environment={}, directory=data)


def test_directory_that_is_there_or_can_be_made_is_well(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "a" / "b"):
        assert {each.state for each in check_directory("data directory", path, "--data")} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_directory_under_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (found,) = check_directory("data directory", tmp_path / "file" / "data", "--data")
    assert (found.state, "is a file" in found.message, "--data" in found.fix) == ("problem", True, True)


def test_directory_that_forbids_writing_is_explained(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    for path in (closed, closed / "below"):
        (found,) = check_directory("data directory", path, "--data")
        assert found.state == "problem"
        assert str(closed) in found.message
        assert "chmod u+w" in found.fix


def test_database_file_that_forbids_writing_is_explained(tmp_path: Path) -> None:
    (tmp_path / "org.db").write_text("")
    (tmp_path / "org.db").chmod(0o444)
    found = check_directory("data directory", tmp_path, "--data")[0]
    assert (found.state, "org.db" in found.message) == ("problem", True)


def test_taken_port_is_explained_with_who_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        owner = find_owner(port)
        assert owner is not None
        assert owner.pid == os.getpid()
        found = {each.check: each for each in check_ports(settings(tmp_path, grpc=f"127.0.0.1:{port}"))}
    assert {name for name, each in found.items() if each.state == "problem"} == {"port grpc"}
    assert f"127.0.0.1:{port} is in use by process {os.getpid()}" in found["port grpc"].message
    assert "--grpc 127.0.0.1:PORT" in found["port grpc"].fix


@pytest.mark.parametrize(
    "address, word", [("203.0.113.7:8080", "not an address of this machine"), ("x", "HOST:PORT")]
)
def test_address_that_cannot_be_listened_on_is_explained(tmp_path: Path, address: str, word: str) -> None:
    found = check_ports(settings(tmp_path, http=address))[0]
    assert (found.state, word in found.message) == ("problem", True)


def test_certificates_are_looked_at_for_their_dates(tmp_path: Path) -> None:
    assert [each.state for each in check_certificates(settings(tmp_path), NOW_MS)] == ["ok"]
    ensure_certificates(tmp_path / "tls", [], NOW_MS)
    assert {each.state for each in check_certificates(settings(tmp_path), NOW_MS)} == {"ok"}
    soon, authority = check_certificates(settings(tmp_path), NOW_MS + 390 * DAY_MS)
    assert (soon.state, authority.state) == ("note", "ok")
    expired, authority = check_certificates(settings(tmp_path), NOW_MS + 400 * DAY_MS)
    assert (expired.state, authority.state) == ("problem", "ok")
    assert "expired on 2028-" in expired.message
    assert "restart the server" in expired.fix
    early = check_certificates(settings(tmp_path), NOW_MS - DAY_MS)[0]
    assert (early.state, "clock" in early.fix) == ("problem", True)


def test_certificate_that_cannot_be_read_is_explained(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "tls", [], NOW_MS)
    (tmp_path / "tls" / "server.pem").write_text("nonsense")
    found = check_certificates(settings(tmp_path), NOW_MS)[0]
    assert (found.state, "cannot read" in found.message) == ("problem", True)


def test_missing_java_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = check_pipeline_software()[0]
    assert (found.check, found.state) == ("java", "problem")
    assert "no java on the PATH" in found.message
    assert "JAVA_HOME" in found.fix
