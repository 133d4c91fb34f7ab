"""Backup of a live server and restore into another, through the command line, as an operator does it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest

from tests.running import Refused, Rest, SeenEvent, call_metadata, read_topic
from tidewire.testing import ServerProcess

ACCOUNTS = "/data/AccountChangeEvent"


def tidewire(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidewire.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def read_accounts(
    server: ServerProcess, token: str, last_id: str, after: int | None = None
) -> list[SeenEvent]:
    """The accounts' change events up to the one of `last_id`."""
    metadata = call_metadata(token, server.http, server.org_id)
    return read_topic(
        server.grpc,
        metadata,
        ACCOUNTS,
        lambda e: last_id in e.header["recordIds"],
        after=after,
        timeout_s=120,
    )


class Load:
    """Creates accounts, one after the other, until told to stop."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.started = threading.Event()
        self.created: list[str] = []

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            self.created.append(self._rest.create("Account", {"Name": f"Load {len(self.created)}"}))
            self.started.set()

    def __enter__(self) -> Load:
        self._thread.start()
        assert self.started.wait(120)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_stopped.set()
        self._thread.join()


def test_backup_under_load_restores_to_a_server_that_refuses_later_replay_ids(
    fresh_server: ServerProcess, tmp_path: Path
) -> None:
    file, data = str(tmp_path / "org.backup"), tmp_path / "restored"
    token = fresh_server.login()
    rest = Rest(fresh_server.http, token)
    before = rest.create("Account", {"Name": "Before"})
    with Load(rest) as load:
        made = tidewire("backup", "--data", str(fresh_server.data), "--to", file, "--with-tls")
    assert made.returncode == 0, made.stderr
    after = rest.create("Account", {"Name": "After"})
    first_life = read_accounts(fresh_server, token, after)
    rest.close()
    fresh_server.stop()

    done = tidewire("restore", file, "--data", str(data))
    assert done.returncode == 0, done.stderr
    with ServerProcess(data) as restored:
        assert restored.org_id == fresh_server.org_id
        assert restored.ca_path.read_bytes() == fresh_server.ca_path.read_bytes()
        rest = Rest(restored.http, token)
        with pytest.raises(Refused) as refused:
            rest.query("SELECT Id FROM Account")
        rest.close()
        assert refused.value.status == 401

        token = restored.login()
        rest = Rest(restored.http, token)
        kept = {record["Id"] for record in rest.query("SELECT Id FROM Account")}
        assert before in kept
        assert after not in kept
        assert kept - {before} == set(load.created[: len(kept) - 1])

        new = rest.create("Account", {"Name": "New"})
        assert new not in {before, after, *load.created}
        rest.close()
        second_life = read_accounts(restored, token, new)
        assert second_life[:-1] == first_life[: len(kept)]
        assert second_life[-1].replay_id > first_life[-1].replay_id
        assert read_accounts(restored, token, new, second_life[-2].replay_id) == second_life[-1:]
        with pytest.raises(grpc.RpcError) as error:
            read_accounts(restored, token, new, first_life[-1].replay_id)
        trailers = dict(error.value.trailing_metadata())
        assert trailers["tidewire-code"] == "replay_id_invalid"


def test_backup_overwrites_nothing_and_says_so_in_one_line(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("precious")
    refused = tidewire("backup", "--data", str(server.data), "--to", str(tmp_path / "b"))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "overwrites nothing" in refused.stderr
    assert (tmp_path / "b").read_text() == "precious"


def test_restore_over_a_running_server_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    file = str(tmp_path / "b")
    assert tidewire("backup", "--data", str(server.data), "--to", file).returncode == 0
    refused = tidewire("restore", file, "--data", str(server.data))
    assert refused.returncode == 2
    assert "not empty" in refused.stderr


def test_upgrade_beside_a_running_server_is_refused(server: ServerProcess) -> None:
    refused = tidewire("upgrade", "--data", str(server.data))
    assert refused.returncode == 2
    assert "store_locked" in refused.stderr


def test_upgrade_of_an_org_of_this_release_finds_nothing_to_do(tmp_path: Path) -> None:
    assert tidewire("init", "--data", str(tmp_path / "org")).returncode == 0
    done = tidewire("upgrade", "--data", str(tmp_path / "org"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" was up to date\n")
    assert done.stdout.count("\n") == 1
