"""`tidewire subscribe`: the events of channels on standard output, as they come."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import click

from tidewire.cli.client_options import credentials_options
from tidewire.cli.output import printable
from tidewire.client.cometd import ALL_EVENTS, NEW_EVENTS, CometdClient, ReceivedEvent
from tidewire.client.login import Credentials, Login
from tidewire.client.login import login as sign_in


@click.command()
@click.argument("channels", metavar="CHANNEL...", nargs=-1, required=True)
@click.option(
    "--replay",
    type=click.IntRange(min=ALL_EVENTS),
    default=NEW_EVENTS,
    show_default=True,
    help="-1 new events, -2 all that are kept, or the replay id after which to begin",
)
@click.option("--count", type=click.IntRange(min=1), default=None, help="end after so many events")
@click.option("--json", "as_json", is_flag=True, help="print each message as one line of JSON")
@click.option(
    "--api-version",
    default="67.0",
    show_default=True,
    help="the version in the address; it decides the form of messages",
)
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="a certificate to trust for an https address, see `tidewire ca`",
)
@credentials_options
def subscribe(
    channels: tuple[str, ...],
    replay: int,
    count: int | None,
    as_json: bool,
    api_version: str,
    ca: Path | None,
    credentials: Credentials,
) -> None:
    """Print the events of one or more channels until Ctrl-C, over server restarts and ended logins.

    Says on standard error when a channel is subscribed to. Quote a channel with a filter.

    Example: tidewire subscribe /topic/InvoiceStatementUpdates --replay -2 --json
    """
    try:
        is_version = float(api_version) > 0 and api_version.endswith(".0")
    except ValueError:
        is_version = False
    if not is_version:
        raise click.BadParameter(f"{api_version!r} is not of the form 67.0", param_hint="--api-version")
    tls_ca = ca.read_bytes() if ca is not None else None
    # Here, so that a wrong password or address is told at once instead of being tried for ever.
    first = [sign_in(credentials, tls_ca)]

    def sign_in_again() -> Login:
        return first.pop() if first else sign_in(credentials, tls_ca)

    client = CometdClient(sign_in_again, api_version=api_version, tls_ca=tls_ca)
    asyncio.run(_watch(client, channels, replay, count, as_json=as_json))


async def _watch(
    client: CometdClient, channels: tuple[str, ...], replay: int, count: int | None, *, as_json: bool
) -> None:
    watching = asyncio.current_task()
    if watching is None:
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, watching.cancel)
    try:
        async with client:
            for channel in channels:
                await client.subscribe(channel, replay)
                click.echo(f"subscribed to {printable(channel)}", err=True)
            seen = 0
            async for event in client:
                _print(event, as_json=as_json)
                seen += 1
                if seen == count:
                    return
    except asyncio.CancelledError:
        # Ctrl-C is how this command is meant to end.
        return
    except BrokenPipeError:
        # Whoever read our output has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(event: ReceivedEvent, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"channel": event.channel, "data": event.data}))
        return
    replay_id = "-" if event.replay_id is None else str(event.replay_id)
    click.echo(f"{replay_id}  {printable(event.channel)}  {printable(_outline(event.data))}")


def _outline(data: dict[str, object]) -> str:
    """What happened, and the record or payload it happened to, on one line."""
    event = data.get("event")
    kind = event.get("type") if isinstance(event, dict) else None
    payload = data.get("payload")
    if kind is None and isinstance(payload, dict):
        header = payload.get("ChangeEventHeader")
        kind = header.get("changeType") if isinstance(header, dict) else None
    body = payload if "payload" in data else data.get("sobject")
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return f"{kind} {text}" if kind else text
