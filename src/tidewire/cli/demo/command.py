"""The demo: server, a small company's org with activity, and pipeline as one command.

The server and the pipeline are child processes, so that a busy Spark cannot slow the server's loop and either
can be killed and restarted by hand to see what happens. Whatever ends first, the children end with the parent.
A child that takes long to end is killed: server and lake are made to bear it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click

from tidewire.cli.demo.activity import run_activity
from tidewire.cli.demo.calls import DemoCalls
from tidewire.cli.demo.company import Company
from tidewire.cli.demo.org import ensure_demo_org
from tidewire.client.login import Credentials
from tidewire.clock import SystemClock
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import ConfigInvalid, PlatformError

_STOP_S = 6.0
_FINISH_S = 2.0
_CHECK_S = 0.1
_WATCH_S = 0.5
_TOLD_LINES = 5
_QUERY = "SELECT Name, Industry, Rating FROM Account WHERE Rating = 'Hot' LIMIT 5"
_PROGRAM = (sys.executable, "-m", "tidewire.cli")


@click.command()
@click.option("--data", default="data", show_default=True, help="where server and lake are kept")
@click.option("--http", default="127.0.0.1:8080", show_default=True, help="address of the console and REST")
@click.option("--https", default="127.0.0.1:8443", show_default=True, help="the same over TLS")
@click.option("--grpc", default="127.0.0.1:7011", show_default=True, help="address of the Pub/Sub API")
@click.option("--grpc-tls", default="127.0.0.1:7443", show_default=True, help="the same over TLS")
@click.option("--no-pipeline", is_flag=True, help="leave Spark out")
def demo(data: str, http: str, https: str, grpc: str, grpc_tls: str, no_pipeline: bool) -> None:
    """Run everything together: server, console, a small company at work, and the Spark pipeline.

    The first run makes the company's records. Ctrl-C stops everything; the next run goes on where this one stopped.

    \b
    Examples:
      tidewire demo
      tidewire demo --data /var/tmp/demo --http 127.0.0.1:9090 --no-pipeline
    """
    addresses = {"--http": http, "--https": https, "--grpc": grpc, "--grpc-tls": grpc_tls}
    sys.exit(_run_demo(Path(data), addresses, has_pipeline=not no_pipeline))


class _Told:
    """What signals have asked for: to stop, and, by a second one, not to wait for anybody."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.at_once = threading.Event()
        # A terminal that is closed says so by the last: without it, server and Spark would outlive us.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Under nohup we are to outlive the terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._hear)

    def _hear(self, *_: object) -> None:
        (self.at_once if self.stop.is_set() else self.stop).set()


def _run_demo(data: Path, addresses: dict[str, str], *, has_pipeline: bool) -> int:
    """Run until Ctrl-C or SIGTERM; returns the exit status. Raises ConfigInvalid."""
    told = _Told()
    stop = told.stop
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigInvalid(
            f"{data} cannot be made or written to: {error.strerror}; name another place with --data",
            setting="data",
        ) from error
    flags = [part for pair in addresses.items() for part in pair]
    server_log, pipeline_log = data / "logs" / "server.log", data / "logs" / "pipeline.log"
    lake = data / "lake"
    lake_flags = ("--pipeline-dir", str(lake))
    server = _start(
        ["serve", "--dev", "--log-level", "WARNING", "--data", str(data / "server"), *lake_flags, *flags],
        server_log,
    )
    spark: subprocess.Popen[bytes] | None = None
    acting: threading.Thread | None = None
    try:
        _say("starting the server")
        ready = _read_ready(server)
        if ready is None:
            status = server.wait() or 1
            if stop.is_set():
                return 0
            click.echo(f"the server did not start:\n{_tail(server_log)}", err=True)
            click.echo(
                f"hint: `{_program()} doctor` tells what is in the way; --data, --http, --https, --grpc and --grpc-tls "
                "choose another place and other ports",
                err=True,
            )
            return status
        credentials = Credentials(ready["http"], DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET)
        try:
            _fill(credentials, data, stop)
        except PlatformError as error:
            click.echo(f"the demo's records could not be made: {error.message}", err=True)
            return 1
        if stop.is_set():
            return 0
        missing = _why_no_pipeline() if has_pipeline else "left out as asked"
        if not missing:
            spark = _start(
                ["pipeline", "run", "--lake", str(lake), "--endpoint", ready["grpc"], "--url", ready["http"]],
                pipeline_log,
            )
        acting = threading.Thread(target=run_activity, args=(credentials, stop), daemon=True)
        acting.start()
        _greet(ready, data, missing)
        return _watch(server, spark, stop, server_log, pipeline_log)
    finally:
        stop.set()
        # Here, not in the handler: writing is not safe in the middle of anything.
        _say("stopping; Ctrl-C once more stops at once")
        # In this order nobody speaks to somebody who has gone: first who writes, then who reads, then the server.
        if acting is not None:
            acting.join(_FINISH_S)
        for child in (spark, server):
            _end(child, told.at_once)


def _say(text: str) -> None:
    """For whoever watches a terminal; files and pipes get the greeting and errors only."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def _program() -> str:
    """What to type for `tidewire` in another terminal: it may not be on the path there, as after `make run`."""
    beside = Path(sys.executable).with_name("tidewire")
    found = shutil.which("tidewire")
    if found is not None and (not beside.exists() or Path(found).resolve() == beside.resolve()):
        return "tidewire"
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m tidewire.cli"
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def _start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches only us, and we stop the children in order.
    with log.open("ab") as messages:
        return subprocess.Popen(
            [*_PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if arguments[0] == "serve" else subprocess.DEVNULL,
            stderr=messages,
            start_new_session=True,
        )


def _read_ready(server: subprocess.Popen[bytes]) -> dict[str, str] | None:
    if server.stdout is None:
        return None
    line = server.stdout.readline()
    ready: dict[str, str] | None = json.loads(line) if line else None
    return ready


def _fill(credentials: Credentials, data: Path, stop: threading.Event) -> None:
    """Make the company's records, or what is missing of them, with a bar for whoever watches."""
    calls, company = DemoCalls(credentials), Company(SystemClock().now_ms())
    ensure_demo_org(calls, data, company, _progress(sys.stderr), stop)


def _progress(stream: IO[str]) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if stream.isatty():
            filled = 30 * done // total
            bar = "#" * filled + "." * (30 - filled)
            end = "\n" if done == total else ""
            stream.write(f"\rmaking a small company's records [{bar}] {done:,} of {total:,}{end}")
            stream.flush()

    return tell


def _why_no_pipeline() -> str:
    """What is missing for the Spark pipeline, or nothing."""
    try:
        from tidewire.pipeline.driver.run import run_pipeline  # noqa: F401  # needs all that the pipeline needs
        from tidewire.pipeline.spark import check_java

        check_java()
    except ImportError as error:
        return f"{error.name} is not installed (pip install 'tidewire[spark]')"
    except ConfigInvalid as error:
        return error.message
    return ""


def _greet(ready: dict[str, str], data: Path, missing: str) -> None:
    lake = f"no Spark: {missing}" if missing else f"Spark keeps history and replicas in {data / 'lake'}"
    url, endpoint = ready["http"], ready["grpc"]
    program, kept = _program(), shlex.quote(str(data / "lake"))
    click.echo(
        f"""
Tidewire is running, with a small company at work in it.

  console         {url}/
  sign in         {DEV_USERNAME} / {DEV_PASSWORD}
  REST and SOAP   {url}  {ready["https"]}
  Streaming API   {url}/cometd/67.0
  Pub/Sub API     {endpoint} (plain)  {ready["grpc_tls"]} (TLS)
  metrics         {url}/metrics
  pipeline        {lake}
  logs            {data / "logs"}

Three commands to try, in another terminal in this folder:

  {program} subscribe /data/ChangeEvents --url {url}
  {program} query "{_QUERY}" --url {url}
  {program} {f"status --url {url}" if missing else f"pipeline status --lake {kept}"}

Ctrl-C stops everything; the next run goes on from here."""
    )


def _watch(
    server: subprocess.Popen[bytes],
    spark: subprocess.Popen[bytes] | None,
    stop: threading.Event,
    server_log: Path,
    pipeline_log: Path,
) -> int:
    while not stop.wait(_WATCH_S):
        if server.poll() is not None:
            click.echo(f"the server has ended; stopping\n{_tail(server_log)}", err=True)
            return 1
        if spark is not None and spark.poll() is not None:
            click.echo(
                f"the pipeline has ended with status {spark.returncode}; the rest goes on\n{_tail(pipeline_log)}",
                err=True,
            )
            spark = None
    return 0


def _tail(log: Path) -> str:
    """The last lines of a log, for a terminal."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return "\n".join("  " + line[:500] for line in lines[-_TOLD_LINES:])


def _end(child: subprocess.Popen[bytes] | None, at_once: threading.Event) -> None:
    if child is None or child.poll() is not None:
        return
    child.terminate()
    clock = SystemClock()
    until_s = clock.monotonic_s() + _STOP_S
    while child.poll() is None and clock.monotonic_s() < until_s and not at_once.wait(_CHECK_S):
        pass
    if child.poll() is None:
        # Its session holds what it has started itself, such as Spark's Java.
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
