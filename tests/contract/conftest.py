"""Every kind of store and event log in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stores import STORES, OpenStore, postgres_place, sqlite_place
from tidewire.eventlog.backends import EVENT_LOGS
from tidewire.eventlog.log import EventLog


@pytest.fixture(params=STORES)
def new_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], OpenStore]:
    """Makes places where a store can be opened: each call another, empty one."""
    if request.param == "sqlite":
        return lambda: sqlite_place(tmp_path_factory.mktemp("store"))
    server = request.getfixturevalue("postgres")
    return lambda: postgres_place(server)


@pytest.fixture(params=EVENT_LOGS)
def new_log(request: pytest.FixtureRequest) -> Callable[[], EventLog]:
    """The constructor of an event log, which is opened again after a restart."""
    return EVENT_LOGS[request.param]
