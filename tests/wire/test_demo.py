"""The demo: what `make run` starts, told to stop and started again; and everything that its activity does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.documents import ROOT, blocks_of
from tests.running import call_metadata, read_topic
from tidewire.cli.demo.activity import Activity
from tidewire.cli.demo.calls import DemoCalls
from tidewire.cli.demo.company import Company
from tidewire.cli.demo.org import SIZES, ensure_demo_org
from tidewire.client.login import Credentials
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TODAY_MS = 1_790_000_000_000
FEW = dict.fromkeys(SIZES, 30)


def calls_of(url: str) -> DemoCalls:
    return DemoCalls(Credentials(url, DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET))


class Demo:
    """A running demo and what it has greeted with."""

    def __init__(self, process: subprocess.Popen[str], greeting: str) -> None:
        self.process = process
        self.greeting = greeting
        (self.url,) = re.findall(r"console +(http://\S+)/\n", greeting)

    def stop(self) -> tuple[int, str]:
        """As Ctrl-C does; status and what was printed since the greeting."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=120)
        return self.process.returncode, rest


@contextmanager
def running_demo(
    data: Path, *options: str, path: str = os.environ["PATH"], under: Sequence[str] = ()
) -> Iterator[Demo]:
    addresses = [f for name in ("http", "https", "grpc", "grpc-tls") for f in (f"--{name}", "127.0.0.1:0")]
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    process = subprocess.Popen(
        [*under, sys.executable, "-m", "tidewire.cli", "demo", "--data", str(data), *addresses, *options],
        env={**environment, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "Ctrl-C" not in lines[-1]:
            line = process.stdout.readline()
            assert line, "".join(lines)
            lines.append(line)
        yield Demo(process, "".join(lines))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        else:
            process.communicate()


def printed_commands(greeting: str) -> list[str]:
    """What the greeting says to try."""
    return re.findall(r"^  (\S*tidewire \w.*)$", greeting, re.MULTILINE)


def test_make_run_of_the_readme_starts_the_demo_and_its_commands_work_as_printed(tmp_path: Path) -> None:
    (block,) = [b for b in blocks_of(ROOT / "README.md") if b.runner == "tests/wire/test_demo.py"]
    anywhere = [f for name in ("http", "https", "grpc", "grpc-tls") for f in (f"--{name}", "127.0.0.1:0")]
    flags = " ".join(["--data", str(tmp_path / "demo"), "--no-pipeline", *anywhere])
    # Installed as the tests find it: what is out of date by now is not to be made again under their feet.
    installed = "-o .venv/stamps/package -o src/tidewire/console/static/index.html"
    assert "make run" in block.text
    # On the command line: make takes no -o from MAKEFLAGS.
    text = block.text.replace("make run", f"make {installed} run")
    environment = {**os.environ, "DEMO": flags, "MAKEFLAGS": "", "PYTHONPATH": str(ROOT / "src")}
    environment["TIDEWIRE_CONFIG_DIR"] = str(tmp_path / "conf")
    with subprocess.Popen(
        ["sh", "-ec", text],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as making:
        try:
            assert making.stdout is not None
            greeting = ""
            while "Ctrl-C" not in greeting:
                line = making.stdout.readline()
                assert line, greeting
                greeting += line
            subscribe, *others = printed_commands(greeting)
            assert len(others) == 2
            for command in others:
                done = subprocess.run(
                    ["sh", "-c", command],
                    cwd=ROOT,
                    env=environment,
                    capture_output=True,
                    timeout=120,
                    check=False,
                )
                assert (done.returncode, done.stderr.count(b"error")) == (0, 0), done.stderr
                assert done.stdout
            with subprocess.Popen(
                ["sh", "-c", "exec " + subscribe], cwd=ROOT, env=environment, stdout=subprocess.PIPE
            ) as watching:
                assert watching.stdout is not None
                assert b"/data/ChangeEvents" in watching.stdout.readline()
                watching.send_signal(signal.SIGINT)
                assert watching.wait(60) == 0
        finally:
            os.killpg(making.pid, signal.SIGINT)  # as a terminal does: to make and to the demo
            making.communicate(timeout=120)
    (url,) = re.findall(r"console +(http://\S+)/\n", greeting)
    with pytest.raises(requests.ConnectionError):
        requests.get(url + "/healthz", timeout=60)


def test_demo_whose_terminal_is_closed_leaves_no_server_behind(tmp_path: Path) -> None:
    # Whoever runs the tests may have been told to ignore it.
    listening = ["env", "--default-signal=HUP"]
    with running_demo(tmp_path / "demo", "--no-pipeline", under=listening) as demo:
        demo.process.send_signal(signal.SIGHUP)
        demo.process.communicate(timeout=120)
        with pytest.raises(requests.ConnectionError):
            requests.get(demo.url + "/healthz", timeout=60)


def test_demo_under_nohup_does_not_hear_its_terminal_close(tmp_path: Path) -> None:
    with running_demo(tmp_path / "demo", "--no-pipeline", under=["nohup"]) as demo:
        told = Path(f"/proc/{demo.process.pid}/status").read_text()
        (ignored,) = re.findall(r"SigIgn:\s+(\w+)", told)
        assert int(ignored, 16) >> (signal.SIGHUP - 1) & 1
        demo.process.send_signal(signal.SIGHUP)
        assert requests.get(demo.url + "/readyz", timeout=60).status_code == 200
        assert demo.stop() == (0, "")


def test_demo_in_a_place_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "tidewire.cli", "demo", "--data", str(tmp_path / "file" / "demo")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "--data" in done.stderr
    assert "Traceback" not in done.stderr


def test_demo_without_java_runs_the_rest_stops_quietly_and_goes_on_the_next_time(tmp_path: Path) -> None:
    data = tmp_path / "demo"
    with running_demo(data, path=str(tmp_path)) as demo:
        assert "not running: " in demo.greeting
        assert "there is no java" in demo.greeting
        assert f"{DEV_USERNAME} / {DEV_PASSWORD}" in demo.greeting
        assert len(printed_commands(demo.greeting)) == 3
        assert requests.get(demo.url + "/readyz", timeout=60).status_code == 200
        calls = calls_of(demo.url)
        counts = {entity: calls.query(f"SELECT COUNT(Id) c FROM {entity}")[0]["c"] for entity in SIZES}
        assert all(counts[entity] >= size - 10 for entity, size in SIZES.items()), counts
        assert demo.stop() == (0, "")
    with running_demo(data, "--no-pipeline") as again:
        assert "not running: --no-pipeline" in again.greeting
        accounts = calls_of(again.url).query("SELECT COUNT(Id) c FROM Account")[0]["c"]
        assert counts["Account"] <= accounts < 2 * SIZES["Account"]
        assert again.stop() == (0, "")
    assert (data / "logs" / "server.log").read_text() == ""


def test_demo_on_a_taken_port_says_so(tmp_path: Path, server: ServerProcess) -> None:
    taken = server.http.removeprefix("http://")
    done = subprocess.run(
        [sys.executable, "-m", "tidewire.cli", "demo", "--data", str(tmp_path), "--http", taken],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "cannot listen" in done.stderr
    assert "--http" in done.stderr
    assert "doctor" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """A server with a very small company."""
    folder = tmp_path_factory.mktemp("company")
    with ServerProcess(folder / "data") as server:
        ensure_demo_org(
            calls_of(server.http), folder, Company(TODAY_MS), lambda *_: None, threading.Event(), FEW
        )
        yield server, folder


def test_company_that_is_whole_is_left_alone(company: tuple[ServerProcess, Path]) -> None:
    server, folder = company
    calls = calls_of(server.http)
    before = calls.query("SELECT COUNT(Id) c FROM Contact")[0]["c"]
    told: list[tuple[int, int]] = []
    ensure_demo_org(
        calls, folder, Company(TODAY_MS), lambda *counts: told.append(counts), threading.Event(), FEW
    )
    assert told == []
    assert calls.query("SELECT COUNT(Id) c FROM Contact")[0]["c"] == before


def test_activity_causes_every_kind_of_event(company: tuple[ServerProcess, Path]) -> None:
    server, _ = company
    calls = calls_of(server.http)
    activity = Activity(calls, Company(TODAY_MS), seed=7)
    activity.learn()
    for step in activity.steps:
        step()
    for _ in range(10):
        activity.ship()
    leads = calls.query("SELECT COUNT(Id) c FROM Lead WHERE IsConverted = TRUE")
    assert leads[0]["c"] == 1
    metadata = call_metadata(server.login(), server.http, server.org_id)
    last = calls.create("Account", {"Name": "Last of all"})
    changes = read_topic(
        server.grpc, metadata, "/data/ChangeEvents", lambda event: last in event.header["recordIds"]
    )
    headers = [event.header for event in changes]
    assert {h["changeType"] for h in headers} >= {"CREATE", "UPDATE", "DELETE", "UNDELETE"}
    assert {h["entityName"] for h in headers} >= set(SIZES)
    assert max(len(h["recordIds"]) for h in headers if h["changeType"] == "UPDATE") >= 5
    for topic in ("/event/Order_Event__e", "/event/Shipment_Event__e"):
        assert read_topic(server.grpc, metadata, topic, lambda _: True)


def test_company_is_the_same_whoever_makes_it() -> None:
    known = {"Account": ["001000000000001AAA", "001000000000002AAA"]}
    for make in (Company.account, Company.contact, Company.opportunity, Company.order):
        assert make(Company(TODAY_MS), 3, known) == make(Company(TODAY_MS), 3, known)
    names = [Company(TODAY_MS).account(number, {})["Name"] for number in range(SIZES["Account"])]
    assert len(set(names)) == len(names)
