"""`tidewire doctor`: what keeps server or pipeline from working here, and what to do about it."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from tidewire.cli.client_options import Connection, endpoint_option, resolve, sign_in_options
from tidewire.cli.doctor.findings import Finding, note, ok, problem
from tidewire.cli.doctor.machine import (
    check_certificates,
    check_directory,
    check_pipeline_software,
    check_ports,
)
from tidewire.cli.output import examples, printable
from tidewire.client.login import Login
from tidewire.clock import SystemClock
from tidewire.config import Settings, load_settings
from tidewire.errors import AccessDenied, ConfigInvalid, PlatformError, ServerUnreachable, StoreClosed

_REACH_S = 5.0
_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}
_EXPIRED = 10  # OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED
_START = "start it with `tidewire serve --dev`, or `tidewire demo` for everything"


@click.command(
    epilog=examples(
        "tidewire doctor",
        "tidewire doctor --data /var/lib/tidewire --http 0.0.0.0:8080",
        "tidewire doctor --url https://tidewire.example.org --ca ca.pem",
        "tidewire doctor --endpoint localhost:7011 --topic /data/ChangeEvents --json",
    )
)
@click.option("--data", default=None, help="the server's data directory")
@click.option("--store", default=None, help="sqlite or postgresql://..., as `serve` takes it")
@click.option("--http", default=None, help="the address of HTTP, as `serve` takes it")
@click.option("--https", default=None, help="the address of HTTPS")
@click.option("--grpc", default=None, help="the address of the Pub/Sub API")
@click.option("--grpc-tls", default=None, help="the address of the Pub/Sub API over TLS")
@click.option(
    "--lake", envvar="TIDEWIRE_LAKE", default="data/lake", show_default=True, help="the pipeline's directory"
)
@click.option("--topic", default="/data/ChangeEvents", show_default=True, help="what the pipeline reads")
@click.option("--no-pipeline", is_flag=True, help="leave out what only the pipeline needs")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@endpoint_option
@click.option("--profile", "profile_name", default=None, help="which profile of `tidewire login` to use")
@sign_in_options
def doctor(
    lake: str,
    topic: str,
    no_pipeline: bool,
    as_json: bool,
    endpoint: str,
    profile_name: str | None,
    data: str | None,
    store: str | None,
    http: str | None,
    https: str | None,
    grpc: str | None,
    grpc_tls: str | None,
    **given: str | None,
) -> None:
    """Look for what keeps server or pipeline from working, and say what to do.

    Checks settings, data directory, disk, ports, certificates, the server and the login, Java, and the pipeline's
    source. Ends with 1 if there is a problem. Nothing is changed.
    """
    flags = {"data": data, "store": store, "http": http, "https": https, "grpc": grpc, "grpc_tls": grpc_tls}
    findings: list[Finding] = []
    try:
        settings = load_settings(flags)
        findings.append(ok("settings", "flags, environment and tidewire.toml can be read"))
    except ConfigInvalid as error:
        findings.append(
            problem("settings", error.message, "see docs/configuration.md, or `tidewire serve --help`")
        )
        settings = Settings()
    findings += check_directory("data directory", Path(settings.data), "--data")
    findings += _check_store(settings)
    ports = check_ports(settings)
    findings += ports
    if not any(found.state == "problem" and "must be HOST:PORT" in found.told for found in ports):
        findings += check_certificates(settings, SystemClock().now_ms())
    findings += _check_service(
        settings, profile_name, given, endpoint, topic, lake, has_pipeline=not no_pipeline
    )
    _show(findings, as_json=as_json)
    if any(found.state == "problem" for found in findings):
        raise click.exceptions.Exit(1)


def _check_service(
    settings: Settings,
    profile_name: str | None,
    given: Mapping[str, str | None],
    endpoint: str,
    topic: str,
    lake: str,
    *,
    has_pipeline: bool,
) -> list[Finding]:
    """The server as a client sees it, then what the pipeline needs."""
    findings: list[Finding] = []
    try:
        connection = resolve(profile_name, **given)
    except ConfigInvalid as error:
        return [problem("profile", error.message, "see `tidewire profiles` and `tidewire login --help`")]
    is_asked_for = given["url"] is not None or bool(connection.profile)
    if not is_asked_for:
        connection = _local(connection, settings, endpoint)
    reached, login = _check_server(connection, is_asked_for=is_asked_for)
    findings += reached
    if has_pipeline:
        findings += check_pipeline_software()
        has_lake = Path(lake).is_dir()
        if has_lake:
            findings += [
                each for each in check_directory("lake", Path(lake), "--lake") if each.check == "lake"
            ]
        is_wanted = bool(endpoint) or has_lake or is_asked_for
        findings.append(_check_source(connection, endpoint, topic, login, is_wanted=is_wanted))
    return findings


def _local(connection: Connection, settings: Settings, endpoint: str) -> Connection:
    """The server that the settings describe, if no other is asked for."""
    credentials = replace(connection.credentials, login_url=f"http://{_dialled(settings.http)}")
    return replace(connection, credentials=credentials, kept_endpoint=endpoint or _dialled(settings.grpc))


def _dialled(address: str) -> str:
    """An address to listen on as one to call."""
    host, _, port = address.rpartition(":")
    return f"localhost:{port}" if host in ("0.0.0.0", "[::]", "") else address  # noqa: S104  # compared, not bound


def _check_store(settings: Settings) -> list[Finding]:
    if settings.store == "sqlite":
        return []
    from tidewire.cli.doctor.store import check_postgres  # loads the driver, if it is there

    return [check_postgres(settings.store)]


def _check_server(connection: Connection, *, is_asked_for: bool) -> tuple[list[Finding], Login | None]:
    """Whether the server answers and lets the user in; the session."""
    check = "server"
    url = connection.credentials.login_url
    if why := _why_unreachable(url, connection):
        if why[0]:
            return [problem("server certificate", *why)], None
        if is_asked_for:
            return [problem(check, why[1], f"is the address right (--url)? If it is yours, {_START}")], None
        return [note(check, f"no server is running here ({why[1]})", _START)], None
    found = [ok(check, f"{url} answers")]
    try:
        login = connection.signing_in_with_org()()
        found.append(ok("login", f"{connection.credentials.username or 'the token'} is let in"))
        return found, login
    except PlatformError as error:
        mend = "give --username and --password, or sign in with `tidewire login`"
        return [*found, problem("login", error.message, mend)], None


def _why_unreachable(url: str, connection: Connection) -> tuple[str, str] | None:
    """None if the server answers; otherwise what is wrong with its certificate and what to do, or an empty text and
    why nothing answers."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((host, port), _REACH_S) as plain:
            if parts.scheme == "https":
                context = ssl.create_default_context(cafile=connection.ca or None)
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return _explain_certificate(url, error)
    except (OSError, ValueError) as error:
        return "", f"{url} cannot be reached: {error}"
    return None


def _explain_certificate(url: str, error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    if error.verify_code == _EXPIRED:
        return (
            f"the certificate of {url} has expired",
            "start the server again: ours makes a new one; or renew it",
        )
    if "ostname mismatch" in error.verify_message or "IP address mismatch" in error.verify_message:
        return (
            f"the certificate of {url} does not name this host: {error.verify_message}",
            "use a name that it has, or start the server with --tls-host HOST",
        )
    return (
        f"the certificate of {url} is not trusted: {error.verify_message}",
        "give the authority's certificate with --ca FILE; `tidewire ca` prints where ours is",
    )


def _check_source(
    connection: Connection, endpoint: str, topic: str, login: Login | None, *, is_wanted: bool
) -> Finding:
    """Whether the pipeline could read the bus."""
    from tidewire.client.pubsub_blocking import BlockingPubSubClient  # loads gRPC

    check = "pipeline source"
    found = problem if is_wanted else note
    address, roots = connection.endpoint(endpoint)
    host, _, port = address.rpartition(":")
    reach = "start the server (`tidewire serve`), or name the Pub/Sub API with --endpoint HOST:PORT"
    if not host or not port.isdecimal():
        return problem(check, f"{address!r} is not HOST:PORT", "give --endpoint HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        return found(check, f"{address} cannot be reached: {error}", reach)
    if login is None:
        return found(
            check, f"{address} answers, but nobody is signed in", "mend server and login first, see above"
        )
    client = BlockingPubSubClient(
        address,
        token=login.token,
        org_id=login.org_id,
        instance_url=login.instance_url,
        tls_ca=roots,
        timeout_s=_REACH_S,
    )
    try:
        told = client.get_topic(topic)
    except (ServerUnreachable, StoreClosed) as error:
        return problem(check, f"{address} does not answer as the Pub/Sub API: {error.message}", reach)
    except AccessDenied as error:
        return problem(check, error.message, f"let {connection.credentials.username} read {topic}")
    except PlatformError as error:
        return problem(
            check, error.message, "`tidewire channels` lists what can be read; choose one with --topic"
        )
    finally:
        client.close()
    if not told.can_subscribe:
        return problem(
            check, f"{topic} cannot be subscribed to", f"let {connection.credentials.username} read it"
        )
    return ok(check, f"{topic} can be read at {address}")


def _show(findings: list[Finding], *, as_json: bool) -> None:
    problems = sum(found.state == "problem" for found in findings)
    if as_json:
        document: dict[str, Any] = {"is_well": not problems, "checks": [asdict(found) for found in findings]}
        click.echo(json.dumps(document, indent=2))
        return
    width = max(len(found.check) for found in findings)
    for found in findings:
        word = click.style(f"{found.state:<7}", fg=_COLOURS[found.state], bold=found.state == "problem")
        click.echo(f"{word}  {found.check:<{width}}  {printable(found.told)}")
        if found.do:
            click.echo(f"{'':7}  {'':{width}}  -> {found.do}")
    click.echo(f"\n{problems or 'no'} problem{'' if problems == 1 else 's'}")
