"""Fixtures of the clients' tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lasting_loop import LASTING


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """asyncio, on loops that outlive a gRPC call's late events."""
    return LASTING
