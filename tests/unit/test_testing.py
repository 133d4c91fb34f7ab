"""The test kit: a real server that can be lost and found again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.running import Rest
from tidewire.errors import InternalError, LoginFailed
from tidewire.testing import ServerProcess, choose_ports


def test_chosen_ports_are_distinct_and_outside_the_ephemeral_range() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = choose_ports(20)
    assert len(set(ports)) == 20
    assert all(1024 <= port < first_ephemeral for port in ports)


def test_server_killed_and_restarted_keeps_addresses_sessions_and_records(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        before = (server.http, server.https, server.grpc, server.grpc_tls, server.org_id)
        token = server.login()
        rest = Rest(server.http, token)
        record_id = rest.create("Account", {"Name": "kept"})
        rest.close()
        server.kill()
        assert not server.is_running
        server.restart()
        assert (server.http, server.https, server.grpc, server.grpc_tls, server.org_id) == before
        rest = Rest(server.http, token)
        assert [row["Id"] for row in rest.query("SELECT Id FROM Account")] == [record_id]
        rest.close()
        assert server.ca_path.read_text().startswith("-----BEGIN CERTIFICATE-----")


def test_server_left_by_its_context_is_gone(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_stop_of_a_running_server_is_clean(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        server.stop()
        assert not server.is_running


def test_login_with_a_wrong_password_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, pytest.raises(LoginFailed):
        server.login(password="wrong")


def test_start_with_an_unknown_option_tells_what_the_server_said(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", options=["--no-such-option"])
    with pytest.raises(InternalError, match="no-such-option"):
        server.start()


def test_second_server_on_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data"):
        second = ServerProcess(tmp_path / "data")
        with pytest.raises(InternalError, match="another process"):
            second.start()
