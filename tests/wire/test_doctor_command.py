"""`tidewire doctor` beside a live server, and where things are wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.postgres import PostgresServer
from tidewire.cli.main import cli
from tidewire.testing import ServerProcess
from tidewire.transport.certificates import ensure_certificates
from tidewire.transport.tls import server_ssl_context

LONG_AGO_MS = 1_400_000_000_000


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in."""
    monkeypatch.setenv("TIDEWIRE_CONFIG_DIR", str(tmp_path / "conf"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def examine(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and what each check found."""
    done = CliRunner().invoke(cli, ["doctor", "--json", *arguments])
    document = json.loads(done.stdout)
    assert document["is_well"] == (done.exit_code == 0)
    return done.exit_code, {each["check"]: each for each in document["checks"]}


def addresses(server: ServerProcess) -> list[str]:
    flags = {
        "--http": server.http,
        "--https": server.https,
        "--grpc": server.grpc,
        "--grpc-tls": server.grpc_tls,
    }
    shown = {
        flag: address.rpartition("/")[2].replace("localhost", "127.0.0.1") for flag, address in flags.items()
    }
    return [part for pair in shown.items() for part in pair]


def test_running_server_is_well(server: ServerProcess) -> None:
    code, found = examine("--data", str(server.data), *addresses(server))
    assert {name: each["state"] for name, each in found.items() if each["state"] != "ok"} == {}
    assert code == 0
    assert "is used by the running server" in found["port http"]["told"]
    assert "is readable" in found["pipeline source"]["told"]


def test_port_that_another_server_has_is_explained(server: ServerProcess, place: Path) -> None:
    code, found = examine("--data", str(place / "data"), *addresses(server))
    assert code == 1
    assert found["port http"]["state"] == "problem"
    assert f"process {server.pid}" in found["port http"]["told"]
    assert "--http" in found["port http"]["do"]


def test_machine_without_a_server_is_told_how_to_start_one() -> None:
    code, found = examine(
        "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--grpc", "127.0.0.1:1", "--no-pipeline"
    )
    assert found["server"]["state"] == "note"
    assert "tidewire serve --dev" in found["server"]["do"]
    assert "java" not in found
    assert code == (
        1 if found["port grpc_tls"]["state"] == "problem" or found["port grpc"]["state"] == "problem" else 0
    )


def test_unreachable_source_of_the_pipeline_is_explained(server: ServerProcess) -> None:
    code, found = examine("--url", server.http, "--endpoint", "127.0.0.1:1")
    assert code == 1
    assert found["pipeline source"]["state"] == "problem"
    assert "cannot reach 127.0.0.1:1" in found["pipeline source"]["told"]
    assert "--endpoint" in found["pipeline source"]["do"]


def test_source_without_the_topic_is_explained(server: ServerProcess) -> None:
    code, found = examine("--url", server.http, "--endpoint", server.grpc, "--topic", "/data/NoneChangeEvent")
    assert code == 1
    assert "NoneChangeEvent" in found["pipeline source"]["told"]
    assert "tidewire channels" in found["pipeline source"]["do"]


def test_login_that_is_refused_is_explained(server: ServerProcess) -> None:
    code, found = examine("--url", server.http, "--password", "wrong", "--endpoint", server.grpc)
    assert code == 1
    assert found["server"]["state"] == "ok"
    assert "invalid_grant" in found["login"]["told"]


def test_certificate_that_is_not_trusted_is_explained(server: ServerProcess) -> None:
    code, found = examine("--url", server.https, "--no-pipeline")
    assert code == 1
    assert "not trusted" in found["server certificate"]["told"]
    assert "--ca" in found["server certificate"]["do"]
    trusted = examine("--url", server.https, "--ca", str(server.ca_path), "--no-pipeline")[1]
    assert trusted["server"]["state"] == "ok"


@contextmanager
def listening_with_tls(directory: Path) -> Iterator[int]:
    """A listener with the certificate in a directory; its port."""
    context = server_ssl_context(ensure_certificates(directory, [], LONG_AGO_MS))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.settimeout(30)
                # Whoever does not like the certificate may also just hang up.
                with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)

        greeting = threading.Thread(target=greet, daemon=True)
        greeting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            greeting.join(30)


def test_expired_certificate_of_a_server_is_explained(place: Path) -> None:
    with listening_with_tls(place / "tls") as port:
        url = f"https://localhost:{port}"
        code, found = examine("--url", url, "--ca", str(place / "tls" / "ca.pem"), "--no-pipeline")
        assert code == 1
        assert found["server certificate"]["told"] == f"the certificate of {url} has expired"
        shown = examine("--https", f"127.0.0.1:{port}", "--no-pipeline")[1]["certificate shown on https"]
    assert (shown["state"], "expired on 2015" in shown["told"]) == ("problem", True)


def test_expired_certificate_in_the_data_directory_is_explained(place: Path) -> None:
    ensure_certificates(place / "data" / "tls", [], LONG_AGO_MS)
    code, found = examine("--data", str(place / "data"), "--no-pipeline")
    assert code == 1
    assert "expired on 2015" in found["certificate"]["told"]
    assert "restart the server" in found["certificate"]["do"]


def test_settings_that_cannot_be_read_are_explained(place: Path) -> None:
    (place / "tidewire.toml").write_text("nonsense = 1\n")
    code, found = examine("--no-pipeline")
    assert code == 1
    assert "nonsense" in found["settings"]["told"]


def test_text_form_has_what_to_do_under_each_problem(place: Path) -> None:
    (place / "file").write_text("")
    done = CliRunner().invoke(cli, ["doctor", "--data", str(place / "file" / "x"), "--no-pipeline"])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("problem  data directory")]
    assert lines[at + 1].strip().startswith("-> move that file")
    assert lines[-1].endswith(("1 problem", "problems"))


def test_postgresql_that_does_not_answer_is_explained(place: Path) -> None:
    code, found = examine("--no-pipeline", "--store", "postgresql://nobody:sesame@127.0.0.1:1/none")
    assert (code, found["store"]["state"]) == (1, "problem")
    assert "refused" in found["store"]["told"]
    assert "sesame" not in json.dumps(found)
    assert found["store"]["do"]


@pytest.mark.parametrize("store", ["postgresql://[::/none", "postgresql://x/y?schema=No-Schema"])
def test_postgresql_address_that_cannot_be_read_is_explained(store: str) -> None:
    code, found = examine("--no-pipeline", "--store", store)
    assert code == 1
    told = found.get("store", found["settings"])
    assert told["state"] == "problem"


def test_postgresql_is_well_before_and_after_its_schema_is_made(postgres: PostgresServer) -> None:
    store = postgres.make_url()
    _, found = examine("--no-pipeline", "--store", store)
    assert found["store"]["state"] == "ok"
    assert "will be created" in found["store"]["told"]
    schema = store.rpartition("schema=")[2]
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    _, found = examine("--no-pipeline", "--store", store)
    assert (found["store"]["state"], "exists" in found["store"]["told"]) == ("ok", True)


def test_postgresql_user_without_the_right_to_the_schema_is_told_what_to_grant(
    postgres: PostgresServer,
) -> None:
    store = postgres.make_url()
    schema = store.rpartition("schema=")[2]
    user = "u_" + schema
    with postgres.connect() as connection:
        connection.execute(f"CREATE USER {user}")
    theirs = store.replace("postgres@", f"{user}@")
    code, found = examine("--no-pipeline", "--store", theirs)
    assert (code, found["store"]["do"]) == (1, f"GRANT CREATE ON DATABASE ... TO {user}")
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    _, found = examine("--no-pipeline", "--store", theirs)
    assert found["store"]["do"] == f"GRANT USAGE, CREATE ON SCHEMA {schema} ... TO {user}"
