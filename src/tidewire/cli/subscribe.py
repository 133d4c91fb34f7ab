"""`tidewire subscribe`: the events of channels on standard output, as they come, over CometD or the Pub/Sub API."""

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
from tidewire.cli.reaching import reach
from tidewire.client.cometd import ALL_EVENTS, NEW_EVENTS, CometdClient
from tidewire.client.pubsub_cursors import Preset
from tidewire.client.rest import USUAL_VERSION

_WORDS = {"new": NEW_EVENTS, "latest": NEW_EVENTS, "all": ALL_EVENTS, "earliest": ALL_EVENTS}
_ANSWER_S = 3.0
_KEEPALIVE_MS = 200

Show = Callable[[str, int | None, dict[str, Any]], None]


class _Seen(NamedTuple):
    channel: str
    replay_id: int | None
    data: dict[str, Any]


class _ReplayType(click.ParamType[int | bytes]):
    """Where to begin: a word, a number, or the bytes of a replay id."""

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
    help="how to ask: Bayeux, or gRPC, which has platform and change events only",
)
@click.option(
    "--replay",
    type=_ReplayType(),
    default=NEW_EVENTS,
    show_default=True,
    help="-1 or new, -2 or all that are kept, or the replay id after which to begin; 0x... for its bytes over gRPC",
)
@click.option(
    "--managed",
    default="",
    help="a managed subscription over gRPC instead of channels; it goes on after what was printed last",
)
@click.option("--count", type=click.IntRange(min=1), default=None, help="end after so many events")
@click.option("--json", "as_json", is_flag=True, help="print each message as one line of JSON")
@click.option(
    "--color", type=click.Choice(COLOURS), default="auto", show_default=True, help="colours in the output"
)
@click.option(
    "--api-version",
    default=USUAL_VERSION,
    show_default=True,
    callback=lambda _ctx, _param, value: check_version(value),
    help="the version in the address; it decides the form of messages",
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
    """Print the events of channels as they come, until Ctrl-C.

    Goes on over server restarts and ended logins. Says on standard error when a channel is subscribed to. Quote a
    channel with a filter.
    """
    if bool(channels) == bool(managed):
        raise click.UsageError(
            "Missing argument 'CHANNEL...'." if not channels else "--managed goes without CHANNEL"
        )
    if protocol == "pubsub":
        for channel in channels:
            if channel.startswith(("/topic/", "/u/")):
                raise click.UsageError(
                    f"the Pub/Sub API has platform and change events only; read {channel} with --protocol cometd"
                )
    colour = wants_colour(color)

    def show(channel: str, replay_id: int | None, data: dict[str, Any]) -> None:
        line = json_line(channel, data) if as_json else text_line(channel, replay_id, data)
        click.echo(line, color=colour)

    if managed:
        asyncio.run(_until_told(_watch_managed(connection, endpoint, managed, count, show)))
    elif protocol == "pubsub":
        asyncio.run(_until_told(_watch_pubsub(connection, endpoint, channels, replay, count, show)))
    elif isinstance(replay, bytes):
        raise click.UsageError("the bytes of a replay id go with --protocol pubsub; CometD takes its number")
    else:
        sign_in = connection.signing_in()
        # Here, so that a wrong password or address is told at once instead of being tried for ever.
        first = [sign_in()]
        client = CometdClient(
            lambda: first.pop() if first else sign_in(), api_version=api_version, tls_ca=connection.tls_ca
        )
        asyncio.run(_until_told(_watch_cometd(client, channels, replay, count, show)))


async def _until_told(watching: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(watching)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        # Ctrl-C is how this command is meant to end.
        return
    except BrokenPipeError:
        # Whoever read our output has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _watch_cometd(
    client: CometdClient, channels: tuple[str, ...], replay: int, count: int | None, show: Show
) -> None:
    async with client:
        for channel in channels:
            await client.subscribe(channel, replay)
            _say_subscribed(channel)
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
    address, roots = await reach(connection, endpoint)
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
            await client.get_topic(channel)  # what is unknown or forbidden is told at once
            start = presets.get(replay, replay)
            subscription = client.subscribe(channel, start, keepalive_ms=_KEEPALIVE_MS)
            subscriptions.append((channel, subscription))
            await subscription.wait_answered(_ANSWER_S)
            _say_subscribed(channel)
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

    address, roots = await reach(connection, endpoint)
    async with PubSubClient(address, connection.signing_in_with_org(), tls_ca=roots) as client:
        subscription = client.subscribe_managed(name, keepalive_ms=_KEEPALIVE_MS)
        _say_subscribed(name)
        seen = 0
        async for event in subscription:
            data = decoded_data(event)
            show(name, data["event"]["replayId"], data)
            sys.stdout.flush()
            await subscription.commit(event.replay_id)
            seen += 1
            if seen == count:
                return


def _say_subscribed(channel: str) -> None:
    click.echo(f"subscribed to {printable(channel)}", err=True)
