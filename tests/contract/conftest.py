"""Every kind of store in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stores import STORES, OpenStore, postgres_place, sqlite_place


@pytest.fixture(params=STORES)
def new_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], OpenStore]:
    """Makes places where a store can be opened: each call another, empty one."""
    if request.param == "sqlite":
        return lambda: sqlite_place(tmp_path_factory.mktemp("store"))
    server = request.getfixturevalue("postgres")
    return lambda: postgres_place(server)
