"""The wheel, the container files and the service unit.

The container files are checked as text only: what they copy, run and publish has to exist and fit together.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tidewire.cli.main import cli
from tidewire.config import Settings
from tidewire.testing import choose_ports

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = {"TIDEWIRE_" + f.name.upper() for f in fields(Settings)}
SIGN_IN = {"TIDEWIRE_URL", "TIDEWIRE_USERNAME", "TIDEWIRE_PASSWORD"}
UNIT = ROOT / "packaging" / "tidewire.service"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines)]


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return document


def stages() -> list[str]:
    return [rest.rsplit(" AS ", 1)[1] for word, rest in instructions() if word == "FROM"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_wheel_holds_the_console_the_licence_and_nothing_of_the_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    static = "tidewire/console/static/"
    assert {
        static + name for name in ("index.html", "app.js", "app.css", "icon.svg", "licences.txt")
    } <= names
    assert {"tidewire/py.typed", "tidewire/testing/plugin.py", "tidewire/cli/demo/org.yaml"} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert all(name.startswith("tidewire") for name in names)
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.slow
def test_wheel_in_a_fresh_environment_serves_the_console(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    uv = [str(Path(sys.executable).with_name("uv"))]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(environment)], check=True, timeout=120)
    python = environment / "bin" / "python"
    # Without dependencies, which are borrowed below: installing them anew would test the network.
    install = [*uv, "pip", "install", "-q", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    flags = zip(("http", "https", "grpc", "grpc-tls"), choose_ports(4), strict=True)
    listeners = [text for name, port in flags for text in (f"--{name}", f"127.0.0.1:{port}")]
    with subprocess.Popen(
        [str(environment / "bin" / "tidewire"), "serve", "--dev", "--data", "data", *listeners],
        cwd=tmp_path,
        env={"PYTHONPATH": sysconfig.get_path("purelib"), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline())
            with urllib.request.urlopen(ready["http"] + "/", timeout=60) as page:
                assert page.headers["Content-Type"].startswith("text/html")
                assert b"app.js" in page.read()
        finally:
            server.terminate()
            assert server.wait(60) == 0
    told = subprocess.run(
        [
            str(python),
            "-c",
            "import tidewire, importlib.metadata as m;"
            "print(tidewire.__file__, *[e.value for e in m.entry_points(group='pytest11')])",
        ],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert Path(told[0]).is_relative_to(environment)
    assert told[1:] == ["tidewire.testing.plugin"]


def test_dockerfile_copies_what_exists_from_the_context_or_an_earlier_stage() -> None:
    known: list[str] = []
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for word, rest in instructions():
        if word == "FROM":
            image, name = rest.rsplit(" AS ", 1)
            assert ":" in image or image in known, image
            known.append(name)
        elif word == "COPY":
            parts = rest.split()
            if parts[0].startswith("--from="):
                assert parts[0].removeprefix("--from=") in known
                continue
            for source in parts[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source.strip('/').split('/')[0]}" in ignored, source


def test_dockerfile_sets_only_variables_that_the_server_reads_and_runs_unprivileged() -> None:
    variables = {
        v for word, rest in instructions() if word == "ENV" for v in re.findall(r"TIDEWIRE_\w+", rest)
    }
    assert variables
    assert variables <= VARIABLES
    assert stages()[-1] == "server"
    users = [i for i, (word, rest) in enumerate(instructions()) if (word, rest) == ("USER", "tidewire")]
    froms = [i for i, (word, _) in enumerate(instructions()) if word == "FROM"]
    assert len([i for i in users if i > froms[-2]]) == 2  # in both images that are meant to run


def test_compose_services_are_server_database_and_spark_built_from_stages_that_exist() -> None:
    services = compose()["services"]
    assert set(services) == {"server", "postgres", "spark"}
    assert services["server"]["build"]["target"] in stages()
    assert services["spark"]["image"] == services["server"]["image"]
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        for volume in service["volumes"]:
            assert volume.split(":")[0] in compose()["volumes"], name


def test_compose_publishes_on_loopback_only_and_sets_variables_that_are_read() -> None:
    services = compose()["services"]
    assert all(
        port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", ())
    )
    assert set(services["server"]["environment"]) <= VARIABLES
    assert set(services["spark"]["environment"]) <= SIGN_IN


@pytest.mark.parametrize("service", ["server", "spark"])
def test_compose_commands_are_commands_of_ours_with_options_that_they_have(service: str) -> None:
    words = compose()["services"][service]["command"]
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_service_unit_starts_the_server_restarts_it_and_keeps_its_data(tmp_path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    assert unit["Service"]["ExecStart"].endswith("/tidewire serve")
    assert unit["Service"]["Restart"] == "on-failure"
    variable, _, directory = unit["Service"]["Environment"].partition("=")
    assert variable in VARIABLES
    assert directory.startswith(f"/var/lib/{unit['Service']['StateDirectory']}/")
    if shutil.which("systemd-analyze") is not None:
        # What it starts is not installed on the machine that tests it.
        copy = tmp_path / UNIT.name
        copy.write_text(UNIT.read_text().replace("/opt/tidewire/bin/tidewire", "/bin/true"))
        verify = ["systemd-analyze", "verify", str(copy)]
        done = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
