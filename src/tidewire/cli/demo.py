"""The demo: server, activity and pipeline as one command, each in a process or thread of its own.

The server and the pipeline are child processes, so that a busy Spark cannot slow the server's loop and either
can be killed and restarted by hand to see what
happens. Whatever ends first, the children end with the parent.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from importlib.resources import files
from pathlib import Path

import click
import yaml

from tidewire.cli.activity import run_activity
from tidewire.client.login import Credentials, login
from tidewire.client.rest import RestClient
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import ConfigInvalid

_STOP_S = 20.0
_CHECK_S = 0.5


@click.command()
@click.option("--data", default="data", show_default=True, help="where server and lake are kept")
@click.option("--http", default="127.0.0.1:8080", show_default=True, help="address of the page and REST")
@click.option("--https", default="127.0.0.1:8443", show_default=True, help="the same over TLS")
@click.option("--grpc", default="127.0.0.1:7011", show_default=True, help="address of the Pub/Sub API")
@click.option("--grpc-tls", default="127.0.0.1:7443", show_default=True, help="the same over TLS")
@click.option("--no-pipeline", is_flag=True, help="leave Spark out")
def demo(data: str, http: str, https: str, grpc: str, grpc_tls: str, no_pipeline: bool) -> None:
    """Run everything together: server, page, a little live activity, and the Spark pipeline.

    Ctrl-C stops it; the next run goes on where this one stopped.
    """
    addresses = {"--http": http, "--https": https, "--grpc": grpc, "--grpc-tls": grpc_tls}
    sys.exit(_run_demo(Path(data), addresses, has_pipeline=not no_pipeline))


def _run_demo(data: Path, addresses: dict[str, str], *, has_pipeline: bool) -> int:
    """Run until Ctrl-C or SIGTERM; returns the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    flags = [part for pair in addresses.items() for part in pair]
    server = _start(
        "serve", "--dev", "--log-level", "WARNING", "--data", str(data / "server"), *flags, is_piped=True
    )
    spark: subprocess.Popen[bytes] | None = None
    try:
        ready = _read_ready(server)
        if ready is None:
            return server.wait() or 1
        credentials = Credentials(ready["http"], DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET)
        document = yaml.safe_load((files("tidewire.cli") / "invoices.yaml").read_text("utf-8"))
        RestClient(login(credentials)).call("POST", "/services/tidewire/v1/apply", document)
        threading.Thread(target=run_activity, args=(credentials, stop), daemon=True).start()
        missing = _why_no_pipeline() if has_pipeline else "left out as asked"
        if not missing:
            lake = str(data / "lake")
            spark = _start(
                "pipeline", "run", "--lake", lake, "--endpoint", ready["grpc"], "--url", ready["http"]
            )
        _greet(ready, data, missing)
        return _watch(server, spark, stop)
    finally:
        stop.set()
        for child in (spark, server):
            _end(child)


def _start(*arguments: str, is_piped: bool = False) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches only us, and we stop the children in order.
    return subprocess.Popen(
        [sys.executable, "-m", "tidewire.cli", *arguments],
        stdout=subprocess.PIPE if is_piped else subprocess.DEVNULL,
        start_new_session=True,
    )


def _read_ready(server: subprocess.Popen[bytes]) -> dict[str, str] | None:
    if server.stdout is None:
        return None
    line = server.stdout.readline()
    ready: dict[str, str] | None = json.loads(line) if line else None
    return ready


def _why_no_pipeline() -> str:
    """What is missing for the Spark pipeline, or nothing."""
    try:
        from tidewire.pipeline.spark import check_java

        check_java()
    except ImportError as error:
        return f"{error.name} is not installed (pip install 'tidewire[spark]')"
    except ConfigInvalid as error:
        return error.message
    return ""


def _greet(ready: dict[str, str], data: Path, missing: str) -> None:
    lake = "no Spark pipeline: " + missing if missing else f"Spark keeps the lake in {data / 'lake'}"
    click.echo(
        f"""
Tidewire is running.

  watch events    {ready["http"]}/
  sign in         {DEV_USERNAME} / {DEV_PASSWORD}
  REST and SOAP   {ready["http"]}  {ready["https"]}
  Pub/Sub API     {ready["grpc"]} (plain)  {ready["grpc_tls"]} (TLS)
  {lake}

Try:
  tidewire apply -f examples/invoices.yaml --dry-run --url {ready["http"]}
  tidewire pipeline status --lake {data / "lake"}
  tidewire ca --data {data / "server"}

Ctrl-C stops everything; the next run goes on from here.
"""
    )


def _watch(
    server: subprocess.Popen[bytes], spark: subprocess.Popen[bytes] | None, stop: threading.Event
) -> int:
    while not stop.wait(_CHECK_S):
        if server.poll() is not None:
            click.echo("the server has ended; stopping", err=True)
            return 1
        if spark is not None and spark.poll() is not None:
            click.echo(f"the pipeline has ended with status {spark.returncode}; the rest goes on", err=True)
            spark = None
    return 0


def _end(child: subprocess.Popen[bytes] | None) -> None:
    if child is None or child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
