"""The test kit: a real server that can be lost and found again."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.running import Rest
from tidewire.clock import SystemClock
from tidewire.config import Settings
from tidewire.errors import InternalError, LoginFailed
from tidewire.server.core import open_core
from tidewire.testing import ServerProcess, choose_ports
from tidewire.testing.controlled import ControlledServer
from tidewire.testing.template_org import TemplateOrg, create_template_org, ensure_cached_org

DAY_MS = 86_400_000


@asynccontextmanager
async def controlled(directory: Path, template: TemplateOrg) -> AsyncIterator[tuple[ControlledServer, Rest]]:
    """A server under control, and REST calls with its administrator's token."""
    any_port = "127.0.0.1:0"
    settings = Settings(
        data=str(directory), dev=True, http=any_port, https=any_port, grpc=any_port, grpc_tls=any_port
    )
    server = ControlledServer(settings, template)
    try:
        ready = await server.start()
        rest = Rest(ready["http"], ready["token"])
        yield server, rest
        rest.close()
    finally:
        await server.close()


def test_chosen_ports_are_distinct_and_outside_the_ephemeral_range() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = choose_ports(20)
    assert len(set(ports)) == 20
    assert all(1024 <= port < first_ephemeral for port in ports)


def test_kept_org_is_made_once_a_day_and_old_ones_are_forgotten(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    now_ms = SystemClock().now_ms()
    made = ensure_cached_org(cache, now_ms)
    assert (made.directory / "org.db").exists()
    assert cache.stat().st_mode & 0o077 == 0
    assert ensure_cached_org(cache, now_ms) == made
    old_s = now_ms / 1000 - 3 * 86_400
    os.utime(made.directory.parent, (old_s, old_s))
    tomorrow = ensure_cached_org(cache, now_ms + 86_400_000)
    assert tomorrow.token != made.token
    assert [path.name for path in cache.iterdir()] == [tomorrow.directory.parent.name]


def test_kept_org_that_several_want_at_once_is_whole_for_all(tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: ensure_cached_org(tmp_path, now_ms), range(3)))
    assert len({org.token for org in found}) == 1
    assert [path.name for path in tmp_path.iterdir()] == [found[0].directory.parent.name]


async def test_token_of_an_org_made_hours_ago_survives_the_first_purge_of_a_copy(tmp_path: Path) -> None:
    made = await create_template_org(tmp_path / "made")
    with closing(sqlite3.connect(made.directory / "org.db")) as database, database:
        database.execute("UPDATE login_sessions SET started_ms = ?, used_ms = ?", (DAY_MS, DAY_MS))
    made.copy_to(tmp_path / "copy")
    core = await open_core(Settings(data=str(tmp_path / "copy"), dev=True), SystemClock())
    try:
        await core.logins.purge()  # what a server that starts does at any moment
        assert (await core.logins.sessions.authenticate(made.token)).user_id
    finally:
        await core.close()


async def test_server_whose_kept_org_is_forgotten_still_goes_back_to_its_beginning(tmp_path: Path) -> None:
    made = await create_template_org(tmp_path / "made")
    async with controlled(tmp_path / "data", made) as (server, rest):
        await asyncio.to_thread(rest.create, "Account", {"Name": "gone"})
        shutil.rmtree(made.directory)
        await server.reset()
        assert await asyncio.to_thread(rest.query, "SELECT Id FROM Account") == []


def test_test_server_without_a_cache_starts_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file" / "cache")}
    program = ("-m", "tidewire.testing")
    with ServerProcess(tmp_path / "data", env=environment, program=program) as server:
        assert server.login()


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
