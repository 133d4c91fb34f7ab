"""`tidewire subscribe`: print events as they arrive, over CometD or the Pub/Sub API."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import click

from tidewire.cli.client_options import Connection, check_version, connection_options, endpoint_option
from tidewire.cli.event_lines import COLOURS, decoded_data, json_line, text_line, wants_colour
from tidewire.cli.output import examples, printable
from tidewire.client.cometd import ALL_EVENTS, NEW_EVENTS, CometdClient
from tidewire.client.pubsub_cursors import Preset
from tidewire.client.rest import USUAL_VERSION

_WORDS = {"new": NEW_EVENTS, "latest": NEW_EVENTS, "all": ALL_EVENTS, "earliest": ALL_EVENTS}
_RESPONSE_S = 3.0
_KEEPALIVE_MS = 200

Show = Callable[[str, int | None, dict[str, Any]], None]


class _Seen(NamedTuple):
    channel: str
    replay_id: int | None
    data: dict[str, Any]


class _ReplayType(click.ParamType[int | bytes]):
    """A start position: a word, a number, or the bytes of a replay id."""

    name = "replay"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | bytes:
        if not isinstance(value, str):
            return int(value)
        text = value.lower()
        if text in _WORDS:
            return _WORDS[text]
        try:
            if text.startswith("0x"):
                return bytes.fromhex(text[2:])
            number = int(text)
        except ValueError:
            self.fail(f"{value!r} is not new, all, or a replay id", param, ctx)
        if number < ALL_EVENTS:
            self.fail(f"{number} is not in the range x>={ALL_EVENTS}", param, ctx)
        return number


@click.command(
    epilog=examples(
        "tidewire subscribe /topic/InvoiceStatementUpdates",
        "tidewire subscribe /data/ChangeEvents --replay all --count 10",
        "tidewire subscribe /data/AccountChangeEvent --protocol pubsub --json",
        "tidewire subscribe /event/Order_Event__e /u/Broadcast --replay 454941445455872",
        "tidewire subscribe \"/topic/BigAccounts?Industry='Energy'\"",
        "tidewire subscribe --managed Nightly_Load --json",
    )
)
@click.argument("channels", metavar="CHANNEL...", nargs=-1)
@click.option(
    "--protocol",
    type=click.Choice(["cometd", "pubsub"]),
    default="cometd",
    show_default=True,
    help="cometd, or pubsub (gRPC), which has platform and change events only",
)
@click.option(
    "--replay",
    type=_ReplayType(),
    default=NEW_EVENTS,
    show_default=True,
    help="-1 or new; -2 or all (every retained event); or the replay id to start after, as 0x... bytes with pubsub",
)
@click.option(
    "--managed",
    default="",
    help="name of a managed subscription (gRPC), instead of channels; it resumes after the last printed event",
)
@click.option("--count", type=click.IntRange(min=1), default=None, help="stop after this many events")
@click.option("--json", "as_json", is_flag=True, help="print one JSON line per event")
@click.option("--color", type=click.Choice(COLOURS), default="auto", show_default=True, help="use colours")
@click.option(
    "--api-version",
    default=USUAL_VERSION,
    show_default=True,
    callback=lambda _ctx, _param, value: check_version(value),
    help="API version; it decides the format of messages",
)
@endpoint_option
@connection_options
def subscribe(
    channels: tuple[str, ...],
    protocol: str,
    replay: int | bytes,
    managed: str,
    count: int | None,
    as_json: bool,
    color: str,
    api_version: str,
    endpoint: str,
    connection: Connection,
) -> None:
    """Print events of channels as they arrive, until Ctrl-C.

    Reconnects after server restarts and expired sessions. Reports each subscription on standard error. Quote a
    channel that has a filter.
    """
    if bool(channels) == bool(managed):
        raise click.UsageError(
            "Missing argument 'CHANNEL...'." if not channels else "--managed cannot be combined with CHANNEL"
        )
    if protocol == "pubsub":
        for channel in channels:
            if channel.startswith(("/topic/", "/u/")):
                raise click.UsageError(
                    f"the Pub/Sub API has platform and change events only; use --protocol cometd for {channel}"
                )
    colour = wants_colour(color)

    def show(channel: str, replay_id: int | None, data: dict[str, Any]) -> None:
        line = json_line(channel, data) if as_json else text_line(channel, replay_id, data)
        click.echo(line, color=colour)

    if managed:
        asyncio.run(_run_until_signal(_watch_managed(connection, endpoint, managed, count, show)))
    elif protocol == "pubsub":
        asyncio.run(_run_until_signal(_watch_pubsub(connection, endpoint, channels, replay, count, show)))
    elif isinstance(replay, bytes):
        raise click.UsageError("a replay id in bytes needs --protocol pubsub; pass a number for CometD")
    else:
        sign_in = connection.signing_in()
        # Sign in here, so that a wrong password or address fails at once instead of being retried forever.
        first = [sign_in()]
        client = CometdClient(
            lambda: first.pop() if first else sign_in(), api_version=api_version, tls_ca=connection.tls_ca
        )
        asyncio.run(_run_until_signal(_watch_cometd(client, channels, replay, count, show)))


async def _run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        # Ctrl-C is the normal end of this command.
        return
    except BrokenPipeError:
        # The reader of the pipe is gone. Python would fail again on its flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _watch_cometd(
    client: CometdClient, channels: tuple[str, ...], replay: int, count: int | None, show: Show
) -> None:
    async with client:
        for channel in channels:
            await client.subscribe(channel, replay)
            _report_subscribed(channel)
        seen = 0
        async for event in client:
            show(event.channel, event.replay_id, event.data)
            seen += 1
            if seen == count:
                return


async def _watch_pubsub(
    connection: Connection,
    endpoint: str,
    channels: tuple[str, ...],
    replay: int | bytes,
    count: int | None,
    show: Show,
) -> None:
    from tidewire.client.pubsub import PubSubClient  # gRPC takes longer to load than most commands run

    presets: dict[int | bytes, Preset] = {NEW_EVENTS: "latest", ALL_EVENTS: "earliest"}
    address, roots = await connection.reach_pubsub(endpoint)
    queue: asyncio.Queue[_Seen] = asyncio.Queue(1000)

    async def forward(channel: str, events: AsyncIterator[Any]) -> None:
        async for event in events:
            data = decoded_data(event)
            await queue.put(_Seen(channel, data["event"]["replayId"], data))

    async def print_all() -> None:
        seen = 0
        while seen != count:
            show(*await queue.get())
            seen += 1

    async with PubSubClient(address, connection.signing_in_with_org(), tls_ca=roots) as client:
        subscriptions = []
        for channel in channels:
            await client.get_topic(channel)  # fails at once if unknown or forbidden
            start = presets.get(replay, replay)
            subscription = client.subscribe(channel, start, keepalive_ms=_KEEPALIVE_MS)
            subscriptions.append((channel, subscription))
            await subscription.wait_answered(_RESPONSE_S)
            _report_subscribed(channel)
        printing = asyncio.ensure_future(print_all())
        tasks = {printing, *(asyncio.ensure_future(forward(*each)) for each in subscriptions)}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _watch_managed(
    connection: Connection, endpoint: str, name: str, count: int | None, show: Show
) -> None:
    from tidewire.client.pubsub import PubSubClient  # as above

    address, roots = await connection.reach_pubsub(endpoint)
    async with PubSubClient(address, connection.signing_in_with_org(), tls_ca=roots) as client:
        subscription = client.subscribe_managed(name, keepalive_ms=_KEEPALIVE_MS)
        _report_subscribed(name)
        seen = 0
        async for event in subscription:
            data = decoded_data(event)
            show(name, data["event"]["replayId"], data)
            sys.stdout.flush()
            await subscription.commit(event.replay_id)
            seen += 1
            if seen == count:
                return


def _report_subscribed(channel: str) -> None:
    click.echo(f"subscribed to {printable(channel)}", err=True)
