"""Shared by the commands of `tidewire pipeline`: options, opening the lake, and stopping.

Spark, Arrow and Delta are an optional extra, so each command imports what it needs when it is called.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from tidewire.cli.client_options import Connection, connection_options
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid, RequestRefused, SessionInvalid
from tidewire.telemetry import configure_logging

if TYPE_CHECKING:
    from tidewire.cli.pipeline_progress import Progress
    from tidewire.pipeline.lake.tables import Lake
    from tidewire.pipeline.source.bus import BusSettings
    from tidewire.pipeline.source.records_reader import RecordsReader

RETRY_S = 20.0
"""How long one request to the server is retried before the status reports it."""
_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|(spark|k8s|yarn)(://\S+)?")
_MISSING_EXTRA = "pip install 'tidewire[spark]'"

lake_option = click.option(
    "--lake",
    "lake_path",
    default="data/lake",
    show_default=True,
    envvar="TIDEWIRE_LAKE",
    type=click.Path(file_okay=False),
    help="directory of the Delta tables",
)


def check_amount(_ctx: object, _param: object, value: float | None) -> float | None:
    """Check a number of hours or days, as the callback of an option. Raises click.BadParameter."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise click.BadParameter(f"{value} is not valid: give a number of hours or days, 0 or more")
    return value


readable_option = click.option(
    "--readable-hours",
    default=168.0,
    show_default=True,
    callback=check_amount,
    help="how long past snapshot points stay readable",
)


def _check_master(text: str) -> str:
    """Check a Spark master. Raises click.BadParameter."""
    if _MASTER.fullmatch(text) is None or text in ("spark", "k8s"):
        raise click.BadParameter(
            f"{text!r} is not a Spark master: use local[N] or local[*] for threads of this process, spark://HOST:PORT "
            "for a standalone cluster, or k8s://https://HOST:PORT for Kubernetes"
        )
    return text


def parse_pairs(pairs: tuple[str, ...], what: str, prefix: str = "") -> dict[str, str]:
    """Parse settings given as NAME=VALUE, whose names begin with a prefix. Raises click.BadParameter."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, is_set, value = pair.partition("=")
        if not is_set or not key or not key.startswith(prefix):
            raise click.BadParameter(f"{pair!r} is not a {what}: use {prefix}NAME=VALUE")
        settings[key] = value
    return settings


def spark_options(default_master: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator with the options `--master` and `--conf` of a command that starts Spark."""
    master = click.option(
        "--master",
        default=default_master,
        show_default=True,
        callback=lambda _ctx, _param, value: _check_master(value),
        help="Spark master: local[N], local[*], spark://... or k8s://...",
    )
    conf = click.option(
        "--conf",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        callback=lambda _ctx, _param, value: parse_pairs(value, "Spark setting", "spark."),
        help="a Spark setting, such as spark.jars; repeatable",
    )
    return lambda command: master(conf(command))


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the server and the login, passed on as one `bus` argument."""

    @wraps(command)
    def with_bus(
        endpoint: str, topic: str, tls_ca: str | None, tls: bool, connection: Connection, **others: Any
    ) -> Any:
        return command(bus=make_bus(connection, endpoint, topic, tls_ca or "", has_tls=tls), **others)

    wrapped: Callable[..., Any] = connection_options(with_bus)
    for option in (
        click.option("--tls", is_flag=True, help="use TLS with the public certificate authorities"),
        click.option(
            "--tls-ca",
            default=None,
            type=click.Path(exists=True, dir_okay=False),
            help="certificate to trust; implies TLS",
        ),
        click.option(
            "--topic", default="/data/ChangeEvents", show_default=True, help="the channel to archive"
        ),
        click.option(
            "--endpoint",
            envvar="TIDEWIRE_ENDPOINT",
            default="",
            metavar="HOST:PORT",
            help="address of the Pub/Sub API; default: the server's host with port 7011, or 7443 with TLS",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


def make_bus(connection: Connection, endpoint: str, topic: str, tls_ca: str, *, has_tls: bool) -> BusSettings:
    """Return where events and records come from. Raises ConfigInvalid, SessionInvalid.

    A session without a password is used until it ends; its org is requested if unknown.
    """
    with needing_extra():
        from tidewire.pipeline.source.bus import BusSettings
    address, roots = connection.endpoint(endpoint)
    credentials, session = connection.credentials, connection.session
    settings = BusSettings(
        endpoint=address,
        topic=topic,
        tls_ca=tls_ca or connection.ca,
        tls=has_tls or roots is not None,
        retry_s=RETRY_S,
        login_url=credentials.login_url,
    )
    if session is not None and not credentials.password:
        try:
            session = connection.signing_in_with_org()()
        except RequestRefused as error:
            raise SessionInvalid(f"the server does not know the session: {error.message}") from error
        login_url = session.instance_url or credentials.login_url
        return replace(settings, token=session.token, org_id=session.org_id, login_url=login_url)
    return replace(
        settings,
        username=credentials.username,
        password=credentials.password,
        client_id=credentials.client_id,
        client_secret=credentials.client_secret,
    )


@contextmanager
def needing_extra() -> Iterator[None]:
    """Raise ConfigInvalid with what to install if Spark, Arrow or Delta is missing."""
    try:
        yield
    except ImportError as error:
        raise ConfigInvalid(
            f"the pipeline needs {error.name}, which is not installed: {_MISSING_EXTRA}", setting="spark"
        ) from error


def find_lake(path: str) -> Lake:
    """Return an existing lake. Raises ConfigInvalid."""
    with needing_extra():
        from tidewire.pipeline.lake.tables import Lake
    if not os.path.isdir(path):
        raise ConfigInvalid(
            f"there is no lake in {path}; create one with `tidewire pipeline run` or `snapshot`",
            setting="lake",
        )
    return Lake(path)


@contextmanager
def holding(path: str, *, is_new: bool = False) -> Iterator[tuple[Lake, int]]:
    """Hold a lake's lease; yield the lake and the epoch. Starts no Spark. Raises ConfigInvalid, StoreLocked."""
    configure_logging("WARNING")
    with needing_extra():
        from tidewire.pipeline.lake.lease import hold_lease
        from tidewire.pipeline.lake.tables import Lake
    lake = Lake(path) if is_new else find_lake(path)
    with hold_lease(path) as epoch:
        yield lake, epoch


@contextmanager
def reading(
    path: str, bus: BusSettings, *, is_new: bool = False
) -> Iterator[tuple[Lake, int, RecordsReader]]:
    """Hold a lake's lease and yield a reader of its server's records.

    Raises ConfigInvalid, StoreLocked, ReplayIdInvalid.
    """
    with holding(path, is_new=is_new) as (lake, epoch):
        from tidewire.pipeline.source.bus import Bus
        from tidewire.pipeline.source.log_origin import check_origin
        from tidewire.pipeline.source.records_reader import RecordsReader

        with closing(Bus(bus, SystemClock())) as source:
            check_origin(lake, source)
        with closing(RecordsReader(bus)) as reader:
            yield lake, epoch, reader


def make_progress() -> Progress:
    """Return a progress bar on standard error."""
    from tidewire.cli.pipeline_progress import Progress

    return Progress(sys.stderr, SystemClock())


def stop_on_signals() -> threading.Event:
    """Return an event that the first SIGTERM or SIGINT sets.

    A second signal ends the process at once, which a lake survives.
    """
    stop = threading.Event()

    def handle(number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop
