"""Addresses that a server cannot listen on: it says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewire.config import Settings
from tidewire.errors import ConfigInvalid
from tidewire.server.run import Server

HERE = "127.0.0.1:0"


@pytest.mark.parametrize(
    "host, reason",
    [
        # The second where no name server answers.
        ("no such host", "(.* not known|Temporary failure in name resolution)"),
        ("a..b", "not a valid host name"),
    ],
)
async def test_address_that_does_not_resolve_is_rejected_with_its_reason(
    tmp_path: Path, host: str, reason: str
) -> None:
    settings = Settings(data=str(tmp_path), dev=True, http=f"{host}:0", https=HERE, grpc=HERE, grpc_tls=HERE)
    server = Server(settings)
    try:
        with pytest.raises(ConfigInvalid, match=f"cannot listen on {host}:0: {reason}"):
            await server.start()
    finally:
        await server.close()
