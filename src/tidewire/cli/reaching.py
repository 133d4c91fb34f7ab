"""Whether anything answers at the Pub/Sub API's address, before gRPC tries it again and again by itself."""

from __future__ import annotations

import asyncio

import click

from tidewire.cli.client_options import Connection
from tidewire.errors import ServerUnreachable

_REACH_S = 5.0


async def reach(connection: Connection, endpoint: str) -> tuple[str, bytes | None]:
    """The Pub/Sub API's address and roots, once something answers there. Raises ServerUnreachable."""
    address, roots = connection.endpoint(endpoint)
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not host:
        raise click.BadParameter(f"{address!r} is not HOST:PORT", param_hint="--endpoint")
    try:
        async with asyncio.timeout(_REACH_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError) as error:
        raise ServerUnreachable(
            f"cannot reach the Pub/Sub API at {address}: {error}; set another address with --endpoint",
            address=address,
        ) from error
    writer.close()
    return address, roots
