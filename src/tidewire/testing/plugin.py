"""The pytest plugin: `tidewire_server` for the whole run, `tidewire_org` for one test.

It is registered by the package. A suite configures the server by overriding a fixture:

    @pytest.fixture(scope="session")
    def tidewire_settings():
        return {"form": "process", "edition": "developer"}

The server's modules are imported when a test first uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidewire.testing.local_server import LocalServer


@pytest.fixture(scope="session")
def tidewire_settings() -> dict[str, Any]:
    """Return the arguments of `LocalServer`; override to change them."""
    return {}


@pytest.fixture(scope="session")
def tidewire_server(tidewire_settings: dict[str, Any]) -> Iterator[LocalServer]:
    """Run one server for the whole session, without resets between tests; see `tidewire_org`."""
    from tidewire.testing.local_server import LocalServer

    with LocalServer(**tidewire_settings) as server:
        yield server


@pytest.fixture
def tidewire_org(tidewire_server: LocalServer) -> LocalServer:
    """Return the same server, reset before the test."""
    tidewire_server.reset()
    return tidewire_server
