"""`tidewire demo`: run server, console, sample data and pipeline together.

The server and the pipeline are child processes, so that a busy Spark cannot slow the server's loop, and either can be
killed by hand to see what happens. The children end with the parent. A child that does not stop in time is killed,
which server and lake survive.
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
_TAIL_LINES = 5
_QUERY = "SELECT Name, Industry, Rating FROM Account WHERE Rating = 'Hot' LIMIT 5"
_PROGRAM = (sys.executable, "-m", "tidewire.cli")


@click.command()
@click.option("--data", default="data", show_default=True, help="directory of server and lake")
@click.option("--http", default="127.0.0.1:8080", show_default=True, help="address of console and REST API")
@click.option("--https", default="127.0.0.1:8443", show_default=True, help="the same, over TLS")
@click.option("--grpc", default="127.0.0.1:7011", show_default=True, help="address of the Pub/Sub API")
@click.option("--grpc-tls", default="127.0.0.1:7443", show_default=True, help="the same, over TLS")
@click.option("--no-pipeline", is_flag=True, help="run without Spark")
def demo(data: str, http: str, https: str, grpc: str, grpc_tls: str, no_pipeline: bool) -> None:
    """Run the server, console, sample data and pipeline together.

    The first run creates the records of a sample company, whose activity is then simulated. Ctrl-C stops everything;
    the next run continues with the same data.

    \b
    Examples:
      tidewire demo
      tidewire demo --data /var/tmp/demo --http 127.0.0.1:9090 --no-pipeline
    """
    addresses = {"--http": http, "--https": https, "--grpc": grpc, "--grpc-tls": grpc_tls}
    sys.exit(_run_demo(Path(data), addresses, has_pipeline=not no_pipeline))


class _StopSignals:
    """Stop requests: the first signal asks to stop, a second one to stop without waiting."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.at_once = threading.Event()
        # A closed terminal sends SIGHUP; without a handler, server and Spark would outlive us.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Under nohup, SIGHUP stays ignored.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, *_: object) -> None:
        (self.at_once if self.stop.is_set() else self.stop).set()


def _run_demo(data: Path, addresses: dict[str, str], *, has_pipeline: bool) -> int:
    """Run until Ctrl-C or SIGTERM; return the exit status. Raises ConfigInvalid."""
    signals = _StopSignals()
    stop = signals.stop
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigInvalid(
            f"cannot create or write {data}: {error.strerror}; choose another directory with --data",
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
    activity: threading.Thread | None = None
    try:
        _say("starting the server")
        ready = _read_ready(server)
        if ready is None:
            status = server.wait() or 1
            if stop.is_set():
                return 0
            click.echo(f"the server did not start:\n{_tail(server_log)}", err=True)
            click.echo(
                f"hint: run `{_program()} doctor` to find the cause; choose another directory with --data, and other "
                "ports with --http, --https, --grpc and --grpc-tls",
                err=True,
            )
            return status
        credentials = Credentials(ready["http"], DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET)
        try:
            _fill(credentials, data, stop)
        except PlatformError as error:
            click.echo(f"cannot create the sample records: {error.message}", err=True)
            return 1
        if stop.is_set():
            return 0
        missing = _why_no_pipeline() if has_pipeline else "--no-pipeline"
        if not missing:
            spark = _start(
                ["pipeline", "run", "--lake", str(lake), "--endpoint", ready["grpc"], "--url", ready["http"]],
                pipeline_log,
            )
        activity = threading.Thread(target=run_activity, args=(credentials, stop), daemon=True)
        activity.start()
        _greet(ready, data, missing)
        return _watch(server, spark, stop, server_log, pipeline_log)
    finally:
        stop.set()
        # Not in the signal handler, where writing is unsafe.
        _say("stopping; press Ctrl-C again to stop at once")
        # Stop the clients before the server: first the writer, then the pipeline.
        if activity is not None:
            activity.join(_FINISH_S)
        for child in (spark, server):
            _end(child, signals.at_once)


def _say(text: str) -> None:
    """Print progress on a terminal; files and pipes get only the greeting and errors."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def _program() -> str:
    """Return how to run `tidewire` in another terminal, where it may not be on the path (as after `make run`)."""
    beside = Path(sys.executable).with_name("tidewire")
    found = shutil.which("tidewire")
    if found is not None and (not beside.exists() or Path(found).resolve() == beside.resolve()):
        return "tidewire"
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m tidewire.cli"
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def _start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    # In their own session, the children do not get Ctrl-C; we stop them in order.
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
    """Create the sample records that are missing, with a progress bar on a terminal."""
    calls, company = DemoCalls(credentials), Company(SystemClock().now_ms())
    ensure_demo_org(calls, data, company, _progress(sys.stderr), stop)


def _progress(stream: IO[str]) -> Callable[[int, int], None]:
    def show(done: int, total: int) -> None:
        if stream.isatty():
            filled = 30 * done // total
            bar = "#" * filled + "." * (30 - filled)
            end = "\n" if done == total else ""
            stream.write(f"\rcreating sample records [{bar}] {done:,} of {total:,}{end}")
            stream.flush()

    return show


def _why_no_pipeline() -> str:
    """Return why the Spark pipeline cannot run, or an empty text."""
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
    lake = f"not running: {missing}" if missing else f"writing history and replicas to {data / 'lake'}"
    url, endpoint = ready["http"], ready["grpc"]
    program, lake_path = _program(), shlex.quote(str(data / "lake"))
    click.echo(
        f"""
Tidewire is running with sample data and simulated activity.

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
  {program} {f"status --url {url}" if missing else f"pipeline status --lake {lake_path}"}

Press Ctrl-C to stop; the next run continues with the same data."""
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
            click.echo(f"the server has stopped; stopping the demo\n{_tail(server_log)}", err=True)
            return 1
        if spark is not None and spark.poll() is not None:
            click.echo(
                f"the pipeline stopped with exit status {spark.returncode}; the server keeps running\n"
                + _tail(pipeline_log),
                err=True,
            )
            spark = None
    return 0


def _tail(log: Path) -> str:
    """Return the last lines of a log, shortened for a terminal."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return "\n".join("  " + line[:500] for line in lines[-_TAIL_LINES:])


def _end(child: subprocess.Popen[bytes] | None, at_once: threading.Event) -> None:
    if child is None or child.poll() is not None:
        return
    child.terminate()
    clock = SystemClock()
    until_s = clock.monotonic_s() + _STOP_S
    while child.poll() is None and clock.monotonic_s() < until_s and not at_once.wait(_CHECK_S):
        pass
    if child.poll() is None:
        # The child leads a process group that includes its own children, such as Spark's Java.
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
