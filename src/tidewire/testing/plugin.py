"""The pytest plugin: `tidewire_server` for the whole run, `tidewire_org` for one test.

Installed with the package, so that no test has to name it. A suite chooses the server by a fixture of its own:

    @pytest.fixture(scope="session")
    def tidewire_settings():
        return {"form": "process", "edition": "developer"}

Nothing of the server is loaded until a test asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidewire.testing.local_server import LocalServer


@pytest.fixture(scope="session")
def tidewire_settings() -> dict[str, Any]:
    """The arguments of `LocalServer`; override it to choose others."""
    return {}


@pytest.fixture(scope="session")
def tidewire_server(tidewire_settings: dict[str, Any]) -> Iterator[LocalServer]:
    """A server for the whole run. What one test does to it, the next one sees; see `tidewire_org`."""
    from tidewire.testing.local_server import LocalServer

    with LocalServer(**tidewire_settings) as server:
        yield server


@pytest.fixture
def tidewire_org(tidewire_server: LocalServer) -> LocalServer:
    """The same server, put back to its beginning before the test."""
    tidewire_server.reset()
    return tidewire_server
