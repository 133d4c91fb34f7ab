"""Whether anything answers at the Pub/Sub API's address, before gRPC tries it again and again by itself."""

from __future__ import annotations

import asyncio

import click

from tidewire.cli.client_options import Connection
from tidewire.errors import StoreClosed

_REACH_S = 5.0


async def reach(connection: Connection, endpoint: str) -> tuple[str, bytes | None]:
    """The Pub/Sub API's address and roots, once something answers there. Raises StoreClosed."""
    address, roots = connection.endpoint(endpoint)
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not host:
        raise click.BadParameter(f"{address!r} is not HOST:PORT", param_hint="--endpoint")
    try:
        async with asyncio.timeout(_REACH_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError) as error:
        raise StoreClosed(
            f"the Pub/Sub API cannot be reached at {address}; name another place with --endpoint: {error}"
        ) from error
    writer.close()
    return address, roots
