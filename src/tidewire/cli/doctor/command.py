"""`tidewire doctor`: diagnose server and pipeline, and suggest fixes."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from tidewire.cli.client_options import Connection, endpoint_option, resolve, sign_in_options
from tidewire.cli.doctor.machine import (
    Finding,
    check_certificates,
    check_directory,
    check_pipeline_software,
    check_ports,
    check_postgres,
    note,
    ok,
    problem,
)
from tidewire.cli.output import examples, printable
from tidewire.client.login import Login
from tidewire.clock import SystemClock
from tidewire.config import Settings, load_settings
from tidewire.errors import AccessDenied, ConfigInvalid, PlatformError, ServerUnreachable, StoreClosed

_CONNECT_S = 5.0
_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}
_EXPIRED = 10  # OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED
_START = "start one with `tidewire serve --dev` or `tidewire demo`"


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
@click.option("--http", default=None, help="address of HTTP, as for `serve`")
@click.option("--https", default=None, help="address of HTTPS")
@click.option("--grpc", default=None, help="address of the Pub/Sub API")
@click.option("--grpc-tls", default=None, help="address of the Pub/Sub API over TLS")
@click.option(
    "--lake", envvar="TIDEWIRE_LAKE", default="data/lake", show_default=True, help="the pipeline's directory"
)
@click.option(
    "--topic", default="/data/ChangeEvents", show_default=True, help="the topic that the pipeline reads"
)
@click.option("--no-pipeline", is_flag=True, help="skip the checks for the pipeline")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@endpoint_option
@click.option("--profile", "profile_name", default=None, help="profile of `tidewire login` to use")
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
    """Diagnose server and pipeline, and suggest fixes.

    Checks settings, data directory, disk, ports, certificates, server, login, Java and the pipeline's source. Exits
    with 1 if there is a problem. Changes nothing.
    """
    flags = {"data": data, "store": store, "http": http, "https": https, "grpc": grpc, "grpc_tls": grpc_tls}
    findings: list[Finding] = []
    try:
        settings = load_settings(flags)
        findings.append(ok("settings", "flags, environment and tidewire.toml are valid"))
    except ConfigInvalid as error:
        findings.append(
            problem("settings", error.message, "see docs/configuration.md, or `tidewire serve --help`")
        )
        settings = Settings()
    findings += check_directory("data directory", Path(settings.data), "--data")
    findings += _check_store(settings)
    ports = check_ports(settings)
    findings += ports
    if not any(found.state == "problem" and "must be HOST:PORT" in found.message for found in ports):
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
    """Check the server as a client, then what the pipeline needs."""
    findings: list[Finding] = []
    try:
        connection = resolve(profile_name, **given)
    except ConfigInvalid as error:
        return [problem("profile", error.message, "see `tidewire profiles` and `tidewire login --help`")]
    is_named = given["url"] is not None or bool(connection.profile)
    if not is_named:
        connection = _local(connection, settings, endpoint)
    reached, login = _check_server(connection, is_named=is_named)
    findings += reached
    if has_pipeline:
        findings += check_pipeline_software()
        has_lake = Path(lake).is_dir()
        if has_lake:
            findings += [
                each for each in check_directory("lake", Path(lake), "--lake") if each.check == "lake"
            ]
        is_wanted = bool(endpoint) or has_lake or is_named
        findings.append(_check_source(connection, endpoint, topic, login, is_wanted=is_wanted))
    return findings


def _local(connection: Connection, settings: Settings, endpoint: str) -> Connection:
    """Return a connection to the server that the settings describe."""
    credentials = replace(connection.credentials, login_url=f"http://{_client_address(settings.http)}")
    return replace(
        connection, credentials=credentials, saved_endpoint=endpoint or _client_address(settings.grpc)
    )


def _client_address(address: str) -> str:
    """Return the address at which a client reaches a listener."""
    host, _, port = address.rpartition(":")
    return f"localhost:{port}" if host in ("0.0.0.0", "[::]", "") else address  # noqa: S104  # compared, not bound


def _check_store(settings: Settings) -> list[Finding]:
    return [] if settings.store == "sqlite" else [check_postgres(settings.store)]


def _check_server(connection: Connection, *, is_named: bool) -> tuple[list[Finding], Login | None]:
    """Check that the server is reachable and the user can sign in; return the session too."""
    check = "server"
    url = connection.credentials.login_url
    if why := _why_unreachable(url, connection):
        if why[0]:
            return [problem("server certificate", *why)], None
        if is_named:
            return [
                problem(check, why[1], f"check the address (--url); for a server on this machine, {_START}")
            ], None
        return [note(check, f"no server is running on this machine ({why[1]})", _START)], None
    found = [ok(check, f"{url} is reachable")]
    try:
        login = connection.signing_in_with_org()()
        found.append(
            ok("login", f"signed in as {connection.credentials.username or 'the owner of the token'}")
        )
        return found, login
    except PlatformError as error:
        fix = "pass --username and --password, or sign in with `tidewire login`"
        return [*found, problem("login", error.message, fix)], None


def _why_unreachable(url: str, connection: Connection) -> tuple[str, str] | None:
    """Return None if the server is reachable, a certificate problem and its fix, or an empty text and the reason."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((host, port), _CONNECT_S) as plain:
            if parts.scheme == "https":
                context = ssl.create_default_context(cafile=connection.ca or None)
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return _explain_certificate(url, error)
    except (OSError, ValueError) as error:
        return "", f"cannot reach {url}: {error}"
    return None


def _explain_certificate(url: str, error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    if error.verify_code == _EXPIRED:
        return (
            f"the certificate of {url} has expired",
            "renew it; a Tidewire server creates a new one when it restarts",
        )
    if "ostname mismatch" in error.verify_message or "IP address mismatch" in error.verify_message:
        return (
            f"the certificate of {url} is for another host: {error.verify_message}",
            "use a host name in the certificate, or start the server with --tls-host HOST",
        )
    return (
        f"the certificate of {url} is not trusted: {error.verify_message}",
        "pass the CA certificate with --ca FILE; `tidewire ca` prints its path",
    )


def _check_source(
    connection: Connection, endpoint: str, topic: str, login: Login | None, *, is_wanted: bool
) -> Finding:
    """Check that the pipeline can read its topic."""
    from tidewire.client.pubsub_blocking import BlockingPubSubClient  # loads gRPC

    check = "pipeline source"
    found = problem if is_wanted else note
    address, roots = connection.endpoint(endpoint)
    host, _, port = address.rpartition(":")
    reach = "start the server (`tidewire serve`), or set the Pub/Sub API's address with --endpoint HOST:PORT"
    if not host or not port.isdecimal():
        return problem(check, f"{address!r} is not HOST:PORT", "pass --endpoint HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        return found(check, f"cannot reach {address}: {error}", reach)
    if login is None:
        return found(
            check, f"{address} is reachable, but sign-in failed", "fix server and login first, see above"
        )
    client = BlockingPubSubClient(
        address,
        token=login.token,
        org_id=login.org_id,
        instance_url=login.instance_url,
        tls_ca=roots,
        timeout_s=_CONNECT_S,
    )
    try:
        found_topic = client.get_topic(topic)
    except (ServerUnreachable, StoreClosed) as error:
        return problem(check, f"{address} is not a Pub/Sub API: {error.message}", reach)
    except AccessDenied as error:
        return problem(check, error.message, f"give {connection.credentials.username} read access to {topic}")
    except PlatformError as error:
        return problem(
            check, error.message, "choose another topic with --topic; `tidewire channels` lists them"
        )
    finally:
        client.close()
    if not found_topic.can_subscribe:
        return problem(
            check, f"no access to {topic}", f"give {connection.credentials.username} read access to it"
        )
    return ok(check, f"{topic} is readable at {address}")


def _show(findings: list[Finding], *, as_json: bool) -> None:
    problems = sum(found.state == "problem" for found in findings)
    if as_json:
        checks = [
            {"check": found.check, "state": found.state, "told": found.message, "do": found.fix}
            for found in findings
        ]
        click.echo(json.dumps({"is_well": not problems, "checks": checks}, indent=2))
        return
    width = max(len(found.check) for found in findings)
    for found in findings:
        word = click.style(f"{found.state:<7}", fg=_COLOURS[found.state], bold=found.state == "problem")
        click.echo(f"{word}  {found.check:<{width}}  {printable(found.message)}")
        if found.fix:
            click.echo(f"{'':7}  {'':{width}}  -> {found.fix}")
    click.echo(f"\n{problems or 'no'} problem{'' if problems == 1 else 's'}")
